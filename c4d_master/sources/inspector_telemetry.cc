#include "c4d_master/sources/inspector_telemetry.h"

#include <algorithm>

#include "service/text.h"

namespace c4::c4d {
namespace {

constexpr uint32_t kVendorEngine = 2;
constexpr int64_t kReplacedNs = 10 * kSecondNs;

v1::Function FunctionOf(const std::string& name) {
  static const std::map<std::string, v1::Function> functions = {
      {"AllReduce", v1::FUNCTION_ALL_REDUCE},
      {"Reduce", v1::FUNCTION_REDUCE},
      {"Broadcast", v1::FUNCTION_BROADCAST},
      {"AllGather", v1::FUNCTION_ALL_GATHER},
      {"ReduceScatter", v1::FUNCTION_REDUCE_SCATTER},
      {"AlltoAll", v1::FUNCTION_ALL_TO_ALL},
      {"Gather", v1::FUNCTION_GATHER},
      {"Scatter", v1::FUNCTION_SCATTER},
      {"Send", v1::FUNCTION_SEND},
      {"Recv", v1::FUNCTION_RECV}};
  const auto found = functions.find(name);
  return found == functions.end() ? v1::FUNCTION_UNSPECIFIED : found->second;
}

}  // namespace

InspectorTelemetry::InspectorTelemetry(std::string job, uint64_t epoch)
    : job_(std::move(job)), epoch_(epoch) {}

void InspectorTelemetry::Observe(const std::vector<InspectorRecord>& records, Now now) {
  for (const InspectorRecord& record : records) {
    ProcessLog& log = logs_[{record.host, record.pid}];
    if (log.first_ns == kNever) log.first_ns = now.monotonic_ns;
    log.seen_ns = now.monotonic_ns;
    log.offset_ns = std::min(log.offset_ns, now.unix_ns - record.dumped_unix_ns);
    Seat& seat = log.seats[record.communicator_id];
    const bool is_new = seat.seen_ns == kNever || seat.rank != record.rank;
    if (is_new) {
      seat = {.rank = record.rank, .rank_count = record.rank_count};
      by_seat_[{record.communicator_id, record.rank}] = {record.host, record.pid};
    }
    seat.seen_ns = now.monotonic_ns;
    // A number that falls, or is the same again, is of a log that begins anew.
    const auto before = seat.sequences.find(record.function);
    const uint64_t operations = before == seat.sequences.end() || record.sequence <= before->second
                                    ? 1
                                    : record.sequence - before->second;
    seat.sequences[record.function] = record.sequence;
    log.under_way.emplace(record.ended_unix_ns,
                          Finished{record.began_unix_ns, record.ended_unix_ns, operations, record.bytes,
                                   record.communicator_id, record.function});
  }
}

// Takes in what has ended before the moment of which is told.
void InspectorTelemetry::Advance(Now now, ProcessLog* log) {
  const int64_t until_ns = now.unix_ns - log->offset_ns - kInspectorLagNs;
  while (!log->under_way.empty() && log->under_way.begin()->first <= until_ns) {
    const Finished& finished = log->under_way.begin()->second;
    const auto lasted_ns = static_cast<uint64_t>(finished.ended_ns - finished.began_ns);
    log->covered.Add(finished.began_ns, finished.ended_ns);
    log->skipped_ns += (finished.operations - 1) * lasted_ns;
    log->operations += finished.operations;
    Seat& seat = log->seats[finished.communicator_id];
    seat.finished += finished.operations;
    seat.finished_ns = now.monotonic_ns;
    v1::OperationSummary& summary = log->summaries[{finished.communicator_id, finished.function}];
    summary.set_communicator_id(finished.communicator_id);
    summary.set_function(FunctionOf(finished.function));
    // Those that were not seen have taken what this one has, so they change no mean.
    summary.set_operations(summary.operations() + 1);
    summary.set_duration_sum_ns(summary.duration_sum_ns() + lasted_ns);
    summary.set_duration_max_ns(std::max(summary.duration_max_ns(), lasted_ns));
    log->under_way.erase(log->under_way.begin());
  }
}

void InspectorTelemetry::Fill(Now now, ProcessLog* log, v1::ProcessReport* report) {
  Advance(now, log);
  report->set_in_operation_ns(log->covered.covered_ns() + log->skipped_ns);
  report->set_operations_finished(log->operations);
  if (log->operations > 0) report->set_first_operation_age_ns(now.monotonic_ns - log->first_ns);
  for (auto& [key, summary] : log->summaries) *report->add_operations() = std::move(summary);
  log->summaries.clear();
  for (v1::CommunicatorState& state : *report->mutable_communicators()) {
    const auto seat = log->seats.find(state.communicator_id());
    if (seat == log->seats.end() || seat->second.finished == 0 || state.has_finished()) continue;
    state.mutable_finished()->set_count(seat->second.finished);
    state.mutable_finished()->set_age_ns(now.monotonic_ns - seat->second.finished_ns);
  }
}

// Processes that write no more, and those that have been silent since another one began on their host: the
// job was started again.
void InspectorTelemetry::Forget(Now now) {
  std::map<std::string, int64_t> newest_ns;  // that a process of the host was first heard of
  for (const auto& [id, log] : logs_) {
    int64_t& newest = newest_ns.try_emplace(id.first, log.first_ns).first->second;
    newest = std::max(newest, log.first_ns);
  }
  std::erase_if(logs_, [&](const auto& entry) {
    const ProcessLog& log = entry.second;
    const int64_t silent_ns = now.monotonic_ns - log.seen_ns;
    return silent_ns > kInspectorForgottenNs ||
           (silent_ns > kReplacedNs && newest_ns[entry.first.first] > log.seen_ns);
  });
  std::erase_if(by_seat_, [&](const auto& entry) { return !logs_.contains(entry.second); });
}

std::vector<v1::TelemetryBatch> InspectorTelemetry::Take(Now now) {
  Forget(now);
  std::map<std::string, v1::TelemetryBatch> hosts;
  for (const std::string& host : hosts_) hosts.try_emplace(host);
  hosts_.clear();
  for (auto& [id, log] : logs_) {
    if (hosts_.empty() || hosts_.back() != id.first) hosts_.push_back(id.first);
    v1::ProcessReport* const report = hosts[id.first].add_processes();
    report->mutable_process()->set_host(id.first);
    report->mutable_process()->set_boot_id("inspector");
    report->mutable_process()->set_pid(id.second);
    report->set_job(job_);
    report->set_rank_label(-1);
    report->set_world_label(-1);
    report->set_program("NCCL");
    for (const auto& [communicator_id, seat] : log.seats) {
      v1::CommunicatorState* const state = report->add_communicators();
      state->set_communicator_id(communicator_id);
      state->set_rank(seat.rank);
      state->set_rank_count(seat.rank_count);
      state->set_engine(kVendorEngine);
      state->set_phase(v1::PHASE_READY);
      state->set_phase_age_ns(now.monotonic_ns - log.first_ns);
    }
    Fill(now, &log, report);
  }
  std::vector<v1::TelemetryBatch> batches;
  ++sequence_;
  for (auto& [host, batch] : hosts) {
    batch.set_host(host);
    batch.set_agent_epoch(epoch_);
    batch.set_sequence(sequence_);
    batch.set_monotonic_ns(now.monotonic_ns);
    batch.set_unix_ns(now.unix_ns);
    batch.set_agent_version("inspector");
    batches.push_back(std::move(batch));
  }
  return batches;
}

void InspectorTelemetry::AddTo(Now now, v1::TelemetryBatch* batch) {
  Forget(now);
  for (v1::ProcessReport& report : *batch->mutable_processes()) {
    for (const v1::CommunicatorState& state : report.communicators()) {
      const auto sits = by_seat_.find({state.communicator_id(), state.rank()});
      if (sits == by_seat_.end()) continue;
      Fill(now, &logs_.at(sits->second), &report);
      break;
    }
  }
}

}  // namespace c4::c4d
