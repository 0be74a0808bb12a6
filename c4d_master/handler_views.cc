// What the master shows of the job: verdicts, agents and ranks, the matrix.
#include <algorithm>
#include <utility>

#include "c4d_master/c4d_handler.h"
#include "c4d_master/matrix_reply.h"
#include "service/text.h"

namespace c4::c4d {
namespace {

using service::Concat;

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

v1::GetMatrixReply C4dHandler::GetMatrix(Now now, const v1::GetMatrixRequest& request) {
  v1::GetMatrixReply reply;
  reply.set_job(options_.job);
  reply.set_master_epoch(options_.master_epoch);
  reply.set_unix_ns(now.unix_ns);
  FillMatrix(view_.Snapshot(now.monotonic_ns), windows_, policy_.detectors.slow, request, &reply);
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
  reply.set_report_interval_ns(hearing_.interval_ns());
  for (const auto& [limit, sentence] : limits_.reached()) {
    v1::ReachedLimit* const reached = reply.add_limits();
    reached->set_name(limit);
    reached->set_sentence(sentence);
  }
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
