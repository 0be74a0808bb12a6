#include "tests/support/training_sim.h"

#include <algorithm>
#include <cmath>
#include <deque>

#include "wire/segment.h"

namespace c4::simulation {
namespace {

constexpr int64_t kStepNs = 250'000'000;
constexpr double kIterationSeconds = 0.4;
constexpr double kOwnSeconds = 0.12;  // of an iteration
constexpr double kOperationsPerIteration = 6;
constexpr uint64_t kChunkBytes = 256 << 10;
constexpr double kSlowFactor = 12;
constexpr double kPauseNsPerKib = 30000;  // a little more than kSlowFactor makes of a usual chunk

}  // namespace

TrainingSim::TrainingSim(const TrainingShape& shape, uint64_t seed)
    : shape_(shape), random_(seed), ranks_(shape.ranks()) {
  uint64_t id = 0x1000;
  const auto add = [&](std::vector<uint32_t> ranks, bool point_to_point) {
    if (ranks.size() < 2) return;
    Group group{.id = ++id, .point_to_point = point_to_point, .ranks = std::move(ranks), .queue_pairs = {}};
    const auto n = static_cast<uint32_t>(group.ranks.size());
    const auto connect = [&](uint32_t from, uint32_t to) {
      for (uint32_t index = 0; index < shape_.queue_pairs; ++index) {
        QueuePair queue_pair;
        queue_pair.from = from;
        queue_pair.to = to;
        queue_pair.index = index;
        queue_pair.crosses = leaf(group.ranks[from]) != leaf(group.ranks[to]);
        queue_pair.spine = static_cast<uint32_t>(random_() % shape_.spines);
        queue_pair.ack_spine = static_cast<uint32_t>(random_() % shape_.spines);
        queue_pair.base_ns_per_kib = 2000 * std::exp(shape_.contention * Normal());
        queue_pair.last_ns = now_ns_;
        queue_pair.post_ns = now_ns_;
        queue_pair.port = static_cast<uint32_t>(20000 + (group.id % 1000) * 16 + index);
        Publish(group, queue_pair);
        queue_pair.histogram.assign(wire::kLatencyBuckets, 0);
        group.queue_pairs.push_back(std::move(queue_pair));
      }
    };
    for (uint32_t i = 0; i < n; ++i) {
      if (!point_to_point) {
        connect(i, (i + 1) % n);
      } else if (i + 1 < n) {
        connect(i, i + 1);
        connect(i + 1, i);
      }
    }
    groups_.push_back(std::move(group));
  };
  const auto rank_of = [&](uint32_t p, uint32_t d, uint32_t t) {
    return (p * shape_.data + d) * shape_.tensor + t;
  };
  for (uint32_t p = 0; p < shape_.pipeline; ++p) {
    for (uint32_t d = 0; d < shape_.data; ++d) {
      std::vector<uint32_t> members;
      for (uint32_t t = 0; t < shape_.tensor; ++t) members.push_back(rank_of(p, d, t));
      add(members, false);
    }
    for (uint32_t t = 0; t < shape_.tensor; ++t) {
      std::vector<uint32_t> members;
      for (uint32_t d = 0; d < shape_.data; ++d) members.push_back(rank_of(p, d, t));
      add(members, false);
    }
  }
  for (uint32_t d = 0; d < shape_.data; ++d) {
    for (uint32_t t = 0; t < shape_.tensor; ++t) {
      std::vector<uint32_t> members;
      for (uint32_t p = 0; p < shape_.pipeline; ++p) members.push_back(rank_of(p, d, t));
      add(members, true);
    }
  }
  for (Rank& rank : ranks_) rank.state_since_ns = rank.progress_ns = now_ns_;
}

bool TrainingSim::IsPaused(const Group& group) {
  if (shape_.paused <= 0 || group.ranks.size() != 2) return false;
  return std::uniform_real_distribution<double>(0, 1)(random_) < shape_.paused;
}

double TrainingSim::Normal() {
  return std::normal_distribution<double>(0, 1)(random_);
}

std::string TrainingSim::nic(uint32_t rank) const {
  return "10.0." + std::to_string(rank / 200) + "." + std::to_string(1 + rank % 200);
}

bool TrainingSim::Takes(const QueuePair& queue_pair, bool acks) const {
  if (!queue_pair.crosses) return false;
  return target_ % shape_.spines == (acks ? queue_pair.ack_spine : queue_pair.spine);
}

std::vector<TrainingSim::Path> TrainingSim::paths() const {
  std::vector<Path> result;
  for (const Group& group : groups_) {
    for (const QueuePair& queue_pair : group.queue_pairs) {
      Path path{.from = group.ranks[queue_pair.from],
                .to = group.ranks[queue_pair.to],
                .index = queue_pair.index,
                .communicator = group.id,
                .stuck = queue_pair.stuck,
                .chunks = queue_pair.completed};
      const uint32_t target_leaf = target_ / shape_.spines;
      const bool leaf_touched = leaf(path.from) == target_leaf || leaf(path.to) == target_leaf;
      path.over_target = leaf_touched && Takes(queue_pair, false);
      path.acks_over_target = leaf_touched && Takes(queue_pair, true);
      result.push_back(path);
    }
  }
  return result;
}

void TrainingSim::Inject(Fault fault, uint32_t target) {
  fault_ = fault;
  target_ = target;
  fault_ns_ = now_ns_;
  int group = -1;
  for (size_t i = 0; i < groups_.size(); ++i) {
    const Group& candidate = groups_[i];
    const bool member =
        std::find(candidate.ranks.begin(), candidate.ranks.end(), target) != candidate.ranks.end();
    if (member && !candidate.point_to_point &&
        (group < 0 || candidate.ranks.size() > groups_[static_cast<size_t>(group)].ranks.size())) {
      group = static_cast<int>(i);
    }
  }
  switch (fault) {
    case Fault::kStop:
    case Fault::kKill:
      ranks_[target].state = fault == Fault::kStop ? v1::PROCESS_STATE_STOPPED : v1::PROCESS_STATE_GONE;
      ranks_[target].state_since_ns = now_ns_;
      StandStill(target, group);
      break;
    case Fault::kLostNode:
    case Fault::kCheckpoint:
      StandStill(target, group);
      break;
    case Fault::kMismatch:
      StandStill(target, group);
      mismatch_group_ = group;
      break;
    case Fault::kCutLink:
    case Fault::kCutNic:
      if (fault == Fault::kCutNic || !shape_.fail_over) StallNetwork();
      break;
    default:
      break;
  }
}

// Everybody waits for `culprit`: its peers in its communicators, their peers for them, and so on.
void TrainingSim::StandStill(uint32_t culprit, int first_group) {
  stands_still_ = true;
  stands_still_since_ns_ = now_ns_;
  for (Rank& rank : ranks_) rank.waits_in = -1;
  std::deque<uint32_t> todo = {culprit};
  std::vector<bool> seen(ranks_.size(), false);
  seen[culprit] = true;
  bool first = first_group >= 0;
  while (!todo.empty()) {
    const uint32_t rank = todo.front();
    for (size_t i = 0; i < groups_.size(); ++i) {
      if (first && static_cast<int>(i) != first_group) continue;
      const Group& group = groups_[i];
      const auto at = std::find(group.ranks.begin(), group.ranks.end(), rank);
      if (at == group.ranks.end()) continue;
      for (auto it = group.ranks.begin(); it != group.ranks.end(); ++it) {
        if (seen[*it] || (group.point_to_point && std::abs(it - at) != 1)) continue;
        seen[*it] = true;
        ranks_[*it].waits_in = static_cast<int>(i);
        todo.push_back(*it);
      }
    }
    if (!first) todo.pop_front();
    first = false;
  }
}

void TrainingSim::StallNetwork() {
  // The ring of the widest communicator that the target touches is busy with a large message.
  int stalled = -1;
  for (size_t i = 0; i < groups_.size(); ++i) {
    Group& group = groups_[i];
    if (group.point_to_point) continue;
    bool hit = false;
    for (QueuePair& queue_pair : group.queue_pairs) {
      const uint32_t from = group.ranks[queue_pair.from];
      const uint32_t to = group.ranks[queue_pair.to];
      if (fault_ == Fault::kCutNic) {
        hit = hit || from == target_ || to == target_;
      } else {
        const uint32_t cut = target_ / shape_.spines;
        hit = hit || ((leaf(from) == cut || leaf(to) == cut) &&
                      (Takes(queue_pair, false) || Takes(queue_pair, true)));
      }
    }
    if (hit && (stalled < 0 || group.ranks.size() > groups_[static_cast<size_t>(stalled)].ranks.size())) {
      stalled = static_cast<int>(i);
    }
  }
  if (stalled < 0) return;
  Group& group = groups_[static_cast<size_t>(stalled)];
  StandStill(group.ranks.front(), stalled);
  for (const uint32_t rank : group.ranks) ranks_[rank].waits_in = stalled;
  for (QueuePair& queue_pair : group.queue_pairs) {
    const uint32_t from = group.ranks[queue_pair.from];
    const uint32_t to = group.ranks[queue_pair.to];
    const uint32_t cut = target_ / shape_.spines;
    const bool on_link =
        (leaf(from) == cut || leaf(to) == cut) && (Takes(queue_pair, false) || Takes(queue_pair, true));
    queue_pair.stuck = fault_ == Fault::kCutNic ? from == target_ || to == target_ : on_link;
    queue_pair.posted += queue_pair.stuck ? 2 : 0;
    queue_pair.post_ns = now_ns_ + 10'000'000;
    // The rest of the message still flows on what is left.
    if (!queue_pair.stuck) queue_pair.last_ns = now_ns_ + 600'000'000;
  }
}

void TrainingSim::Heal() {
  if (fault_ == Fault::kStop || fault_ == Fault::kKill) ranks_[target_].state = v1::PROCESS_STATE_SLEEPING;
  if (stands_still_) {
    for (Group& group : groups_) {
      group.done += 1;
      for (QueuePair& queue_pair : group.queue_pairs) {
        queue_pair.stuck = false;
        queue_pair.completed = queue_pair.posted;
        queue_pair.last_ns = now_ns_;
      }
    }
    for (Rank& rank : ranks_) rank.waits_in = -1;
  }
  stands_still_ = false;
  fault_ = Fault::kNone;
}

void TrainingSim::Progress(double seconds) {
  double own = kOwnSeconds;
  double iteration = kIterationSeconds;
  double slow_own = own;
  if (fault_ == Fault::kSlowRank) {
    slow_own = 3 * own;
    iteration += slow_own - own;
  } else if (fault_ == Fault::kEvaluation) {
    slow_own = own = 3 * own;
    iteration += own;
  } else if (fault_ == Fault::kSlowLink || fault_ == Fault::kSlowNic) {
    iteration *= 1.6;
  } else if (fault_ == Fault::kJitter) {
    iteration += 0.05;
  }
  const double iterations = seconds / iteration;
  for (uint32_t rank = 0; rank < ranks_.size(); ++rank) {
    const bool late = fault_ == Fault::kSlowRank && rank == target_;
    const double own_now = (late ? slow_own : own) * std::max(0.3, 1 + 0.15 * Normal());
    const double inside = std::clamp(seconds - own_now * iterations, 0.0, seconds);
    ranks_[rank].in_operation_ns += static_cast<uint64_t>(inside * 1e9);
    ranks_[rank].first_wait_ns += static_cast<uint64_t>((late ? 0.05 : 0.4) * inside * 1e9);
    ranks_[rank].progress_ns = now_ns_;
  }
  for (Group& group : groups_) {
    group.carry += iterations * kOperationsPerIteration;
    const auto operations = static_cast<uint64_t>(group.carry);
    group.carry -= static_cast<double>(operations);
    group.done += operations;
    for (const uint32_t rank : group.ranks) ranks_[rank].operations += operations;
    for (QueuePair& queue_pair : group.queue_pairs) {
      const uint32_t from = group.ranks[queue_pair.from];
      const uint32_t to = group.ranks[queue_pair.to];
      bool slow = false;
      if (fault_ == Fault::kSlowNic) slow = from == target_ || to == target_;
      if (fault_ == Fault::kSlowLink) {
        const uint32_t cut = target_ / shape_.spines;
        slow = (leaf(from) == cut || leaf(to) == cut) && Takes(queue_pair, false);
      }
      // The scheduler gives a slow queue pair little more than a chunk a second.
      // Over a link that is cut nothing goes until it is fenced.
      if (fault_ == Fault::kCutLink && (queue_pair.dead || OverTarget(group, queue_pair))) continue;
      queue_pair.share += slow ? (fault_ == Fault::kSlowNic ? 0.8 : 0.35)
                               : 4.0 * (0.5 + 0.5 * static_cast<double>(random_() % 100) / 100.0);
      while (queue_pair.share >= 1) {
        queue_pair.share -= 1;
        const double network =
            queue_pair.base_ns_per_kib * std::exp(shape_.noise * Normal()) * (slow ? kSlowFactor : 1);
        const double per_kib = IsPaused(group) ? network + kPauseNsPerKib : network;
        const auto latency = static_cast<uint64_t>(per_kib * static_cast<double>(kChunkBytes) / 1024);
        ++queue_pair.histogram[static_cast<size_t>(wire::LatencyBucket(latency, kChunkBytes))];
        ++queue_pair.posted;
        ++queue_pair.completed;
        queue_pair.last_ns = now_ns_;
        queue_pair.post_ns = now_ns_;
      }
    }
  }
}

bool TrainingSim::IsSilent(uint32_t from, uint32_t to, const QueuePair& queue_pair) const {
  const uint32_t cut = target_ / shape_.spines;
  switch (fault_) {
    case Fault::kCutNic:
    case Fault::kLostNode:
      return from == target_ || to == target_;
    case Fault::kStop:  // its kernel answers, the process does not
    case Fault::kKill:
      return to == target_;
    case Fault::kCutLink:
      return !queue_pair.dead && (leaf(from) == cut || leaf(to) == cut) &&
             (Takes(queue_pair, false) || Takes(queue_pair, true));
    default:
      return false;
  }
}

void TrainingSim::AddGroup(const Group& group, uint32_t rank, v1::ProcessReport* report) {
  const auto at = std::find(group.ranks.begin(), group.ranks.end(), rank);
  if (at == group.ranks.end()) return;
  const auto own = static_cast<uint32_t>(at - group.ranks.begin());
  const Rank& state = ranks_[rank];
  const auto index = static_cast<int>(&group - groups_.data());
  const bool waits = stands_still_ && state.waits_in == index;
  const bool mismatched = fault_ == Fault::kMismatch && mismatch_group_ == index;
  v1::CommunicatorState* communicator = report->add_communicators();
  communicator->set_communicator_id(group.id);
  communicator->set_rank(own);
  communicator->set_rank_count(static_cast<uint32_t>(group.ranks.size()));
  communicator->set_phase(state.failed ? v1::PHASE_FAILED : v1::PHASE_READY);
  const int64_t age_ns = stands_still_ ? now_ns_ - stands_still_since_ns_ : 1'000'000;
  const uint64_t entered = group.done + (waits || mismatched ? 1 : 0);
  const auto fill = [&](v1::Counter* counter, uint64_t count) {
    counter->set_count(count);
    counter->set_age_ns(age_ns);
  };
  fill(group.point_to_point ? communicator->mutable_p2p_called() : communicator->mutable_called(), entered);
  fill(group.point_to_point ? communicator->mutable_p2p_started() : communicator->mutable_started(), entered);
  fill(group.point_to_point ? communicator->mutable_p2p_finished() : communicator->mutable_finished(),
       group.done);
  v1::OperationInfo* info =
      group.point_to_point ? communicator->mutable_last_p2p_called() : communicator->mutable_last_called();
  info->set_function(group.point_to_point ? v1::FUNCTION_SEND : v1::FUNCTION_ALL_REDUCE);
  info->set_data_type(7);
  info->set_root(-1);
  info->set_count(mismatched && rank == target_ ? 999 : 1 << 20);
  *(group.point_to_point ? communicator->mutable_last_p2p_started() : communicator->mutable_last_started()) =
      *info;
  for (const QueuePair& queue_pair : group.queue_pairs) {
    const bool sends = queue_pair.from == own;
    if (!sends && queue_pair.to != own) continue;
    v1::QueuePairState* item = report->add_queue_pairs();
    item->set_communicator_id(group.id);
    item->set_rank(own);
    item->set_peer(sends ? queue_pair.to : queue_pair.from);
    item->set_direction(sends ? v1::DIRECTION_SEND : v1::DIRECTION_RECEIVE);
    item->set_index(queue_pair.index);
    item->set_phase(v1::PHASE_READY);
    const std::string from = nic(group.ranks[queue_pair.from]) + ":" + std::to_string(queue_pair.port);
    const std::string to = nic(group.ranks[queue_pair.to]) + ":9000";
    item->set_local(sends ? from : to);
    item->set_remote(sends ? to : from);
    const uint64_t posted = sends ? queue_pair.posted : queue_pair.completed;
    item->set_posted_messages(posted);
    item->set_posted_bytes(posted * kChunkBytes);
    item->set_completed_messages(queue_pair.completed);
    item->set_completed_bytes(queue_pair.completed * kChunkBytes);
    item->set_moved_bytes(queue_pair.completed * kChunkBytes);
    item->set_last_progress_age_ns(std::max<int64_t>(0, now_ns_ - queue_pair.last_ns));
    item->set_last_post_age_ns(std::max<int64_t>(0, now_ns_ - queue_pair.post_ns));
    if (sends) {
      // A sign of life a second, of which the newest is half a second old, until none come any more.
      constexpr int64_t kSignAgeNs = 500'000'000;
      const bool silent = IsSilent(group.ranks[queue_pair.from], group.ranks[queue_pair.to], queue_pair);
      item->set_last_heard_age_ns(kSignAgeNs + (silent ? now_ns_ - fault_ns_ : 0));
      for (const uint32_t count : queue_pair.histogram) item->add_latency_histogram(count);
      item->set_fences(queue_pair.fences);
      item->set_dead(queue_pair.dead);
    }
    if (queue_pair.index != 0) continue;
    v1::ConnectionState* connection = item->mutable_connection();
    // In a pipeline who stands still waits for the neighbour's message.
    const bool receives = waits && group.point_to_point && !sends;
    connection->set_wanted_messages(group.done + (receives || (waits && !group.point_to_point) ? 1 : 0));
    connection->set_granted_messages(group.done + (waits && !group.point_to_point ? 1 : 0));
    connection->set_done_messages(group.done);
    if (!sends) {
      connection->set_first_waits(ranks_[rank].operations);
      connection->set_first_wait_sum_ns(ranks_[rank].first_wait_ns / 4);
    }
  }
}

v1::TelemetryBatch TrainingSim::Batch(uint32_t rank) {
  const Rank& state = ranks_[rank];
  v1::TelemetryBatch batch;
  batch.set_host("host" + std::to_string(rank));
  batch.set_agent_epoch(7);
  batch.set_sequence(sequence_);
  batch.set_monotonic_ns(now_ns_);
  batch.set_unix_ns(unix_ns());
  batch.set_agent_version("0.1.0");
  v1::ProcessReport* report = batch.add_processes();
  report->mutable_process()->set_host(batch.host());
  report->mutable_process()->set_boot_id("00112233445566778899aabbccddeeff");
  report->mutable_process()->set_pid(1000 + rank);
  report->mutable_process()->set_start_time_ticks(50);
  report->set_job("job");
  report->set_rank_label(static_cast<int32_t>(rank));
  report->set_world_label(static_cast<int32_t>(ranks_.size()));
  report->set_program("trainer");
  v1::ProcessHealth* health = report->mutable_health();
  health->set_state(state.state);
  health->set_state_age_ns(now_ns_ - state.state_since_ns);
  health->set_cpu_ns(static_cast<uint64_t>(state.progress_ns) / 2);
  health->set_progress_age_ns(now_ns_ - state.progress_ns);
  report->set_in_operation_ns(state.in_operation_ns);
  report->set_operations_finished(state.operations);
  for (const Group& group : groups_) AddGroup(group, rank, report);
  return batch;
}

std::vector<v1::TelemetryBatch> TrainingSim::Step() {
  now_ns_ += kStepNs;
  ++sequence_;
  const bool fences = fault_ == Fault::kHiccups || (fault_ == Fault::kCutLink && shape_.fail_over);
  if (fences || any_dead_) FailOver();
  if (!stands_still_) {
    Progress(static_cast<double>(kStepNs) / 1e9);
  } else {
    for (uint32_t rank = 0; rank < ranks_.size(); ++rank) {
      const v1::ProcessState rank_state = ranks_[rank].state;
      if (rank_state == v1::PROCESS_STATE_SLEEPING) ranks_[rank].progress_ns = now_ns_;
      // Without their peer, or told of a mismatch, the others' communicators fail and they exit.
      const bool victim = rank != target_ || fault_ == Fault::kMismatch;
      if ((fault_ == Fault::kKill || fault_ == Fault::kMismatch) && victim &&
          now_ns_ - fault_ns_ > 300'000'000) {
        ranks_[rank].failed = true;
        if (rank_state != v1::PROCESS_STATE_GONE && now_ns_ - fault_ns_ > 700'000'000) {
          ranks_[rank].state = v1::PROCESS_STATE_GONE;
          ranks_[rank].state_since_ns = now_ns_;
        }
      }
    }
  }
  std::vector<v1::TelemetryBatch> batches;
  for (uint32_t rank = 0; rank < ranks_.size(); ++rank) {
    const bool silent = (fault_ == Fault::kLostNode || fault_ == Fault::kAgentSilent) && rank == target_;
    if (!silent) batches.push_back(Batch(rank));
  }
  return batches;
}

}  // namespace c4::simulation
