// c4d_master: puts the parts together.

#include <array>
#include <functional>
#include <memory>
#include <set>

#include "c4d_master/alerts/alert_center.h"
#include "c4d_master/alerts/alerts_grpc.h"
#include "c4d_master/alerts/alerts_http.h"
#include "c4d_master/alerts/senders.h"
#include "c4d_master/file_watch.h"
#include "c4d_master/grpc_service.h"
#include "c4d_master/http_api.h"
#include "c4d_master/intervention/grpc_mover.h"
#include "c4d_master/mitigation/mitigation_grpc.h"
#include "c4d_master/mitigation/mitigation_store.h"
#include "c4d_master/mitigation/mitigator.h"
#include "c4d_master/options.h"
#include "c4d_master/page_source.h"
#include "c4d_master/path_source.h"
#include "c4d_master/policy_file.h"
#include "c4d_master/recovery/downtime.h"
#include "c4d_master/recovery/recovery_center.h"
#include "c4d_master/recovery/recovery_grpc.h"
#include "c4d_master/smon/smon.h"
#include "c4d_master/smon/smon_grpc.h"
#include "c4d_master/smon/smon_http.h"
#include "c4d_master/smon/smon_workers.h"
#include "c4d_master/smon/telemetry_profile_source.h"
#include "c4d_master/sources/sources.h"
#include "c4d_master/validation/validation_grpc.h"
#include "c4d_master/validation/validator.h"
#include "c4d_master/verdict_metrics.h"
#include "grpcpp/impl/service_type.h"
#include "page/page_api.h"
#include "service/directory.h"
#include "service/log.h"
#include "service/serve_master.h"
#include "service/signals.h"
#include "service/state_thread.h"
#include "service/status.h"
#include "service/text.h"
#include "service/version.h"

namespace c4::c4d {
namespace {

constexpr absl::Duration kTickInterval = absl::Milliseconds(100);

// Where C4P is. The entry is looked up again whenever it is needed: C4P may come, go and move.
std::function<absl::StatusOr<service::MasterAddress>()> PathMasterOf(const MasterOptions& options) {
  return [address = options.c4p, directory = service::MasterDirectory(
                                     options.directory)]() -> absl::StatusOr<service::MasterAddress> {
    if (!address.empty()) return service::MasterAddress(address);
    const absl::StatusOr<service::MasterEntry> entry = directory.LookUp(service::kPathMasterName);
    if (!entry.ok()) return entry.status();
    return service::AddressOf(*entry);
  };
}

// nullptr where C4P is not to be asked.
std::unique_ptr<PathSource> MakePathSource(const MasterOptions& options,
                                           const service::Credentials& credentials) {
  if (options.c4p == kNoC4p) return nullptr;
  GrpcPathSource::Options result;
  result.credentials = credentials;
  result.address = PathMasterOf(options);
  return std::make_unique<GrpcPathSource>(std::move(result));
}

// Also where the job does not ask for moves: those of a master before this one may have to be ended.
std::unique_ptr<Mover> MakeMover(const MasterOptions& options, const service::Credentials& credentials) {
  if (options.c4p == kNoC4p) return nullptr;
  GrpcMover::Options result;
  result.job = options.job;
  result.credentials = credentials;
  result.address = PathMasterOf(options);
  return std::make_unique<GrpcMover>(std::move(result));
}

// In a directory that everybody may write to somebody else may have the default's name: another one then.
absl::StatusOr<std::shared_ptr<service::AuditLog>> OpenAudit(const MasterOptions& options, uint64_t epoch) {
  absl::StatusOr<std::shared_ptr<service::AuditLog>> audit = service::AuditLog::Open(options.audit);
  if (audit.ok() || !options.audit_by_default) return audit;
  const std::string other = service::Concat(options.audit, ".", epoch);
  service::LogWarning(audit.status().message(), "; the audit is ", other);
  return service::AuditLog::Open(other);
}

// What an earlier master told of, and what is not open any more, is over.
void TellAlerts(C4dHandler* handler, AlertCenter* alerts, const service::Clock& clock) {
  std::set<std::string> open;
  const v1::ListVerdictsReply reply = handler->ListVerdicts(false);
  for (const v1::Verdict& verdict : reply.verdicts()) open.insert(verdict.id());
  alerts->OnAllOpen(open, ReadClock(clock));
  handler->Subscribe(
      [alerts, &clock](const v1::Verdict& verdict) { alerts->OnVerdict(verdict, ReadClock(clock)); });
}

void TellRecovery(C4dHandler* handler, recovery::RecoveryCenter* center, const service::Clock& clock) {
  handler->Subscribe([handler, center, &clock](const v1::Verdict& verdict) {
    const uint32_t latest = recovery::ProgressOf(handler->hosts()).incarnation;
    center->OnVerdict(verdict, recovery::IncarnationOf(verdict, handler->hosts(), latest), ReadClock(clock));
  });
}

void KeepDecision(MitigationStore* store, const v1::MitigationDecision& decision) {
  const absl::Status kept = store->Add(decision);
  if (!kept.ok()) service::LogWarning("a decision about a fail-slow is not kept: ", kept.message());
}

int64_t JobBeganAtNs(const std::map<std::string, Host>& hosts) {
  int64_t began_at_ns = kNever;
  for (const auto& [name, host] : hosts) {
    for (const Process& process : host.processes) {
      if (began_at_ns == kNever || process.first_seen_at_ns < began_at_ns)
        began_at_ns = process.first_seen_at_ns;
    }
  }
  return began_at_ns;
}

RestartProgress ProgressOf(const recovery::Incident* incident) {
  if (incident == nullptr) return {};
  if (incident->phase == recovery::Phase::kProposed) {
    return {.state = RestartProgress::State::kHeld,
            .cost_s = 0,
            .why = "recovery holds the incident back (c4 recovery): " + incident->reason};
  }
  if (!recovery::IsEnd(incident->phase))
    return {.state = RestartProgress::State::kUnderWay, .cost_s = 0, .why = ""};
  if (incident->phase != recovery::Phase::kRecovered) {
    return {.state = RestartProgress::State::kFailed,
            .cost_s = 0,
            .why = "recovery has ended the incident: " + incident->reason};
  }
  return {.state = RestartProgress::State::kDone,
          .cost_s = static_cast<double>(recovery::RestartCostNs(*incident)) / 1e9,
          .why = ""};
}

MitigatorSources SourcesOf(C4dHandler* handler, const recovery::RecoveryCenter* recovery) {
  return {.traffic = [handler] { return TrafficOf(handler->hosts()); },
          .matrix = [handler](Now now) { return handler->GetMatrix(now); },
          .why_no_restart = [recovery](const v1::Verdict& verdict) { return recovery->WhyNot(verdict); },
          .began_at_ns = [handler] { return JobBeganAtNs(handler->hosts()); },
          .restart_s = [recovery] { return recovery->UsualRestartS(); },
          .restart_progress =
              [recovery](const std::string& verdict) { return ProgressOf(recovery->IncidentOf(verdict)); }};
}

void ReadRecovery(const std::string& path, recovery::RecoveryCenter* center, const service::Clock& clock) {
  absl::StatusOr<recovery::RecoveryFile> file = recovery::LoadRecoveryFile(path);
  if (file.ok()) {
    center->SetFile(*std::move(file), ReadClock(clock));
  } else {
    center->RefuseFile(file.status());
  }
}

void ReadAlerts(const std::string& path, AlertCenter* alerts, const service::Clock& clock) {
  absl::StatusOr<AlertConfig> config = LoadAlertConfig(path);
  if (config.ok()) {
    alerts->SetConfig(*std::move(config), ReadClock(clock));
  } else {
    alerts->RefuseConfig(config.status());
  }
}

absl::Status Run(const MasterOptions& options, const std::vector<service::Setting>& settings) {
  C4_RETURN_IF_NOT_OK(service::InitLog(options.common.log, "c4d_master"));
  const absl::StatusOr<service::Credentials> credentials = service::Credentials::Load(
      options.common.security, {.role = service::Role::kJobMaster, .job = options.job});
  if (!credentials.ok()) return credentials.status();
  const service::Clock& clock = service::SystemClock();
  const auto epoch = static_cast<uint64_t>(clock.UnixNs());
  service::LogInfo("c4d_master ", service::Version(), ", ", service::DescribeConfig(settings));

  // The run directory, unless told otherwise: also the store's default place.
  C4_RETURN_IF_NOT_OK(service::PrepareMasters(options.directory));
  service::Metrics metrics;
  absl::StatusOr<std::shared_ptr<service::AuditLog>> audit = OpenAudit(options, epoch);
  if (!audit.ok()) return audit.status();
  const service::Gate gate({.credentials = *credentials, .job = options.job, .audit = *std::move(audit)});
  VerdictStore store(options.store);
  const std::unique_ptr<PathSource> paths = MakePathSource(options, *credentials);
  const std::unique_ptr<Mover> mover = MakeMover(options, *credentials);
  C4dHandler handler(options.ForHandler(epoch), &store, &metrics, paths.get(), mover.get());
  if (options.intervene && mover == nullptr) {
    service::LogWarning("--intervene has no effect with --c4p off: nobody could move queue pairs");
  }

  RollingRecording last_minutes(options.ForRecording());
  handler.Record([&](const v1::TelemetryBatch& batch, Now arrival) {
    last_minutes.Take(batch, arrival, handler.policy_version());
  });

  TelemetryProfileSource profiles(&handler);
  SmonStore smon_store(store.file(), options.job);
  SmonWorkers smon_workers;
  AlertStore alert_store(store.file(), options.job);
  AlertSenders alert_senders;
  AlertCenter alerts(options.job, options.alert_config, &alert_senders, &alert_store, &metrics,
                     ReadClock(clock));
  SmonOptions smon_options = options.ForSmon();
  smon_options.on_session = [&](const v1::ProfilingSession& session, Now now) {
    alerts.OnSession(session, now);
  };
  Smon smon(smon_options, &profiles, &smon_workers, &smon_store, &metrics, ReadClock(clock));
  alerts.SetNewestSession([&] { return smon.Newest(); });
  TellAlerts(&handler, &alerts, clock);
  VerdictMetrics verdict_metrics(options.job, &metrics);
  handler.Subscribe([&](const v1::Verdict& verdict) { verdict_metrics.OnVerdict(verdict); });
  recovery::RecoveryStore recovery_store(store.file(), options.job);
  recovery::Executor executor;
  recovery::RecoveryCenter recovery(options.job, options.recovery_file, &executor, &recovery_store, &metrics,
                                    ReadClock(clock));
  TellRecovery(&handler, &recovery, clock);
  FileWatch recovery_file(options.recovery_path);
  recovery_file.Seen(clock.MonotonicNs());  // as it was read at the start
  FileWatch alert_file(options.alerts);
  alert_file.Seen(clock.MonotonicNs());  // as it was read at the start
  Validator validator({.job = options.job});
  MitigationStore mitigation_store(store.file(), options.job);
  Mitigator mitigator(
      options.mitigate, epoch,
      [&](const std::string& host, const v1::ValidationToAgent& message) {
        return validator.Tell(host, message);
      },
      [&](const v1::MitigationDecision& decision) { KeepDecision(&mitigation_store, decision); },
      SourcesOf(&handler, &recovery));
  recovery.SetPermit([&](const v1::Verdict& verdict) { return mitigator.MayRestart(verdict); });
  handler.Subscribe([&](const v1::Verdict& verdict) { mitigator.OnVerdict(verdict); });
  PolicyFile policy(options.policy, [&](const Policy& file) { return options.GoOver(file); });
  service::StateThread state_thread("c4d-state", kTickInterval, [&] {
    const bool asked = options.ReadsFilesAgain() && service::TookReloadSignal();
    if (alert_file.Look(clock.MonotonicNs(), asked)) ReadAlerts(alert_file.path(), &alerts, clock);
    if (const auto read = policy.Look(clock.MonotonicNs(), asked)) {
      if (read->ok()) {
        handler.SetPolicy(**read);
      } else {
        handler.RefusePolicy(read->status());
      }
    }
    if (recovery_file.Look(clock.MonotonicNs(), asked)) ReadRecovery(recovery_file.path(), &recovery, clock);
    handler.Tick(ReadClock(clock));
    smon.Tick(ReadClock(clock));
    validator.Tick(ReadClock(clock));
    mitigator.Tick(ReadClock(clock));
    alerts.Tick(ReadClock(clock));
    recovery.Tick(recovery::ProgressOf(handler.hosts()), ReadClock(clock));
  });

  Sources sources(options.sources, options.job, epoch, &handler, &state_thread);

  const std::unique_ptr<grpc::Service> grpc_service = MakeGrpcService(&handler, &state_thread, gate, clock);
  const std::unique_ptr<grpc::Service> smon_service = MakeSmonService(&smon, &state_thread, gate, clock);
  const int64_t agent_stale_ns = options.ForHandler(epoch).policy.agent_stale_ns;
  const std::unique_ptr<grpc::Service> validation_service = MakeValidationService(
      &validator, &mitigator,
      [&](Now now) { return Assemble(handler.hosts(), now.monotonic_ns, agent_stale_ns); }, &state_thread,
      gate, clock);
  const std::unique_ptr<grpc::Service> alerts_service =
      MakeAlertsService(&alerts, &state_thread, gate, clock);
  const std::unique_ptr<grpc::Service> recovery_service =
      MakeRecoveryService(&recovery, &state_thread, gate, clock);
  const std::unique_ptr<grpc::Service> mitigation_service =
      MakeMitigationService(&mitigator, &mitigation_store, &state_thread, gate);
  const std::array<grpc::Service*, 6> services = {grpc_service.get(),       smon_service.get(),
                                                  validation_service.get(), alerts_service.get(),
                                                  recovery_service.get(),   mitigation_service.get()};
  JobPageSource page_source(options.job, epoch,
                            {.handler = &handler,
                             .smon = &smon,
                             .alerts = &alerts,
                             .recovery = &recovery,
                             .state_thread = &state_thread,
                             .clock = &clock});
  page::PageApi page_api(&page_source, &clock, &page::PageFiles());
  service::HttpServer http_server([&] { return state_thread.Health(); }, [&] { return metrics.Serialise(); });
  AddHttpRoutes(&http_server, &handler, &state_thread, clock);
  AddSmonRoutes(&http_server, &smon, &state_thread, clock);
  AddAlertRoutes(&http_server, &alerts, &state_thread, clock);
  page_api.AddRoutes(&http_server);
  page_api.Start();
  C4_RETURN_IF_NOT_OK(service::ServeMaster({.job = options.job,
                                            .epoch = epoch,
                                            .listen = options.listen,
                                            .directory = options.directory,
                                            .common = options.common,
                                            .credentials = *credentials,
                                            .gate = gate,
                                            .services = services,
                                            .http = &http_server}));
  sources.Stop();
  page_api.Stop();
  // An analysis that is under way is finished and kept.
  smon_workers.Stop();
  state_thread.Post([&] { smon.End(ReadClock(clock)); });
  state_thread.Stop();
  alert_senders.Stop();
  executor.Stop();
  last_minutes.Close();
  return absl::OkStatus();
}

}  // namespace
}  // namespace c4::c4d

int main(int argc, char** argv) {
  c4::service::BlockSignals();
  c4::c4d::MasterOptions options;
  if (const std::optional<int> exit_status = c4::c4d::LoadOptions(argc, argv, &options)) return *exit_status;
  if (options.ReadsFilesAgain()) c4::service::BlockReloadSignal();
  return c4::service::ExitStatus(c4::c4d::Run(options, c4::c4d::MasterSettings(&options)));
}
