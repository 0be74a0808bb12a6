// What the master shows of the job: verdicts, agents and ranks, the matrix.
#include <algorithm>
#include <tuple>
#include <utility>

#include "c4d_master/c4d_handler.h"
#include "service/text.h"

namespace c4::c4d {
namespace {

using service::Concat;

constexpr size_t kMostMatrixCells = 200'000;  // some 30 MB

v1::RankStatus StatusOf(const Host& host, const Process& process, int64_t now_ns) {
  v1::RankStatus status;
  status.set_rank(process.rank);
  status.mutable_process()->set_host(host.name);
  status.mutable_process()->set_boot_id(process.key.boot_id);
  status.mutable_process()->set_pid(process.key.pid);
  status.mutable_process()->set_start_time_ticks(process.key.start_time_ticks);
  v1::ProcessHealth* health = status.mutable_health();
  health->set_state(static_cast<v1::ProcessState>(process.health.state));
  health->set_state_age_ns(std::max<int64_t>(0, now_ns - process.health.state_since_at_ns));
  health->set_wait_channel(process.health.wait_channel);
  health->set_cpu_ns(process.health.cpu_ns);
  health->set_io_bytes(process.health.io_bytes);
  health->set_progress_age_ns(std::max<int64_t>(0, now_ns - process.health.last_progress_at_ns));
  status.set_incarnation(process.incarnation);
  const Membership* widest = nullptr;
  for (const Membership& membership : process.communicators) {
    if (widest == nullptr || membership.rank_count > widest->rank_count) widest = &membership;
  }
  if (widest != nullptr) {
    status.set_communicator_id(widest->communicator_id);
    status.set_called(widest->called.count);
    status.set_started(widest->started.count);
    status.set_finished(widest->finished.count);
  }
  return status;
}

}  // namespace

v1::GetMatrixReply C4dHandler::GetMatrix(Now now) {
  v1::GetMatrixReply reply;
  reply.set_job(options_.job);
  reply.set_master_epoch(options_.master_epoch);
  reply.set_unix_ns(now.unix_ns);
  const JobSnapshot snapshot = Assemble(view_.hosts(), now.monotonic_ns, policy_.agent_stale_ns);
  std::vector<MatrixCell> cells = LatencyMatrix(snapshot, windows_, policy_.detectors.slow);
  if (cells.size() > kMostMatrixCells) {
    LogOnce(Concat("the latency matrix has more than ", kMostMatrixCells,
                   " cells; whoever asks for it gets those that are slowest for what is usual"));
    std::nth_element(cells.begin(), cells.begin() + kMostMatrixCells, cells.end(),
                     [](const MatrixCell& a, const MatrixCell& b) {
                       return std::tie(a.slow, a.connection.ratio) > std::tie(b.slow, b.connection.ratio);
                     });
    cells.resize(kMostMatrixCells);
  }
  for (const MatrixCell& cell : cells) {
    v1::MatrixCell* item = reply.add_cells();
    item->set_from_rank(cell.connection.from_rank);
    item->set_to_rank(cell.connection.to_rank);
    item->set_from_host(cell.connection.from_host);
    item->set_to_host(cell.connection.to_host);
    item->set_from_nic(cell.from_nic);
    item->set_to_nic(cell.to_nic);
    item->set_communicator_id(cell.connection.communicator_id);
    item->set_channel(cell.connection.channel);
    item->set_index(cell.connection.index);
    item->set_median_ns_per_kib(cell.ns_per_kib);
    item->set_low_ns_per_kib(cell.low_ns_per_kib);
    item->set_usual_ns_per_kib(cell.usual_ns_per_kib);
    item->set_ratio(cell.connection.ratio);
    item->set_chunks(static_cast<uint64_t>(cell.chunks));
    item->set_slow(cell.slow);
  }
  for (const ProcessRef& ref : snapshot.processes) {
    if (ref.superseded || ref.process->ended || ref.process->rank < 0) continue;
    const OwnTime own = windows_.Own(ref.process->key, 0);
    if (own.slices == 0) continue;
    v1::RankTime* item = reply.add_ranks();
    item->set_rank(ref.process->rank);
    item->set_host(ref.host->name);
    item->set_own_ns(own.recent_ns);
    item->set_usual_own_ns(own.usual_ns);
    item->set_cycle_ns(own.cycle_ns);
    item->set_first_wait_ns(own.first_wait_ns);
  }
  return reply;
}

v1::ListVerdictsReply C4dHandler::ListVerdicts(bool include_cleared) const {
  v1::ListVerdictsReply reply;
  reply.set_job(options_.job);
  reply.set_master_epoch(options_.master_epoch);
  uint32_t agents = 0;
  uint64_t unwatched = 0;
  for (const auto& [name, host] : view_.hosts()) {
    if (host.segments_refused == 0 || !host.processes.empty()) ++agents;
    if (host.segments_refused == 0) continue;
    if (unwatched == 0) reply.set_unwatched_why(Concat("on ", name, ": ", host.refusal));
    unwatched += host.segments_refused;
  }
  reply.set_agents(agents);
  reply.set_processes_unwatched(unwatched);
  for (v1::Verdict& verdict : verdicts_.List(include_cleared)) *reply.add_verdicts() = std::move(verdict);
  return reply;
}

v1::GetStatusReply C4dHandler::GetStatus(Now now) const {
  v1::GetStatusReply reply;
  reply.set_job(options_.job);
  reply.set_master_epoch(options_.master_epoch);
  reply.set_policy_version(policy_version_);
  reply.set_policy_fault(policy_fault_);
  for (const auto& [name, host] : view_.hosts()) {
    v1::AgentStatus* agent = reply.add_agents();
    agent->set_host(name);
    agent->set_last_batch_age_ns(std::max<int64_t>(0, now.monotonic_ns - host.as_of_ns));
    agent->set_batches(host.batches);
    agent->set_batches_dropped(host.batches_dropped);
    agent->set_version(host.agent_version);
    agent->set_segments_refused(host.segments_refused);
    agent->set_refusal(host.refusal);
    if (host.clock_error_ns.has_value()) agent->set_clock_error_ns(*host.clock_error_ns);
    for (const Process& process : host.processes)
      *reply.add_ranks() = StatusOf(host, process, now.monotonic_ns);
  }
  std::stable_sort(reply.mutable_ranks()->begin(), reply.mutable_ranks()->end(),
                   [](const v1::RankStatus& a, const v1::RankStatus& b) { return a.rank() < b.rank(); });
  return reply;
}

}  // namespace c4::c4d
