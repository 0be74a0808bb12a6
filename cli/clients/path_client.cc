#include "cli/clients/path_client.h"

#include <chrono>
#include <grpcpp/grpcpp.h>

#include "absl/strings/str_cat.h"
#include "c4/v1/c4p.grpc.pb.h"
#include "cli/clients/job_certificates.h"
#include "cli/clients/master_client.h"
#include "service/channel.h"
#include "service/credentials.h"
#include "service/directory.h"
#include "service/grpc_server.h"
#include "service/printable.h"
#include "service/run_dir.h"

namespace c4::cli {
namespace {

constexpr std::chrono::seconds kCallLimit{5};

}  // namespace

void PathMasterOptions::Declare(Options* options) {
  options->Text("--path-master", &address, "HOST:PORT", "ask this path master, without a look-up",
                "C4_PATH_MASTER");
  options->Text("--run-dir", &base_dir, "DIR",
                "where masters are looked up, in DIR/masters; default: C4_RUN_DIR, else /dev/shm/c4");
  DeclareSecurity(&security, options);
}

struct PathClient::Parts {
  std::string address;
  service::MasterAddress master;
  service::Credentials credentials;
  std::unique_ptr<v1::C4p::Stub> stub;

  template <typename Reply, typename Request, typename Call>
  absl::StatusOr<Reply> Ask(Call call, const Request& request) const {
    grpc::ClientContext context;
    credentials.AddToken(&context, master);
    context.set_deadline(std::chrono::system_clock::now() + kCallLimit);
    Reply reply;
    const grpc::Status status = (stub.get()->*call)(&context, request, &reply);
    if (status.ok()) {
      service::MakePrintable(&reply);
      return reply;
    }
    if (status.error_code() == grpc::StatusCode::NOT_FOUND ||
        status.error_code() == grpc::StatusCode::INVALID_ARGUMENT) {
      return service::FromGrpcStatus(status);
    }
    return service::Annotate(credentials.Explain(service::FromGrpcStatus(status)),
                             absl::StrCat("the path master at ", address, " did not answer"));
  }
};

PathClient::PathClient(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}

PathClient::~PathClient() = default;

absl::StatusOr<std::unique_ptr<PathClient>> PathClient::Open(const PathMasterOptions& options) {
  auto parts = std::make_unique<Parts>();
  parts->address = options.address;
  parts->master = service::MasterAddress(options.address);
  if (parts->address.empty()) {
    const std::string base = options.base_dir.empty() ? service::DefaultRunDir() : options.base_dir;
    const service::MasterDirectory directory(base + "/masters");
    const absl::StatusOr<service::MasterEntry> entry = directory.LookUp(service::kPathMasterName);
    if (absl::IsNotFound(entry.status())) {
      return absl::NotFoundError(
          absl::StrCat("no path master is published in ", directory.path(),
                       " (start c4p_master, or `c4 run --c4p`, name its directory with "
                       "--run-dir, or give --path-master HOST:PORT)"));
    }
    if (!entry.ok()) return entry.status();
    parts->address = entry->address;
    parts->master = service::AddressOf(*entry);
  }
  service::SecurityOptions security = options.security;
  if (security.tls.cert.empty()) security.tls = OwnersCertificates(parts->master);
  absl::StatusOr<service::Credentials> credentials =
      service::Credentials::Load(security, service::OwnOperator());
  if (!credentials.ok()) return credentials.status();
  parts->credentials = *credentials;
  parts->stub =
      v1::C4p::NewStub(service::MakeChannel(parts->address, *credentials, service::Role::kPathMaster));
  return std::unique_ptr<PathClient>(new PathClient(std::move(parts)));
}

absl::StatusOr<v1::ListPathsReply> PathClient::ListPaths(const v1::ListPathsRequest& request) const {
  grpc::Status (v1::C4p::Stub::*const call)(grpc::ClientContext*, const v1::ListPathsRequest&,
                                            v1::ListPathsReply*) = &v1::C4p::Stub::ListPaths;
  return parts_->Ask<v1::ListPathsReply>(call, request);
}

absl::StatusOr<v1::GetTopologyReply> PathClient::GetTopology() const {
  grpc::Status (v1::C4p::Stub::*const call)(grpc::ClientContext*, const v1::GetTopologyRequest&,
                                            v1::GetTopologyReply*) = &v1::C4p::Stub::GetTopology;
  return parts_->Ask<v1::GetTopologyReply>(call, v1::GetTopologyRequest());
}

absl::StatusOr<v1::ExplainReply> PathClient::Explain(const std::string& connection) const {
  v1::ExplainRequest request;
  request.set_connection(connection);
  grpc::Status (v1::C4p::Stub::*const call)(grpc::ClientContext*, const v1::ExplainRequest&,
                                            v1::ExplainReply*) = &v1::C4p::Stub::Explain;
  return parts_->Ask<v1::ExplainReply>(call, request);
}

absl::StatusOr<v1::DrainPathsReply> PathClient::DrainPaths(const v1::DrainPathsRequest& request) const {
  grpc::Status (v1::C4p::Stub::*const call)(grpc::ClientContext*, const v1::DrainPathsRequest&,
                                            v1::DrainPathsReply*) = &v1::C4p::Stub::DrainPaths;
  return parts_->Ask<v1::DrainPathsReply>(call, request);
}

absl::StatusOr<v1::ListPathHistoryReply> PathClient::ListPathHistory(
    const v1::ListPathHistoryRequest& request) const {
  grpc::Status (v1::C4p::Stub::*const call)(grpc::ClientContext*, const v1::ListPathHistoryRequest&,
                                            v1::ListPathHistoryReply*) = &v1::C4p::Stub::ListPathHistory;
  return parts_->Ask<v1::ListPathHistoryReply>(call, request);
}

}  // namespace c4::cli
