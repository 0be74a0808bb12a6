#include "c4d_master/detectors/diagnose.h"

#include <algorithm>
#include <utility>

#include "service/text.h"

namespace c4::c4d {
namespace {

void Append(std::vector<Finding> more, std::vector<Finding>* findings) {
  for (Finding& finding : more) findings->push_back(std::move(finding));
}

bool Shares(const Finding& a, const Finding& b) {
  return std::any_of(a.communicators.begin(), a.communicators.end(), [&](uint64_t id) {
    return std::find(b.communicators.begin(), b.communicators.end(), id) != b.communicators.end();
  });
}

// A process that cannot run, or one that a mismatch is told of, explains more than it waits for.
bool IsEnd(const Finding& finding) {
  return finding.state == ProcessState::kGone || finding.state == ProcessState::kZombie;
}

// See SilenceThresholds.
void LeaveOutTheReturning(const JobSnapshot& snapshot, int64_t now_ns, const SilenceThresholds& thresholds,
                          std::vector<Finding>* findings) {
  const int64_t back_ns = snapshot.back_at_ns;
  if (back_ns == kNever) return;
  std::erase_if(*findings, [&](const Finding& finding) {
    const int64_t since_ns = finding.since_at_ns;
    return since_ns != kNever && since_ns < back_ns &&
           since_ns > snapshot.silent_from_ns - thresholds.before_ns &&
           now_ns - back_ns < std::min(back_ns - since_ns, thresholds.most_to_go_on_ns);
  });
}

// Ranks that wait for each other in a ring may be held up by one that nobody hears of: in what they call next
// it may be missing. Only a ring that stood still before the silence closed by itself.
void LeaveOutRingsOfTheSilent(const JobSnapshot& snapshot, const SilenceThresholds& thresholds,
                              std::vector<Finding>* hangs) {
  for (const ProcessRef& ref : snapshot.processes) {
    if (!ref.stale || ref.superseded || ref.process->ended) continue;
    const int64_t from_ns = ref.host->as_of_ns - thresholds.before_ns;
    std::erase_if(*hangs, [from_ns](const Finding& hang) {
      return hang.kind == CulpritKind::kAmbiguous && hang.since_at_ns > from_ns;
    });
  }
}

// What a verdict lists goes to everybody who watches, and into the store, with each of its changes.
void LimitConnections(std::vector<Finding>* findings) {
  for (Finding& finding : *findings) {
    const size_t has = finding.connections.size();
    if (has <= kMostConnections) continue;
    finding.connections.resize(kMostConnections);
    finding.evidence.push_back(
        {"limit", service::Concat(has - kMostConnections, " more queue pairs are not listed: ",
                                  kMostConnections, " are the most that a verdict names")});
  }
}

std::vector<Finding> DiagnoseAll(const JobSnapshot& snapshot, const NetworkView& network,
                                 std::vector<Finding> slow, int64_t now_ns, const Thresholds& thresholds) {
  // What ends the job, and with it everything else that could be said.
  std::vector<Finding> findings = DetectMismatches(snapshot);
  if (!findings.empty()) return findings;
  findings = DetectCrashes(snapshot, thresholds.end);
  const bool crashed = !findings.empty();

  std::vector<Finding> hangs = DetectHangs(snapshot, thresholds.hang);
  // Who is dead is told of as a crash; in the same job nothing else is held against anybody.
  if (crashed) {
    std::erase_if(hangs, [](const Finding& hang) { return IsEnd(hang) || hang.confirmed_by != "stopped"; });
    Append(std::move(hangs), &findings);
    return findings;
  }
  LeaveOutRingsOfTheSilent(snapshot, thresholds.silence, &hangs);
  const bool held_up = !hangs.empty();
  std::vector<Finding> stuck =
      DetectCommunicationHangs(snapshot, network.paths, thresholds.communication_hang);
  // Ranks that are absent because the network holds their peers up wait in turn, and are no roots of the
  // graph. One that is absent for a reason of its own does not hold queue pairs up, but a ring of waits
  // among ranks that the network holds up says nothing.
  if (!stuck.empty()) {
    std::erase_if(hangs, [&](const Finding& hang) {
      return hang.kind == CulpritKind::kAmbiguous &&
             std::any_of(stuck.begin(), stuck.end(), [&](const auto& s) { return Shares(hang, s); });
    });
  }
  std::vector<Finding> lost;
  if (!held_up && stuck.empty()) lost = DetectLostNodes(snapshot, now_ns, thresholds.end);
  // Nobody is to blame for it that could be told from what the others wait for.
  std::vector<Finding> inside;
  if (!held_up && stuck.empty() && lost.empty()) inside = DetectStuckInside(snapshot, thresholds.hang);
  const bool stands_still = held_up || !stuck.empty() || !lost.empty() || !inside.empty();
  // Who lost a path and found no other is stuck, and is told of as that.
  std::vector<Finding> fenced;
  if (stuck.empty() && network.fences != nullptr) {
    fenced = DetectLostPaths(snapshot, *network.fences, network.paths, now_ns, thresholds.path_lost);
  }
  // Chunks that waited for another path were slow, and are so in the windows for a while.
  const bool lost_path = std::any_of(fenced.begin(), fenced.end(),
                                     [](const Finding& finding) { return !finding.confirmed_by.empty(); });
  if (lost_path) {
    std::erase_if(slow,
                  [](const Finding& finding) { return finding.syndrome == Syndrome::kCommunicationSlow; });
  }
  LeaveOutTheReturning(snapshot, now_ns, thresholds.silence, &hangs);
  LeaveOutTheReturning(snapshot, now_ns, thresholds.silence, &stuck);
  LeaveOutTheReturning(snapshot, now_ns, thresholds.silence, &inside);
  Append(std::move(stuck), &findings);
  Append(std::move(inside), &findings);
  Append(std::move(fenced), &findings);
  Append(std::move(hangs), &findings);
  Append(std::move(lost), &findings);
  Append(DetectNeverJoined(snapshot, thresholds.end), &findings);
  // A job that stands still is not slow.
  if (!stands_still) Append(std::move(slow), &findings);
  return findings;
}

}  // namespace

std::vector<Finding> Diagnose(const JobSnapshot& snapshot, const NetworkView& network,
                              std::vector<Finding> slow, int64_t now_ns, const Thresholds& thresholds) {
  std::vector<Finding> findings = DiagnoseAll(snapshot, network, std::move(slow), now_ns, thresholds);
  LimitConnections(&findings);
  return findings;
}

}  // namespace c4::c4d
