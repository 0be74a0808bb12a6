// c4p_master: puts the parts together.

#include <array>
#include <memory>

#include "c4p_master/grpc_service.h"
#include "c4p_master/options.h"
#include "c4p_master/state/records.h"
#include "c4p_master/state/sqlite_state.h"
#include "c4p_master/topology_file.h"
#include "grpcpp/impl/service_type.h"
#include "service/directory.h"
#include "service/http_server.h"
#include "service/log.h"
#include "service/serve_master.h"
#include "service/signals.h"
#include "service/status.h"
#include "service/text.h"
#include "service/version.h"

namespace c4::c4p {
namespace {

constexpr absl::Duration kTickInterval = absl::Milliseconds(20);
constexpr char kNoStore[] = "none";

absl::Status Run(const MasterOptions& options, const std::vector<service::Setting>& settings) {
  C4_RETURN_IF_NOT_OK(service::InitLog(options.common.log, "c4p_master"));
  const absl::StatusOr<service::Credentials> credentials =
      service::Credentials::Load(options.common.security, {.role = service::Role::kPathMaster});
  if (!credentials.ok()) return credentials.status();
  const service::Clock& clock = service::SystemClock();
  service::LogInfo("c4p_master ", service::Version(), ", ", service::DescribeConfig(settings));

  std::optional<Topology> file;
  if (!options.topology.empty()) {
    absl::StatusOr<Topology> read = ReadTopologyFile(options.topology);
    if (!read.ok()) return read.status();
    file = *std::move(read);
  }
  C4_RETURN_IF_NOT_OK(service::PrepareMasters(options.directory));
  std::unique_ptr<StateStore> store;
  StateRecords records;
  if (options.store != kNoStore) {
    absl::StatusOr<std::unique_ptr<SqliteState>> opened = SqliteState::Open(options.store);
    if (!opened.ok()) return opened.status();
    store = *std::move(opened);
    absl::StatusOr<StateRecords> loaded = store->Load();
    if (!loaded.ok()) return loaded.status();
    records = *std::move(loaded);
  }
  // What cannot be read is never guessed at: whoever runs the cluster decides.
  const auto damaged = [&](const absl::Status& status) {
    return absl::IsDataLoss(status) ? absl::DataLossError(service::Concat("store ", options.store,
                                                                          " is damaged: ", status.message(),
                                                                          ". ", HowToGoOn(options.store)))
                                    : status;
  };
  const absl::StatusOr<uint64_t> next = NextEpoch(records, static_cast<uint64_t>(clock.UnixNs()));
  if (!next.ok()) return damaged(next.status());
  const uint64_t epoch = *next;
  service::Metrics metrics;
  C4pHandler handler(options.ForHandler(epoch), std::move(file), &metrics, store.get());
  C4_RETURN_IF_NOT_OK(damaged(handler.Restore(records, clock.MonotonicNs())));
  records.clear();
  service::StateThread state_thread("c4p-state", kTickInterval, [&] { handler.Tick(clock.MonotonicNs()); });

  const service::Gate gate(*credentials);
  const std::unique_ptr<grpc::Service> grpc_service = MakeGrpcService(&handler, &state_thread, gate, clock);
  const std::array<grpc::Service*, 1> services = {grpc_service.get()};
  service::HttpServer http_server([&] { return state_thread.Health(); }, [&] { return metrics.Serialise(); });
  C4_RETURN_IF_NOT_OK(service::ServeMaster({.job = service::kPathMasterName,
                                            .epoch = epoch,
                                            .listen = options.listen,
                                            .directory = options.directory,
                                            .common = options.common,
                                            .credentials = *credentials,
                                            .gate = gate,
                                            .services = services,
                                            .http = &http_server}));
  state_thread.Stop();
  return absl::OkStatus();
}

}  // namespace
}  // namespace c4::c4p

int main(int argc, char** argv) {
  c4::service::BlockSignals();
  c4::c4p::MasterOptions options;
  if (const std::optional<int> exit_status = c4::c4p::LoadOptions(argc, argv, &options)) return *exit_status;
  return c4::service::ExitStatus(c4::c4p::Run(options, c4::c4p::MasterSettings(&options)));
}
