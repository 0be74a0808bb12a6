#include <algorithm>
#include <set>

#include "c4d_master/detectors/crash.h"
#include "c4d_master/detectors/queue_pair_ends.h"
#include "service/text.h"
#include "service/verdict_json.h"

namespace c4::c4d {
namespace {

using service::Concat;
using service::SecondsText;

// Processes that might be the one that a communicator waits for.
std::vector<uint32_t> MissingFrom(const JobSnapshot& snapshot, const Communicator& communicator) {
  std::set<uint32_t> members;
  uint64_t parent = 0;
  for (const Member& member : communicator.members) {
    members.insert(member.process);
    parent = std::max(parent, member.state->parent_id);
  }
  std::vector<uint32_t> missing;
  for (uint32_t i = 0; i < snapshot.processes.size(); ++i) {
    const ProcessRef& ref = snapshot.processes[i];
    if (ref.superseded || members.count(i) != 0) continue;
    bool in_parent = parent == 0;
    for (const Membership& membership : ref.process->communicators) {
      in_parent = in_parent || membership.communicator_id == parent;
    }
    if (in_parent) missing.push_back(i);
  }
  return missing;
}

void DetectMissing(const JobSnapshot& snapshot, const Communicator& communicator,
                   const EndThresholds& thresholds, std::vector<Finding>* findings) {
  if (!communicator.joining) return;
  std::vector<uint32_t> joining;
  int64_t since_ns = kNever;
  std::set<uint32_t> present;
  for (const Member& member : communicator.members) {
    const ProcessRef& ref = snapshot.processes[member.process];
    present.insert(member.state->rank);
    if (ref.stale || ref.process->ended || CannotRun(ref.process->health.state)) continue;
    if (member.state->phase != Phase::kInit) continue;
    joining.push_back(member.process);
    since_ns = std::max(since_ns, member.state->phase_since_at_ns);
  }
  if (joining.empty() || present.size() == communicator.rank_count || since_ns == kNever) return;
  const int64_t waited_ns = communicator.as_of_ns - since_ns;
  if (waited_ns < thresholds.join_suspect_ns) return;
  const size_t absent = communicator.rank_count - present.size();
  const std::vector<uint32_t> missing = MissingFrom(snapshot, communicator);
  // The job's own communicator numbers its ranks like the job.
  bool world = true;
  for (const Member& member : communicator.members) {
    const Process& process = *snapshot.processes[member.process].process;
    world = world && process.rank == static_cast<int32_t>(member.state->rank);
  }
  Finding base;
  base.syndrome = Syndrome::kNeverJoined;
  base.communicator_id = communicator.id;
  base.communicators.push_back(communicator.id);
  base.waiting = RanksOf(snapshot, joining);
  base.since_at_ns = since_ns;
  base.confidence = waited_ns >= thresholds.join_limit_ns ? 0.9 : 0.5;
  if (waited_ns >= thresholds.join_limit_ns) base.confirmed_by = "past-limit";
  base.evidence.push_back(
      {"waiting", Concat(service::RankListText(base.waiting), " wait for ", absent, " of ",
                         communicator.rank_count, " ranks to join communicator ",
                         service::CommunicatorText(communicator.id), " for ", SecondsText(waited_ns))});
  base.suggested_action =
      "see whether the missing rank was started, reaches the others' network and gets as far "
      "as the call that sets the communicator up";
  const auto name_process = [&](uint32_t index, Finding* finding) {
    const ProcessRef& ref = snapshot.processes[index];
    FillProcess(ref, finding);
    const Health& health = ref.process->health;
    if (health.state == ProcessState::kGone || health.state == ProcessState::kZombie) {
      finding->confirmed_by = "gone";
    } else if (CannotRun(health.state)) {
      finding->confirmed_by = "stopped";
    } else if (!ref.stale && health.state != ProcessState::kBlocked && health.last_progress_at_ns != kNever &&
               ref.host->as_of_ns - health.last_progress_at_ns >= thresholds.join_suspect_ns &&
               waited_ns >= thresholds.join_idle_ns) {
      finding->confirmed_by = "no-progress";
    } else {
      return;
    }
    finding->confidence = 0.95;
  };
  if (world) {
    for (uint32_t rank = 0; rank < communicator.rank_count; ++rank) {
      if (present.count(rank) != 0) continue;
      Finding finding = base;
      finding.rank = static_cast<int32_t>(rank);
      for (const uint32_t index : missing) {
        if (snapshot.processes[index].process->rank == finding.rank) name_process(index, &finding);
      }
      findings->push_back(std::move(finding));
    }
  } else if (missing.size() == absent) {
    for (const uint32_t index : missing) {
      Finding finding = base;
      name_process(index, &finding);
      findings->push_back(std::move(finding));
    }
  } else {
    base.kind = CulpritKind::kAmbiguous;
    for (const uint32_t index : missing) base.candidates.push_back(snapshot.processes[index].process->rank);
    std::sort(base.candidates.begin(), base.candidates.end());
    findings->push_back(std::move(base));
  }
}

}  // namespace

std::vector<Finding> DetectNeverJoined(const JobSnapshot& snapshot, const EndThresholds& thresholds) {
  std::vector<Finding> findings;
  for (const Communicator& communicator : snapshot.communicators) {
    DetectMissing(snapshot, communicator, thresholds, &findings);
  }
  return findings;
}

}  // namespace c4::c4d
