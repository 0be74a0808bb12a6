#include "cli/clients/master_client.h"

#include <algorithm>
#include <chrono>
#include <grpcpp/grpcpp.h>
#include <mutex>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "c4/v1/alerts.grpc.pb.h"
#include "c4/v1/c4d.grpc.pb.h"
#include "c4/v1/mitigation.grpc.pb.h"
#include "c4/v1/recovery.grpc.pb.h"
#include "c4/v1/smon.grpc.pb.h"
#include "c4/v1/validation.grpc.pb.h"
#include "cli/base/process.h"
#include "cli/clients/job_certificates.h"
#include "service/address.h"
#include "service/channel.h"
#include "service/credentials.h"
#include "service/grpc_server.h"
#include "service/printable.h"
#include "service/run_dir.h"

namespace c4::cli {
namespace {

absl::Status FromGrpc(const grpc::Status& given, const std::string& address,
                      const service::Credentials& credentials) {
  if (given.ok()) return absl::OkStatus();
  const grpc::Status status = service::ToGrpcStatus(credentials.Explain(service::FromGrpcStatus(given)));
  std::string text = absl::StrCat("the master at ", address, " did not answer: ", status.error_message());
  if (status.error_code() == grpc::StatusCode::UNAUTHENTICATED) {
    text = absl::StrCat("the master at ", address, " refused the call: ", status.error_message(),
                        "; see \"TLS and tokens\" in docs/configuration.md");
  }
  if (status.error_code() == grpc::StatusCode::PERMISSION_DENIED) {
    text = absl::StrCat("the master at ", address, " refused the call: ", status.error_message());
  }
  return absl::Status(static_cast<absl::StatusCode>(status.error_code()), text);
}

}  // namespace

void MasterOptions::Declare(Options* options) {
  options->Group("which job, and how to reach its master");
  options->Text("--job", &job, "ID", "the job; needed only where several have a master", "C4_JOB_ID");
  options->Text("--master", &address, "HOST:PORT", "ask this master, without a look-up", "C4_MASTER");
  options->Text("--run-dir", &base_dir, "DIR",
                "where masters are looked up, in DIR/masters; default: C4_RUN_DIR, else /dev/shm/c4");
  DeclareSecurity(&security, options);
  options->Group("");
}

void DeclareSecurity(service::SecurityOptions* security, Options* options) {
  service::TlsOptions& tls = security->tls;
  options->Text("--tls-ca", &tls.ca, "FILE", "mutual TLS: certificates to trust (PEM)", "C4_TLS_CA");
  options->Text("--tls-cert", &tls.cert, "FILE", "mutual TLS: own certificate (PEM)", "C4_TLS_CERT");
  options->Text("--tls-key", &tls.key, "FILE", "mutual TLS: own key (PEM)", "C4_TLS_KEY");
  options->Text("--token-file", &security->token_file, "FILE", "token to show (c4 pki token)",
                "C4_TOKEN_FILE");
  options->Text("--key-file", &security->key_file, "FILE",
                "key to make an operator's token with; default: the job's own, where its master's entry says "
                "where it is and it can be read",
                "C4_KEY_FILE");
  options->Flag("--token-in-clear", &security->token_in_clear,
                "send tokens to other machines without TLS too");
}

std::vector<service::MasterEntry> PreferBelieved(std::vector<service::MasterEntry> published,
                                                 const service::Believed& believed) {
  const auto weight = [&](const service::MasterEntry& entry) {
    return entry.published_by == 0 ? 0 : believed.Holds(entry.published_by) ? 1 : 2;
  };
  std::stable_sort(published.begin(), published.end(), [&](const auto& a, const auto& b) {
    return std::pair(a.job, weight(a)) < std::pair(b.job, weight(b));
  });
  const auto same = [](const auto& a, const auto& b) { return a.job == b.job; };
  published.erase(std::unique(published.begin(), published.end(), same), published.end());
  return published;
}

absl::StatusOr<FoundMaster> ChooseMaster(const std::vector<service::MasterEntry>& published,
                                         const std::string& job, const std::string& directory) {
  std::vector<service::MasterEntry> entries = published;
  std::erase_if(entries, [](const auto& entry) { return entry.job == service::kPathMasterName; });
  std::string names;
  for (const service::MasterEntry& entry : entries) {
    absl::StrAppend(&names, names.empty() ? "" : ", ", entry.job);
    if (entry.job == job) return FoundMaster{entry.job, service::AddressOf(entry), entry.epoch};
  }
  const std::string hint =
      " (start one with `c4 run`, name its directory with --run-dir, or give --master HOST:PORT)";
  if (entries.empty()) {
    return absl::NotFoundError(
        absl::StrCat(job.empty() ? "no job" : "neither '" + job + "' nor any other job", " has a master in ",
                     directory, hint));
  }
  if (!job.empty()) {
    return absl::NotFoundError(absl::StrCat("job '", service::Printable(job), "' has no master in ",
                                            directory, "; these have: ", names));
  }
  if (entries.size() > 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("several jobs have a master: ", names, "; choose with --job ID"));
  }
  const service::MasterEntry& only = entries.front();
  return FoundMaster{only.job, service::AddressOf(only), only.epoch};
}

absl::StatusOr<FoundMaster> FindMaster(const MasterOptions& options) {
  if (!options.address.empty()) return FoundMaster{options.job, service::MasterAddress(options.address), 0};
  const std::string base = options.base_dir.empty() ? service::DefaultRunDir() : options.base_dir;
  const service::MasterDirectory directory(base + "/masters");
  const absl::StatusOr<std::vector<service::MasterEntry>> entries = directory.List();
  if (!entries.ok()) return entries.status();
  std::vector<service::MasterEntry> candidates = PreferBelieved(*entries, service::Believed());
  if (options.job.empty() && candidates.size() > 1) {
    // Entries that killed masters left behind need not be chosen from.
    std::erase_if(candidates, [](const service::MasterEntry& entry) {
      return entry.host == service::HostName() && !ReadProcessStat(static_cast<pid_t>(entry.pid)).has_value();
    });
    if (candidates.empty()) candidates = PreferBelieved(*entries, service::Believed());
  }
  return ChooseMaster(candidates, options.job, directory.path());
}

struct MasterClient::Parts {
  std::string address;
  service::MasterAddress master;
  service::Credentials credentials;
  std::unique_ptr<v1::C4d::Stub> stub;
  std::unique_ptr<v1::Smon::Stub> smon;
  std::unique_ptr<v1::Validations::Stub> validations;
  std::unique_ptr<v1::Alerts::Stub> alerts;
  std::unique_ptr<v1::Mitigations::Stub> mitigations;
  std::unique_ptr<v1::Recovery::Stub> recovery;
  std::mutex watch_mutex;
  grpc::ClientContext* watching = nullptr;
  bool watch_stopped = false;

  // Who watches, for StopWatching. False once it was called.
  bool Watches(grpc::ClientContext* context) {
    const std::lock_guard lock(watch_mutex);
    watching = context;
    return !watch_stopped;
  }

  void Prepare(grpc::ClientContext* context, absl::Duration timeout) const {
    credentials.AddToken(context, master);
    context->set_deadline(std::chrono::system_clock::now() + absl::ToChronoMilliseconds(timeout));
  }

  static void MakeHarmless(google::protobuf::Message* reply) { service::MakePrintable(reply); }
  // A report is a page: its lines stay lines.
  static void MakeHarmless(v1::GetSessionReply* reply) {
    const std::string text = service::PrintablePage(reply->report_text());
    const std::string json = service::PrintablePage(reply->report_json());
    service::MakePrintable(reply);
    reply->set_report_text(text);
    reply->set_report_json(json);
  }

  // Of a service that versions of before may lack.
  template <typename Stub, typename Request, typename Reply>
  absl::StatusOr<Reply> Ask(Stub* stub_of,
                            grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&, Reply*),
                            const Request& request, absl::Duration timeout) const {
    grpc::ClientContext context;
    Prepare(&context, timeout);
    Reply reply;
    const grpc::Status status = (stub_of->*method)(&context, request, &reply);
    switch (status.error_code()) {
      case grpc::StatusCode::OK:
        MakeHarmless(&reply);
        return reply;
      case grpc::StatusCode::UNIMPLEMENTED:
        return absl::FailedPreconditionError(
            absl::StrCat("the master at ", address,
                         " is of a version that does not know this call; start this version's"));
      case grpc::StatusCode::NOT_FOUND:
      case grpc::StatusCode::INVALID_ARGUMENT:
      case grpc::StatusCode::FAILED_PRECONDITION:
        // It did answer.
        return service::FromGrpcStatus(status);
      default:
        return FromGrpc(status, address, credentials);
    }
  }
};

MasterClient::MasterClient(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}

MasterClient::~MasterClient() = default;

absl::StatusOr<std::unique_ptr<MasterClient>> MasterClient::Open(const service::MasterAddress& master,
                                                                 const MasterOptions& options) {
  service::SecurityOptions security = options.security;
  if (security.tls.cert.empty()) security.tls = OwnersCertificates(master);
  absl::StatusOr<service::Credentials> credentials =
      service::Credentials::Load(security, service::OwnOperator());
  if (!credentials.ok()) return credentials.status();
  auto parts = std::make_unique<Parts>();
  parts->address = master.address;
  parts->master = master;
  parts->credentials = *credentials;
  const std::shared_ptr<grpc::Channel> channel = service::MakeChannel(
      master.address, *credentials, service::Role::kJobMaster, master.job.empty() ? options.job : master.job);
  parts->stub = v1::C4d::NewStub(channel);
  parts->smon = v1::Smon::NewStub(channel);
  parts->validations = v1::Validations::NewStub(channel);
  parts->alerts = v1::Alerts::NewStub(channel);
  parts->mitigations = v1::Mitigations::NewStub(channel);
  parts->recovery = v1::Recovery::NewStub(channel);
  return std::unique_ptr<MasterClient>(new MasterClient(std::move(parts)));
}

absl::StatusOr<v1::ListVerdictsReply> MasterClient::ListVerdicts(bool include_cleared,
                                                                 absl::Duration timeout) const {
  grpc::ClientContext context;
  parts_->Prepare(&context, timeout);
  v1::ListVerdictsRequest request;
  request.set_include_cleared(include_cleared);
  v1::ListVerdictsReply reply;
  const grpc::Status status = parts_->stub->ListVerdicts(&context, request, &reply);
  if (!status.ok()) return FromGrpc(status, parts_->address, parts_->credentials);
  service::MakePrintable(&reply);
  return reply;
}

absl::StatusOr<v1::GetStatusReply> MasterClient::GetStatus(absl::Duration timeout) const {
  grpc::ClientContext context;
  parts_->Prepare(&context, timeout);
  v1::GetStatusReply reply;
  const grpc::Status status = parts_->stub->GetStatus(&context, v1::GetStatusRequest(), &reply);
  if (!status.ok()) return FromGrpc(status, parts_->address, parts_->credentials);
  service::MakePrintable(&reply);
  return reply;
}

absl::StatusOr<v1::GetMatrixReply> MasterClient::GetMatrix(absl::Duration timeout,
                                                           const v1::GetMatrixRequest& request) const {
  grpc::ClientContext context;
  parts_->Prepare(&context, timeout);
  v1::GetMatrixReply reply;
  const grpc::Status status = parts_->stub->GetMatrix(&context, request, &reply);
  if (!status.ok()) return FromGrpc(status, parts_->address, parts_->credentials);
  service::MakePrintable(&reply);
  return reply;
}

absl::StatusOr<v1::GetIterationsReply> MasterClient::GetIterations(uint64_t from,
                                                                   absl::Duration timeout) const {
  grpc::ClientContext context;
  parts_->Prepare(&context, timeout);
  v1::GetIterationsRequest request;
  request.set_from(from);
  v1::GetIterationsReply reply;
  const grpc::Status status = parts_->stub->GetIterations(&context, request, &reply);
  if (!status.ok()) return FromGrpc(status, parts_->address, parts_->credentials);
  service::MakePrintable(&reply);
  return reply;
}

absl::StatusOr<v1::SetLevelReply> MasterClient::SetLevel(v1::RecordLevel level,
                                                         absl::Duration timeout) const {
  grpc::ClientContext context;
  parts_->Prepare(&context, timeout);
  v1::SetLevelRequest request;
  request.set_level(level);
  v1::SetLevelReply reply;
  const grpc::Status status = parts_->stub->SetLevel(&context, request, &reply);
  if (!status.ok()) return FromGrpc(status, parts_->address, parts_->credentials);
  service::MakePrintable(&reply);
  return reply;
}

absl::StatusOr<v1::RunSessionReply> MasterClient::RunSession(const v1::RunSessionRequest& request,
                                                             absl::Duration timeout) const {
  return parts_->Ask(parts_->smon.get(), &v1::Smon::Stub::RunSession, request, timeout);
}

absl::StatusOr<v1::ListSessionsReply> MasterClient::ListSessions(uint32_t limit,
                                                                 absl::Duration timeout) const {
  v1::ListSessionsRequest request;
  request.set_limit(limit);
  return parts_->Ask(parts_->smon.get(), &v1::Smon::Stub::ListSessions, request, timeout);
}

absl::StatusOr<v1::GetSessionReply> MasterClient::GetSession(uint64_t number, absl::Duration timeout) const {
  v1::GetSessionRequest request;
  request.set_number(number);
  return parts_->Ask(parts_->smon.get(), &v1::Smon::Stub::GetSession, request, timeout);
}

absl::StatusOr<v1::ListAlertsReply> MasterClient::ListAlerts(bool include_resolved,
                                                             absl::Duration timeout) const {
  v1::ListAlertsRequest request;
  request.set_include_resolved(include_resolved);
  return parts_->Ask(parts_->alerts.get(), &v1::Alerts::Stub::List, request, timeout);
}

absl::StatusOr<v1::AcknowledgeAlertReply> MasterClient::AcknowledgeAlert(
    const v1::AcknowledgeAlertRequest& request, absl::Duration timeout) const {
  return parts_->Ask(parts_->alerts.get(), &v1::Alerts::Stub::Acknowledge, request, timeout);
}

absl::StatusOr<v1::AddSilenceReply> MasterClient::AddSilence(const v1::AddSilenceRequest& request,
                                                             absl::Duration timeout) const {
  return parts_->Ask(parts_->alerts.get(), &v1::Alerts::Stub::AddSilence, request, timeout);
}

absl::StatusOr<v1::EndSilenceReply> MasterClient::EndSilence(uint64_t number, absl::Duration timeout) const {
  v1::EndSilenceRequest request;
  request.set_number(number);
  return parts_->Ask(parts_->alerts.get(), &v1::Alerts::Stub::EndSilence, request, timeout);
}

absl::StatusOr<v1::TestAlertReply> MasterClient::TestAlert(const std::string& target,
                                                           absl::Duration timeout) const {
  v1::TestAlertRequest request;
  request.set_target(target);
  return parts_->Ask(parts_->alerts.get(), &v1::Alerts::Stub::Test, request, timeout);
}

absl::StatusOr<v1::RunValidationReply> MasterClient::RunValidation(const v1::RunValidationRequest& request,
                                                                   absl::Duration timeout) const {
  return parts_->Ask(parts_->validations.get(), &v1::Validations::Stub::Run, request, timeout);
}

absl::StatusOr<v1::GetValidationReply> MasterClient::GetValidation(uint64_t number,
                                                                   absl::Duration timeout) const {
  v1::GetValidationRequest request;
  request.set_number(number);
  return parts_->Ask(parts_->validations.get(), &v1::Validations::Stub::Get, request, timeout);
}

absl::StatusOr<v1::ListDecisionsReply> MasterClient::ListDecisions(absl::Duration timeout) const {
  return parts_->Ask(parts_->mitigations.get(), &v1::Mitigations::Stub::List, v1::ListDecisionsRequest(),
                     timeout);
}

absl::StatusOr<v1::GetRecoveryReply> MasterClient::GetRecovery(uint32_t notes, absl::Duration timeout) const {
  v1::GetRecoveryRequest request;
  request.set_notes(notes);
  return parts_->Ask(parts_->recovery.get(), &v1::Recovery::Stub::Get, request, timeout);
}

absl::StatusOr<v1::DecideRecoveryReply> MasterClient::ApproveRecovery(
    const v1::DecideRecoveryRequest& request, absl::Duration timeout) const {
  return parts_->Ask(parts_->recovery.get(), &v1::Recovery::Stub::Approve, request, timeout);
}

absl::StatusOr<v1::DecideRecoveryReply> MasterClient::DenyRecovery(const v1::DecideRecoveryRequest& request,
                                                                   absl::Duration timeout) const {
  return parts_->Ask(parts_->recovery.get(), &v1::Recovery::Stub::Deny, request, timeout);
}

absl::StatusOr<v1::DecideRecoveryReply> MasterClient::IsolateNode(const v1::DecideRecoveryRequest& request,
                                                                  absl::Duration timeout) const {
  return parts_->Ask(parts_->recovery.get(), &v1::Recovery::Stub::Isolate, request, timeout);
}

absl::StatusOr<v1::DecideRecoveryReply> MasterClient::ReleaseNode(const v1::DecideRecoveryRequest& request,
                                                                  absl::Duration timeout) const {
  return parts_->Ask(parts_->recovery.get(), &v1::Recovery::Stub::Release, request, timeout);
}

absl::Status MasterClient::Record(absl::Duration limit,
                                  const std::function<bool(const v1::RecordedBatch&)>& on_batch) const {
  grpc::ClientContext context;
  parts_->Prepare(&context, limit);
  if (!parts_->Watches(&context)) return absl::CancelledError("no longer watching");
  const absl::Cleanup left = [this] { parts_->Watches(nullptr); };
  const std::unique_ptr<grpc::ClientReader<v1::RecordedBatch>> reader =
      parts_->stub->Record(&context, v1::RecordRequest());
  v1::RecordedBatch batch;
  while (reader->Read(&batch)) {
    if (on_batch(batch)) continue;
    context.TryCancel();
    while (reader->Read(&batch)) {
    }
    break;
  }
  const grpc::Status status = reader->Finish();
  if (status.ok()) return absl::UnavailableError(absl::StrCat("the master at ", parts_->address, " ended"));
  return FromGrpc(status, parts_->address, parts_->credentials);
}

absl::Status MasterClient::WatchVerdicts(const std::function<bool(const v1::Verdict&)>& on_verdict) const {
  grpc::ClientContext context;
  parts_->credentials.AddToken(&context, parts_->master);
  if (!parts_->Watches(&context)) return absl::CancelledError("no longer watching");
  const absl::Cleanup left = [this] { parts_->Watches(nullptr); };
  const std::unique_ptr<grpc::ClientReader<v1::Verdict>> reader =
      parts_->stub->WatchVerdicts(&context, v1::WatchVerdictsRequest());
  v1::Verdict verdict;
  while (reader->Read(&verdict)) {
    service::MakePrintable(&verdict);
    if (on_verdict(verdict)) continue;
    context.TryCancel();
    while (reader->Read(&verdict)) {
    }
    reader->Finish();
    return absl::OkStatus();
  }
  const grpc::Status status = reader->Finish();
  if (status.ok()) return absl::UnavailableError(absl::StrCat("the master at ", parts_->address, " ended"));
  return FromGrpc(status, parts_->address, parts_->credentials);
}

void MasterClient::StopWatching() const {
  const std::lock_guard lock(parts_->watch_mutex);
  parts_->watch_stopped = true;
  if (parts_->watching != nullptr) parts_->watching->TryCancel();
}

absl::StatusOr<std::unique_ptr<MasterClient>> ConnectToMaster(const MasterOptions& options) {
  const absl::StatusOr<FoundMaster> found = FindMaster(options);
  if (!found.ok()) return found.status();
  return MasterClient::Open(found->master, options);
}

absl::Status AskMaster(const MasterOptions& options, absl::Duration patience,
                       const std::function<absl::Status(const MasterClient&)>& ask) {
  const absl::Time until = absl::Now() + patience;
  for (;;) {
    const absl::StatusOr<std::unique_ptr<MasterClient>> client = ConnectToMaster(options);
    if (!client.ok()) return client.status();
    absl::Status answer = ask(**client);
    if (!absl::IsUnavailable(answer)) return answer;
    if (absl::Now() >= until) {
      return service::Annotate(answer, "is the job still running? `c4 status` asks for the same master");
    }
    absl::SleepFor(absl::Milliseconds(200));
  }
}

}  // namespace c4::cli
