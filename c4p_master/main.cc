// c4p_master: puts the parts together.

#include <array>
#include <future>
#include <memory>
#include <utility>

#include "c4p_master/grpc_service.h"
#include "c4p_master/options.h"
#include "c4p_master/page_source.h"
#include "c4p_master/state/open_state.h"
#include "c4p_master/topology_file.h"
#include "grpcpp/impl/service_type.h"
#include "page/page_api.h"
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
  absl::StatusOr<OpenedState> state = OpenState(options.ForState(static_cast<uint64_t>(clock.UnixNs())), [] {
    return service::WaitForSignal(absl::Milliseconds(1)).has_value();
  });
  if (absl::IsCancelled(state.status())) return absl::OkStatus();
  if (!state.ok()) return state.status();
  const uint64_t epoch = state->epoch;
  service::Metrics metrics;
  C4pHandler handler(options.ForHandler(epoch), std::move(file), &metrics, state->store.get());
  C4_RETURN_IF_NOT_OK(
      AsDamaged(handler.Restore(std::exchange(state->records, {}), clock.MonotonicNs()), options.store));
  std::promise<service::StateThread*> begun;
  if (state->etcd != nullptr) {
    state->etcd->SetPost([thread = begun.get_future().share()](std::function<void()> task) {
      return thread.get()->Post(std::move(task));
    });
  }
  absl::Status lost;  // the state thread's, as long as it runs
  service::StateThread state_thread("c4p-state", kTickInterval, [&] {
    handler.Tick(clock.MonotonicNs());
    if (!lost.ok()) return;
    lost = state->etcd == nullptr ? absl::OkStatus() : state->etcd->leading();
    lost.Update(handler.keeping());
    if (!lost.ok()) service::RequestEnd();
  });
  begun.set_value(&state_thread);

  const service::Gate gate(*credentials);
  const std::unique_ptr<grpc::Service> grpc_service = MakeGrpcService(&handler, &state_thread, gate, clock);
  const std::array<grpc::Service*, 1> services = {grpc_service.get()};
  NetworkPageSource page_source(&handler, &state_thread, &clock);
  page::PageApi page_api(&page_source, &clock, &page::PageFiles());
  service::HttpServer http_server([&] { return state_thread.Health(); }, [&] { return metrics.Serialise(); });
  page_api.AddRoutes(&http_server);
  page_api.Start();
  const absl::Status served = service::ServeMaster({.job = service::kPathMasterName,
                                                    .epoch = epoch,
                                                    .listen = options.listen,
                                                    .directory = options.directory,
                                                    .common = options.common,
                                                    .credentials = *credentials,
                                                    .gate = gate,
                                                    .services = services,
                                                    .http = &http_server});
  page_api.Stop();
  state_thread.Stop();
  state->store.reset();  // its threads give tasks to the state thread
  if (lost.ok()) return served;
  return absl::UnavailableError(
      service::Concat(lost.message(), "; this master leads no more, and is to be started again to stand by"));
}

}  // namespace
}  // namespace c4::c4p

int main(int argc, char** argv) {
  c4::service::BlockSignals();
  c4::c4p::MasterOptions options;
  if (const std::optional<int> exit_status = c4::c4p::LoadOptions(argc, argv, &options)) return *exit_status;
  return c4::service::ExitStatus(c4::c4p::Run(options, c4::c4p::MasterSettings(&options)));
}
