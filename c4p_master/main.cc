// c4p_master: puts the parts together, publishes itself, waits for the signal to end.

#include <array>
#include <filesystem>
#include <memory>
#include <unistd.h>

#include "c4p_master/grpc_service.h"
#include "c4p_master/options.h"
#include "c4p_master/topology_file.h"
#include "grpcpp/impl/service_type.h"
#include "service/address.h"
#include "service/directory.h"
#include "service/grpc_server.h"
#include "service/http_server.h"
#include "service/log.h"
#include "service/publish.h"
#include "service/run_dir.h"
#include "service/signals.h"
#include "service/version.h"

namespace c4::c4p {
namespace {

constexpr absl::Duration kTickInterval = absl::Milliseconds(20);
constexpr absl::Duration kShutdownTime = absl::Seconds(1);

int Fail(const absl::Status& status) {
  service::LogError(status.message());
  service::FlushLog();
  return 1;
}

int Run(const MasterOptions& options, const std::vector<service::Setting>& settings) {
  if (const absl::Status status = service::InitLog(options.common.log, "c4p_master"); !status.ok()) {
    return Fail(status);
  }
  const absl::StatusOr<service::Credentials> credentials =
      service::Credentials::Load(options.common.security, {.role = service::Role::kPathMaster});
  if (!credentials.ok()) return Fail(credentials.status());
  const service::Clock& clock = service::SystemClock();
  const auto epoch = static_cast<uint64_t>(clock.UnixNs());
  service::LogInfo("c4p_master ", service::Version(), ", ", service::DescribeConfig(settings));

  std::optional<Topology> file;
  if (!options.topology.empty()) {
    absl::StatusOr<Topology> read = ReadTopologyFile(options.topology);
    if (!read.ok()) return Fail(read.status());
    file = *std::move(read);
  }
  const std::string base = std::filesystem::path(options.directory).parent_path().string();
  if (!base.empty()) {
    if (const absl::Status status = service::EnsureSharedDirectory(base); !status.ok()) return Fail(status);
    if (const std::string warning = service::ForeignOwner(base); !warning.empty())
      service::LogWarning(warning);
  }
  service::Metrics metrics;
  C4pHandler handler(options.ForHandler(epoch), std::move(file), &metrics);
  service::StateThread state_thread("c4p-state", kTickInterval, [&] { handler.Tick(clock.MonotonicNs()); });

  const service::Gate gate(*credentials);
  const std::unique_ptr<grpc::Service> grpc_service = MakeGrpcService(&handler, &state_thread, gate, clock);
  const std::array<grpc::Service*, 1> services = {grpc_service.get()};
  const absl::StatusOr<std::unique_ptr<service::GrpcServer>> grpc_server =
      service::GrpcServer::Start(options.listen, gate, services);
  if (!grpc_server.ok()) return Fail(grpc_server.status());
  service::HttpServer http_server([&] { return state_thread.Health(); }, [&] { return metrics.Serialise(); });
  if (const absl::Status status =
          http_server.Start(options.common.http_address, gate, options.common.http_names);
      !status.ok()) {
    return Fail(status);
  }

  const service::MasterDirectory directory(options.directory);
  const service::MasterEntry entry{.job = service::kPathMasterName,
                                   .address = service::ReachableAddress((*grpc_server)->address()),
                                   .http_address = service::ReachableAddress(http_server.address()),
                                   .epoch = epoch,
                                   .pid = getpid(),
                                   .host = service::HostName(),
                                   .key_file = credentials->key_file(),
                                   .key_id = credentials->key_id()};
  if (const absl::Status status = directory.Publish(entry); !status.ok()) return Fail(status);
  service::LogInfo("serving paths: gRPC on ", entry.address, ", HTTP on ", entry.http_address,
                   ", published in ", options.directory);

  service::ServePublished(directory, entry);

  if (const absl::Status status = directory.Remove(entry.job, epoch); !status.ok()) {
    service::LogWarning(status.message());
  }
  http_server.Stop();
  (*grpc_server)->Shutdown(kShutdownTime);
  state_thread.Stop();
  service::LogInfo("ended in order");
  service::FlushLog();
  return 0;
}

}  // namespace
}  // namespace c4::c4p

int main(int argc, char** argv) {
  c4::service::BlockSignals();
  c4::c4p::MasterOptions options;
  if (const std::optional<int> exit_status = c4::c4p::LoadOptions(argc, argv, &options)) return *exit_status;
  return c4::c4p::Run(options, c4::c4p::MasterSettings(&options));
}
