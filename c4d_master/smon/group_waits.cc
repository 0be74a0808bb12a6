#include "c4d_master/smon/group_waits.h"

#include <algorithm>

#include "c4/v1/telemetry.pb.h"
#include "c4d_master/smon/worker_steps.h"

namespace c4::c4d {
namespace {

bool IsTransfer(const CommunicationSpan& operation) {
  return operation.function == v1::FUNCTION_SEND || operation.function == v1::FUNCTION_RECV;
}

}  // namespace

struct GroupWaits::Member {
  const ProfiledProcess* process = nullptr;
  bool stands_for_it = false;
  const std::vector<ProfileClock>* clocks = nullptr;  // nullptr: all members are on one node
  WorkerSteps steps;

  int64_t Called_ns(const CommunicationSpan& operation) const {
    return operation.called_ns + (clocks == nullptr ? 0 : (*clocks)[operation.clock].offset_ns);
  }
};

GroupWaits::GroupWaits(const Profile& profile, const std::map<uint64_t, RoledCommunicator>& roles,
                       const std::vector<const ProfiledProcess*>& processes, const ProfiledProcess& worker) {
  std::vector<Member> members;
  for (const ProfiledProcess* process : processes) {
    // Of two that say that they are the same, one is of an earlier start.
    const bool stands = process->worker->tp_rank == worker.worker->tp_rank &&
                        process->worker->cp_rank == worker.worker->cp_rank;
    if (!stands || process == &worker) members.push_back({process, stands, nullptr, WorkerSteps(*process)});
  }
  if (members.size() < 2) return;
  const bool one_node = std::all_of(members.begin(), members.end(), [&worker](const Member& member) {
    return member.process->node == worker.node;
  });
  if (!one_node) {
    for (Member& member : members) member.clocks = &profile.nodes[member.process->node].clocks;
  }
  for (const auto& [id, membership] : worker.communicators) {
    const auto communicator = roles.find(id);
    if (communicator != roles.end() && communicator->second.role == CommunicatorRole::kInWorker)
      Compare(members, id);
  }
  std::map<int32_t, int64_t> by_rank;
  for (const Wait& wait : waits_) by_rank[wait.rank] += wait.lag_ns;
  int64_t most_ns = 0;
  int64_t next_ns = 0;
  for (const auto& [rank, sum_ns] : by_rank) {
    next_ns = std::max(next_ns, std::min(sum_ns, most_ns));
    if (sum_ns <= most_ns) continue;
    most_ns = sum_ns;
    lagging_ = rank;
  }
  if (most_ns > 0) beyond_chance_ = static_cast<double>(most_ns - next_ns) / static_cast<double>(most_ns);
  std::erase_if(waits_, [this](const Wait& wait) { return wait.rank != lagging_; });
  std::sort(waits_.begin(), waits_.end(),
            [](const Wait& a, const Wait& b) { return a.called_ns < b.called_ns; });
}

void GroupWaits::Compare(const std::vector<Member>& members, uint64_t communicator) {
  struct Calls {
    const Member* member;
    std::map<int32_t, std::vector<const CommunicationSpan*>> of_step;
  };
  std::vector<Calls> all;
  for (const Member& member : members) {
    if (!member.process->communicators.contains(communicator)) continue;
    Calls calls{&member, {}};
    for (const CommunicationSpan& operation : member.process->operations) {
      if (operation.communicator_id != communicator || IsTransfer(operation)) continue;
      const WorkerSteps::Step* const step = member.steps.At(operation.called_ns);
      if (step != nullptr) calls.of_step[step->number].push_back(&operation);
    }
    all.push_back(std::move(calls));
  }
  if (all.size() < 2) return;
  const auto own =
      std::find_if(all.begin(), all.end(), [](const Calls& calls) { return calls.member->stands_for_it; });
  if (own == all.end()) return;
  for (auto& [step, calls] : own->of_step) {
    const size_t count = calls.size();
    const bool whole = std::all_of(all.begin(), all.end(), [step = step, count](Calls& one) {
      return one.of_step[step].size() == count;
    });
    if (!whole) continue;
    for (size_t i = 0; i < count; ++i) {
      std::vector<std::pair<int64_t, int32_t>> called;
      called.reserve(all.size());
      for (Calls& one : all)
        called.emplace_back(one.member->Called_ns(*one.of_step[step][i]), one.member->process->rank);
      std::sort(called.begin(), called.end());
      const int64_t usual_ns = called[(called.size() - 2) / 2].first;  // of all but the last
      const auto [last_ns, rank] = called.back();
      if (last_ns > usual_ns) waits_.push_back({calls[i]->called_ns, last_ns - usual_ns, rank});
    }
  }
}

int64_t GroupWaits::Waited_ns(int64_t began_ns, int64_t ended_ns) const {
  auto wait = std::lower_bound(waits_.begin(), waits_.end(), began_ns,
                               [](const Wait& one, int64_t at_ns) { return one.called_ns < at_ns; });
  int64_t waited_ns = 0;
  for (; wait != waits_.end() && wait->called_ns < ended_ns; ++wait) waited_ns += wait->lag_ns;
  return static_cast<int64_t>(static_cast<double>(waited_ns) * beyond_chance_);
}

}  // namespace c4::c4d
