#include "c4d_master/validation/plan.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "c4d_master/detectors/queue_pair_ends.h"
#include "service/text.h"

namespace c4::c4d {
namespace {

using service::Concat;

// What is asked for is compared with so many at least.
constexpr size_t kFewestCompared = 4;

std::string Named(const ProcessRef& ref) {
  return Concat("rank ", ref.process->rank, " (pid ", ref.process->key.pid, " on ", ref.host->name, ")");
}

// Whoever would never come to the cut is known before anybody is held for him.
absl::Status CheckAllCanCome(const std::vector<const ProcessRef*>& processes) {
  if (processes.empty()) {
    return absl::FailedPreconditionError(
        "no process of the job is known to this master: wait until its agents have reported");
  }
  for (const ProcessRef* ref : processes) {
    if (ref->stale) {
      return absl::FailedPreconditionError(Concat("the agent of ", ref->host->name, " is silent, so ",
                                                  Named(*ref), " cannot be told to wait"));
    }
    if (CannotRun(ref->process->health.state)) {
      return absl::FailedPreconditionError(
          Concat(Named(*ref), " is stopped and would never come to where the others wait for it"));
    }
  }
  return absl::OkStatus();
}

// The one with all processes as its members that has been used most; nullptr: there is none.
const Communicator* CommonOf(const JobSnapshot& snapshot, const std::vector<const ProcessRef*>& processes) {
  const Communicator* best = nullptr;
  uint64_t most = 0;
  for (const Communicator& communicator : snapshot.communicators) {
    if (communicator.rank_count != processes.size() || communicator.members.size() != processes.size())
      continue;
    std::set<uint32_t> members;
    uint64_t calls = UINT64_MAX;
    for (const Member& member : communicator.members) {
      const Membership* const own = member.own != nullptr ? member.own : member.state;
      if (own == nullptr || own->phase != Phase::kReady) calls = 0;
      if (own != nullptr) calls = std::min(calls, own->called.count);
      members.insert(member.process);
    }
    if (members.size() != processes.size() || calls == 0 || calls < most) continue;
    most = calls;
    best = &communicator;
  }
  return best;
}

class Planner {
 public:
  Planner(const JobSnapshot& snapshot, const std::vector<const ProcessRef*>& processes) {
    for (const ProcessRef* ref : processes) {
      index_[ref] = plan_.processes.size();
      if (ref->process->rank >= 0) by_rank_[ref->process->rank] = plan_.processes.size();
      plan_.processes.push_back({ref->host->name, ref->process->key.pid, ref->process->rank, false, false});
    }
    if (const Communicator* const common = CommonOf(snapshot, processes)) {
      plan_.communicator_id = common->id;
    } else {
      plan_.count = 2;
    }
    FindLinks(snapshot);
  }

  absl::Status Choose(const v1::RunValidationRequest& request) {
    const bool all = request.ranks().empty() && request.links().empty();
    std::set<size_t> devices;
    for (const int32_t rank : request.ranks()) {
      const auto found = by_rank_.find(rank);
      if (found == by_rank_.end()) return absl::InvalidArgumentError(Concat("the job has no rank ", rank));
      devices.insert(found->second);
    }
    std::set<size_t> links;
    for (const v1::RankPair& pair : request.links()) C4_RETURN_IF_NOT_OK(FindPair(pair, &links));
    for (size_t i = 0; i < links_.size(); ++i) {
      if (all || devices.contains(links_[i].from) || devices.contains(links_[i].to)) links.insert(i);
    }
    if (all) {
      for (size_t i = 0; i < plan_.processes.size(); ++i) devices.insert(i);
    }
    if (!devices.empty()) Fill(plan_.processes.size(), &devices);
    if (!links.empty()) Fill(links_.size(), &links);
    if (!request.without_devices()) {
      for (const size_t device : devices) plan_.processes[device].device = true;
    }
    if (!request.without_links()) {
      for (const size_t link : links) {
        if (plan_.links.size() < kMostTestedLinks) {
          plan_.links.push_back(links_[link]);
        } else {
          ++plan_.links_left_out;
        }
      }
    }
    return absl::OkStatus();
  }

  absl::StatusOr<ValidationPlan> Take() {
    bool anything = !plan_.links.empty();
    for (const PlannedLink& link : plan_.links) {
      plan_.processes[link.from].tester = plan_.processes[link.to].tester = true;
    }
    for (PlannedProcess& process : plan_.processes) {
      process.tester = process.tester || process.device;
      anything = anything || process.device;
    }
    if (!anything) {
      return absl::FailedPreconditionError(
          "there is nothing to test: no device is asked for, and no connection over a network is seen");
    }
    return std::move(plan_);
  }

 private:
  // Each way between two NICs once, whichever ranks and communicators use it.
  void FindLinks(const JobSnapshot& snapshot) {
    std::set<std::pair<std::string, std::string>> seen;
    for (const QueuePairEnds& ends : CollectQueuePairs(snapshot)) {
      if (ends.sender == nullptr || ends.receiver == nullptr || ends.queue_pair == nullptr) continue;
      const auto from = index_.find(ends.sender);
      const auto to = index_.find(ends.receiver);
      const bool is_on_network = ends.from_nic != ends.to_nic && ends.sender->host != ends.receiver->host &&
                                 ends.from_nic != NicOfRank(*ends.sender) &&
                                 ends.to_nic != NicOfRank(*ends.receiver);
      if (from == index_.end() || to == index_.end() || !is_on_network) continue;
      pairs_[{from->second, to->second}] = {ends.from_nic, ends.to_nic};
      if (!seen.insert({ends.from_nic, ends.to_nic}).second) continue;
      nics_[{ends.from_nic, ends.to_nic}] = links_.size();
      links_.push_back({from->second, to->second, ends.from_nic, ends.to_nic});
    }
  }

  absl::Status FindPair(const v1::RankPair& pair, std::set<size_t>* links) const {
    const auto from = by_rank_.find(pair.from());
    const auto to = by_rank_.find(pair.to());
    if (from == by_rank_.end() || to == by_rank_.end()) {
      return absl::InvalidArgumentError(
          Concat("the job has no rank ", from == by_rank_.end() ? pair.from() : pair.to()));
    }
    const auto found = pairs_.find({from->second, to->second});
    if (found == pairs_.end()) {
      return absl::InvalidArgumentError(
          Concat("no connection over a network is seen from rank ", pair.from(), " to rank ", pair.to()));
    }
    links->insert(nics_.at(found->second));
    return absl::OkStatus();
  }

  // Others, spread over what there is.
  static void Fill(size_t count, std::set<size_t>* chosen) {
    const size_t step = std::max<size_t>(1, count / kFewestCompared);
    for (size_t i = 0; i < count && chosen->size() < kFewestCompared; i += step) chosen->insert(i);
    for (size_t i = 0; i < count && chosen->size() < kFewestCompared; ++i) chosen->insert(i);
  }

  ValidationPlan plan_;
  std::map<const ProcessRef*, size_t> index_;
  std::map<int32_t, size_t> by_rank_;
  std::vector<PlannedLink> links_;
  std::map<std::pair<std::string, std::string>, size_t> nics_;                      // to links_
  std::map<std::pair<size_t, size_t>, std::pair<std::string, std::string>> pairs_;  // to nics_
};

}  // namespace

absl::StatusOr<ValidationPlan> PlanValidation(const JobSnapshot& snapshot,
                                              const v1::RunValidationRequest& request) {
  std::vector<const ProcessRef*> processes;
  const ProcessRef* gone = nullptr;
  for (const ProcessRef& ref : snapshot.processes) {
    if (ref.superseded || ref.process->ended) continue;
    if (ref.process->health.state == ProcessState::kGone) {
      gone = &ref;
    } else {
      processes.push_back(&ref);
    }
  }
  C4_RETURN_IF_NOT_OK(CheckAllCanCome(processes));
  // A job that goes on with fewer ranks has a communicator of those; else the others would be missed.
  if (CommonOf(snapshot, processes) == nullptr) {
    if (gone != nullptr) return absl::FailedPreconditionError(Concat(Named(*gone), " is gone"));
    const int32_t world = processes.front()->process->world;
    if (world > 0 && processes.size() < static_cast<size_t>(world)) {
      return absl::FailedPreconditionError(Concat("only ", processes.size(), " of the job's ", world,
                                                  " ranks are known to this master: the others would not be "
                                                  "held"));
    }
  }
  Planner planner(snapshot, processes);
  C4_RETURN_IF_NOT_OK(planner.Choose(request));
  return planner.Take();
}

}  // namespace c4::c4d
