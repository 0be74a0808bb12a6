#include "c4d_master/sources/ras_telemetry.h"

#include <algorithm>

#include "service/text.h"

namespace c4::c4d {
namespace {

constexpr int32_t kInProgress = 7;   // ncclInProgress
constexpr int32_t kRemoteError = 6;  // ncclRemoteError
constexpr uint32_t kVendorEngine = 2;
// A process that does not answer may be slow. It is told of with its last counts after the first, as dead
// where a peer has lost somebody, and after the second no more unless NCCL considers it dead, which it does
// after 60 s.
constexpr int64_t kSlowToAnswerNs = 5 * kSecondNs;
constexpr int64_t kSilentNs = 75 * kSecondNs;
constexpr int64_t kForgottenNs = 300 * kSecondNs;

v1::Phase PhaseOf(const RasRank& rank) {
  if (rank.aborted) return v1::PHASE_ABORTED;
  if (rank.destroyed) return v1::PHASE_DESTROYED;
  if (rank.finalized) return v1::PHASE_FINALIZED;
  const auto failed = [](int32_t result) { return result != 0 && result != kInProgress; };
  if (failed(rank.init_state) || failed(rank.async_error)) return v1::PHASE_FAILED;
  return rank.init_state == kInProgress ? v1::PHASE_INIT : v1::PHASE_READY;
}

}  // namespace

RasTelemetry::RasTelemetry(std::string job, uint64_t epoch) : job_(std::move(job)), epoch_(epoch) {}

std::vector<v1::TelemetryBatch> RasTelemetry::Take(const RasStatus& status, Now now) {
  std::map<std::string, std::map<uint32_t, v1::ProcessReport>> hosts;  // by pid
  const auto report_of = [&](const std::string& host, uint32_t pid) {
    const auto [at, is_new] = hosts[host].try_emplace(pid);
    v1::ProcessReport* report = &at->second;
    if (is_new) {
      report->mutable_process()->set_host(host);
      report->mutable_process()->set_boot_id("ras");
      report->mutable_process()->set_pid(pid);
      report->set_job(job_);
      report->set_rank_label(-1);
      report->set_world_label(-1);
      report->set_program(service::Concat("NCCL ", status.nccl_version));
    }
    return report;
  };
  const auto state_of = [](uint64_t id, uint32_t rank, uint32_t size, v1::ProcessReport* report) {
    v1::CommunicatorState* state = report->add_communicators();
    state->set_communicator_id(id);
    state->set_rank(rank);
    state->set_rank_count(size);
    state->set_engine(kVendorEngine);  // and nothing seen of its kernels
    return state;
  };
  const auto fill = [&](const Seen& seen, v1::CommunicatorState* state) {
    state->set_phase(seen.phase);
    state->set_phase_age_ns(now.monotonic_ns - seen.phase_since_ns);
    if (seen.collectives == 0) return;
    state->mutable_called()->set_count(seen.collectives);
    state->mutable_called()->set_age_ns(now.monotonic_ns - seen.since_ns);
  };
  for (const RasCommunicator& communicator : status.communicators) {
    uint64_t least = UINT64_MAX;  // that one of those that answer has launched
    bool cut_off = false;         // one of them has lost a peer
    for (const RasRank& rank : communicator.ranks) {
      if (rank.host.empty() || rank.pid == 0) continue;
      least = std::min(least, rank.collectives);
      cut_off = cut_off || rank.async_error == kRemoteError;
      Seen& seen = seen_[{communicator.id, rank.rank}];
      const v1::Phase phase = PhaseOf(rank);
      if (seen.seen_ns == kNever || seen.collectives != rank.collectives) seen.since_ns = now.monotonic_ns;
      if (seen.phase != phase) seen.phase_since_ns = now.monotonic_ns;
      seen.collectives = rank.collectives;
      seen.phase = phase;
      seen.missing_since_ns = kNever;
      seen.dead_since_ns = kNever;
      seen.seen_ns = now.monotonic_ns;
      v1::CommunicatorState* state =
          state_of(communicator.id, rank.rank, communicator.size, report_of(rank.host, rank.pid));
      fill(seen, state);
      if (phase != v1::PHASE_FAILED && phase != v1::PHASE_ABORTED) continue;
      v1::GaveUp* gave_up = state->mutable_gave_up();
      gave_up->set_age_ns(now.monotonic_ns - seen.phase_since_ns);
      if (phase == v1::PHASE_FAILED) {
        // NCCL meets such an error in an operation that is under way.
        if (seen.collectives > 0) {
          *state->mutable_started() = state->called();
          state->mutable_finished()->set_count(seen.collectives - 1);
          state->mutable_finished()->set_age_ns(now.monotonic_ns - seen.since_ns);
        }
        gave_up->set_result(rank.async_error != 0 && rank.async_error != kInProgress ? rank.async_error
                                                                                     : rank.init_state);
      }
      gave_up->set_blamed_rank(-1);
    }
    for (const RasMissingRank& rank : communicator.missing) {
      if (rank.host.empty() || rank.pid == 0) continue;
      Seen& seen = seen_[{communicator.id, rank.rank}];
      const bool unknown = seen.seen_ns == kNever;  // it was so before this master came
      if (unknown) {
        seen.since_ns = seen.phase_since_ns = now.monotonic_ns;
        seen.phase = v1::PHASE_READY;
      }
      seen.seen_ns = now.monotonic_ns;
      if (seen.missing_since_ns == kNever) seen.missing_since_ns = now.monotonic_ns;
      const int64_t missing_ns = now.monotonic_ns - seen.missing_since_ns;
      const bool silent = !unknown && missing_ns >= kSlowToAnswerNs && missing_ns <= kSilentNs;
      const bool dead = rank.considered_dead || (silent && cut_off);
      if (!dead && (!silent || seen.collectives == 0)) continue;
      v1::ProcessReport* report = report_of(rank.host, rank.pid);
      if (dead) {
        // It launched as many as those that wait for it, as far as anybody knows: more may have come after
        // its last answer.
        if (seen.dead_since_ns == kNever) {
          seen.dead_since_ns = now.monotonic_ns;
          if (least != UINT64_MAX) seen.collectives = std::max(seen.collectives, least);
        }
        report->mutable_health()->set_state(v1::PROCESS_STATE_GONE);
        report->mutable_health()->set_state_age_ns(now.monotonic_ns - seen.dead_since_ns);
        report->mutable_health()->set_progress_age_ns(now.monotonic_ns - seen.dead_since_ns);
      }
      fill(seen, state_of(communicator.id, rank.rank, communicator.size, report));
    }
  }
  // What stands in this answer no more may come again: a process that did not answer once.
  std::erase_if(seen_,
                [&](const auto& entry) { return now.monotonic_ns - entry.second.seen_ns > kForgottenNs; });

  for (const std::string& host : hosts_) hosts.try_emplace(host);
  hosts_.clear();
  std::vector<v1::TelemetryBatch> batches;
  ++sequence_;
  for (auto& [host, processes] : hosts) {
    v1::TelemetryBatch& batch = batches.emplace_back();
    batch.set_host(host);
    batch.set_agent_epoch(epoch_);
    batch.set_sequence(sequence_);
    batch.set_monotonic_ns(now.monotonic_ns);
    batch.set_unix_ns(now.unix_ns);
    batch.set_agent_version("ras");
    for (auto& [pid, report] : processes) *batch.add_processes() = std::move(report);
    if (!processes.empty()) hosts_.push_back(host);
  }
  return batches;
}

}  // namespace c4::c4d
