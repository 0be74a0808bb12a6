#include "c4d_master/detectors/hang.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <utility>

#include "c4d_master/detectors/hang_evidence.h"
#include "c4d_master/detectors/hang_graph.h"
#include "c4d_master/detectors/queue_pair_ends.h"
#include "service/text.h"
#include "service/verdict_json.h"

namespace c4::c4d {
namespace {

using analysis::WaitForGraph;
using Node = WaitForGraph::Node;

// Times of a job are far below what a double holds to the nanosecond; what is not is cut off.
int64_t Times(int64_t ns, double factor) {
  constexpr double kMost = 1e18;
  return static_cast<int64_t>(std::min(factor * static_cast<double>(ns), kMost));
}

// Since when the process itself has neither called, started nor finished anything.
int64_t OwnLastStep(const Process& process) {
  int64_t last = kNever;
  for (const Membership& membership : process.communicators) {
    for (const Counter* counter :
         {&membership.called, &membership.started, &membership.finished, &membership.p2p_called,
          &membership.p2p_started, &membership.p2p_finished}) {
      last = std::max(last, counter->last_at_ns);
    }
  }
  return last;
}

bool IsSuspicious(const Communicator& communicator, const ProcessRef& culprit,
                  const HangThresholds& thresholds) {
  const int64_t standstill_ns = communicator.StandstillNs();
  const int64_t suspect_ns = SuspectAfterNs(communicator, thresholds);
  if (standstill_ns < suspect_ns) return false;
  if (CannotRun(culprit.process->health.state)) return true;
  // A rank that goes on with other communicators' work is late here, not hung.
  const int64_t own_last = OwnLastStep(*culprit.process);
  const bool quiet = own_last == kNever || culprit.host->as_of_ns - own_last >= suspect_ns;
  return quiet || standstill_ns >= CertainAfterNs(communicator, thresholds);
}

struct Certainty {
  std::string by;  // empty: not certain
  double confidence = 0;
};

// `vendor`: its kernels run on a GPU of which nothing is seen between them.
Certainty Confirm(const Communicator& communicator, const ProcessRef& culprit, bool vendor,
                  const HangThresholds& thresholds) {
  const Health& health = culprit.process->health;
  switch (health.state) {
    case ProcessState::kStopped:
      return {"stopped", 0.99};
    case ProcessState::kTraced:
      return {"traced", 0.99};
    case ProcessState::kZombie:
    case ProcessState::kGone:
      return {"gone", 0.99};
    default:
      break;
  }
  // Who is blocked in the kernel writes to a disk or a file system that takes its time, which fsync may for
  // minutes: only the limit tells that it will not come back. A process sleeps while its GPU works: a GPU
  // that is a few times as slow as before is told from one that hangs by how long it takes alone.
  const bool may_be_slow =
      vendor && communicator.StandstillNs() < Times(communicator.pace_ns, thresholds.certain_factor);
  if (health.state != ProcessState::kBlocked && !may_be_slow && health.last_progress_at_ns != kNever &&
      culprit.host->as_of_ns - health.last_progress_at_ns >= thresholds.no_progress_ns) {
    return {"no-progress", 0.95};
  }
  // A checkpoint is packed before or after it is written: who has read or written since has its time anew.
  const int64_t certain_ns = CertainAfterNs(communicator, thresholds);
  const bool did_io = health.last_io_at_ns != kNever && culprit.host->as_of_ns - health.last_io_at_ns <
                                                            std::max(certain_ns, thresholds.io_recent_ns);
  const int64_t limit_ns = health.state == ProcessState::kBlocked || did_io
                               ? std::max(certain_ns, thresholds.io_limit_ns)
                               : certain_ns;
  if (communicator.StandstillNs() >= limit_ns) return {"past-limit", 0.9};
  return {"", 0.5};
}

std::vector<uint32_t> JobRanks(const JobSnapshot& snapshot, const std::set<uint32_t>& processes) {
  std::set<uint32_t> ranks;
  for (const uint32_t process : processes) {
    const int32_t rank = snapshot.processes[process].process->rank;
    if (rank >= 0) ranks.insert(static_cast<uint32_t>(rank));
  }
  return {ranks.begin(), ranks.end()};
}

// The operation in which the culprit has been waited for longest, among those where that is suspicious;
// its node, or nothing.
const WaitForGraph::Edge* FindSuspicious(const std::vector<WaitForGraph::Edge>& blames,
                                         const HangGraph& graph, const ProcessRef& culprit,
                                         const HangThresholds& thresholds) {
  const WaitForGraph::Edge* found = nullptr;
  for (const WaitForGraph::Edge& edge : blames) {
    if (!graph.graph().WaitedFor(edge.from)) continue;  // only the culprit itself is in it
    const Communicator& communicator = *graph.step(edge.from).communicator;
    if (!IsSuspicious(communicator, culprit, thresholds)) continue;
    if (found == nullptr ||
        communicator.last_step_at_ns < graph.step(found->from).communicator->last_step_at_ns) {
      found = &edge;
    }
  }
  return found;
}

Finding Describe(const JobSnapshot& snapshot, const HangGraph& graph, Node node,
                 const WaitForGraph::Edge& blame, const HangThresholds& thresholds) {
  const ProcessRef& culprit = snapshot.processes[node];
  const HangStep& step = graph.step(blame.from);

  HangCase hang;
  hang.culprit = &culprit;
  hang.communicator = step.communicator;
  hang.operation = step.operation;
  hang.absent = blame.reason == kAbsent;
  hang.point_to_point = step.point_to_point;
  std::set<uint32_t> here;
  for (const Member* member : step.waiting) {
    if (member->process == node) continue;
    hang.waiting.push_back(member);
    here.insert(member->process);
  }
  for (const Member& member : step.communicator->members) {
    if (member.process != node) continue;
    if (hang.membership == nullptr || member.state->called.count < hang.membership->called.count) {
      hang.membership = member.state;
    }
  }
  std::set<uint32_t> everywhere;
  std::set<uint64_t> communicators;
  for (const Node waiter : graph.graph().WaitersOf(node)) {
    if (graph.IsProcess(waiter)) {
      everywhere.insert(waiter);
    } else {
      communicators.insert(graph.step(waiter).communicator->id);
    }
  }
  std::set<uint32_t> elsewhere;
  std::set_difference(everywhere.begin(), everywhere.end(), here.begin(), here.end(),
                      std::inserter(elsewhere, elsewhere.end()));
  hang.waiting_ranks = JobRanks(snapshot, here);
  hang.waiting_elsewhere = JobRanks(snapshot, elsewhere);

  const bool vendor = hang.membership != nullptr && hang.membership->vendor;
  const Certainty certainty = Confirm(*step.communicator, culprit, vendor, thresholds);
  Finding finding;
  finding.culprit = culprit.process->key;
  finding.host = culprit.host->name;
  finding.rank = culprit.process->rank;
  finding.state = culprit.process->health.state;
  finding.wait_channel = culprit.process->health.wait_channel;
  finding.last_call = LastCallText(*culprit.process);
  finding.communicator_id = step.communicator->id;
  finding.operation = step.operation;
  finding.waiting = JobRanks(snapshot, everywhere);
  finding.communicators.assign(communicators.begin(), communicators.end());
  finding.since_at_ns = step.communicator->last_step_at_ns;
  finding.confidence = certainty.confidence;
  finding.confirmed_by = certainty.by;
  finding.evidence = HangEvidence(snapshot, hang, thresholds);
  finding.suggested_action = HangAction(hang);
  return finding;
}

// Processes that wait for each other in a ring which nobody outside can open. A ring that this snapshot
// shows only because its hosts were read at different moments does not stand still for long.
std::vector<Finding> Deadlocks(const JobSnapshot& snapshot, const HangGraph& graph,
                               const HangThresholds& thresholds) {
  std::vector<Finding> findings;
  for (const WaitForGraph::Cycle& cycle : graph.graph().Cycles()) {
    if (!cycle.closed) continue;
    Finding finding;
    finding.kind = CulpritKind::kAmbiguous;
    std::set<uint32_t> processes;
    std::set<uint64_t> communicators;
    int64_t standstill_ns = INT64_MAX;
    int64_t limit_ns = 0;
    std::string steps;
    for (const Node node : cycle.nodes) {
      if (graph.IsProcess(node)) {
        processes.insert(node);
        continue;
      }
      const HangStep& step = graph.step(node);
      communicators.insert(step.communicator->id);
      standstill_ns = std::min(standstill_ns, step.communicator->StandstillNs());
      limit_ns = std::max(limit_ns, SuspectAfterNs(*step.communicator, thresholds));
      if (step.communicator->last_step_at_ns > finding.since_at_ns) {
        finding.since_at_ns = step.communicator->last_step_at_ns;
        finding.communicator_id = step.communicator->id;
        finding.operation = step.operation;
      }
      std::set<uint32_t> here;
      for (const Member* member : step.waiting) here.insert(member->process);
      finding.evidence.push_back(
          {"waiting", service::Concat(service::RankListText(JobRanks(snapshot, here)), " in ",
                                      step.point_to_point ? "send or receive " : "operation ", step.operation,
                                      " of communicator ", service::CommunicatorText(step.communicator->id),
                                      " for ", service::SecondsText(step.communicator->StandstillNs()))});
    }
    if (processes.size() < 2 || standstill_ns == INT64_MAX || standstill_ns < limit_ns) continue;
    for (const uint32_t rank : JobRanks(snapshot, processes)) {
      finding.candidates.push_back(static_cast<int32_t>(rank));
    }
    std::set<uint32_t> waiting = processes;
    for (const Node waiter : graph.graph().WaitersOf(*processes.begin())) {
      if (graph.IsProcess(waiter)) waiting.insert(waiter);
    }
    finding.waiting = JobRanks(snapshot, waiting);
    finding.communicators.assign(communicators.begin(), communicators.end());
    const bool certain = standstill_ns >= Times(limit_ns, thresholds.deadlock_factor);
    finding.confidence = certain ? 0.9 : 0.5;
    if (certain) finding.confirmed_by = "deadlock";
    finding.evidence.push_back({"ring",
                                "each of these ranks waits for an operation that another of them has "
                                "not called because it waits itself: a deadlock by order of calls"});
    finding.suggested_action =
        "compare the order in which these ranks call operations of these communicators (their stacks: "
        "`c4 stacks`, `py-spy dump`, `gdb -p`): it has to be the same on all of them";
    findings.push_back(std::move(finding));
  }
  return findings;
}

// What a member of a collective shows of its ways to members on other nodes.
struct Ways {
  bool receives = false;
  bool waits = false;              // for data
  std::vector<uint32_t> sends_to;  // ranks of the communicator
};

Ways WaysOf(const Member& member) {
  Ways ways;
  for (const QueuePair& pair : member.own->queue_pairs) {
    if (!pair.connection.known) continue;
    if (pair.sends) {
      ways.sends_to.push_back(pair.peer);
      continue;
    }
    ways.receives = true;
    ways.waits = ways.waits || pair.connection.wanted > pair.connection.done;
  }
  return ways;
}

// Of members that are all inside an operation: those that wait for no data, where some do. Whose kernel hangs
// takes in nothing more, so that what its peers have sent fills all its receives, while theirs stay empty.
// Those before it are full as well, as nobody takes anything from them; behind it begin those who wait. So of
// those that are full it is one whose node sends to somebody who waits; and as nothing is seen of what moves
// within a node, it may be any of its members there that receive from no other node.
std::set<uint32_t> WaitForNoData(const JobSnapshot& snapshot, const HangStep& step) {
  std::map<const Member*, Ways> ways;
  std::set<uint32_t> waiting;  // ranks of the communicator
  std::set<const Member*> full;
  for (const Member* member : step.waiting) {
    const Ways& of = ways[member] = WaysOf(*member);
    if (of.waits) waiting.insert(member->state->rank);
    if (of.receives && !of.waits) full.insert(member);
  }
  const auto host_of = [&](const Member* member) { return snapshot.processes[member->process].host; };
  std::set<const Host*> before_waiting;
  for (const auto& [member, of] : ways) {
    if (std::any_of(of.sends_to.begin(), of.sends_to.end(),
                    [&](uint32_t peer) { return waiting.contains(peer); })) {
      before_waiting.insert(host_of(member));
    }
  }
  std::set<const Member*> last = full;
  std::erase_if(last, [&](const Member* member) { return !before_waiting.contains(host_of(member)); });
  if (last.empty()) last = full;
  if (last.size() > waiting.size()) return {};
  std::set<const Host*> hosts;
  std::set<uint32_t> idle;
  for (const Member* member : last) {
    hosts.insert(host_of(member));
    idle.insert(member->process);
  }
  for (const auto& [member, of] : ways) {
    if (!of.receives && hosts.contains(host_of(member))) idle.insert(member->process);
  }
  return idle;
}

// A communicator whose members have all entered an operation, and none goes on.
Finding DescribeStuckInside(const JobSnapshot& snapshot, const HangGraph& graph, Node node,
                            const HangThresholds& thresholds) {
  const HangStep& step = graph.step(node);
  const Communicator& communicator = *step.communicator;
  Finding finding;
  finding.syndrome = Syndrome::kCommunicationHang;
  finding.kind = CulpritKind::kAmbiguous;
  std::set<uint32_t> here;
  for (const Member* member : step.waiting) here.insert(member->process);
  std::set<uint32_t> everywhere = here;
  std::set<uint64_t> communicators = {communicator.id};
  for (const Node waiter : graph.graph().WaitersOf(node)) {
    if (graph.IsProcess(waiter)) {
      everywhere.insert(waiter);
    } else {
      communicators.insert(graph.step(waiter).communicator->id);
    }
  }
  const std::set<uint32_t> idle = WaitForNoData(snapshot, step);
  const std::set<uint32_t>& candidates = idle.empty() ? here : idle;
  if (candidates.size() == 1) {
    const ProcessRef& culprit = snapshot.processes[*candidates.begin()];
    finding.syndrome = Syndrome::kNonCommunicationHang;
    FillProcess(culprit, &finding);
    finding.kind = CulpritKind::kRank;
    everywhere.erase(*candidates.begin());
  } else {
    for (const uint32_t rank : JobRanks(snapshot, candidates))
      finding.candidates.push_back(static_cast<int32_t>(rank));
  }
  finding.waiting = JobRanks(snapshot, everywhere);
  finding.communicator_id = communicator.id;
  finding.operation = step.operation;
  finding.communicators.assign(communicators.begin(), communicators.end());
  finding.since_at_ns = communicator.last_step_at_ns;
  const int64_t standstill_ns = communicator.StandstillNs();
  const bool certain = standstill_ns >= CertainAfterNs(communicator, thresholds);
  finding.confidence = certain ? 0.9 : 0.5;
  if (certain) finding.confirmed_by = "past-limit";
  finding.evidence.push_back(
      {"inside",
       service::Concat("all ", communicator.rank_count, " ranks of communicator ",
                       service::CommunicatorText(communicator.id), " are inside operation ", step.operation,
                       " (", OperationText(step.waiting.front()->state->last_started),
                       "), and nothing of it has moved for ", service::SecondsText(standstill_ns),
                       ": one of their kernels or links hangs",
                       idle.empty() ? ", and nothing that is seen tells which" : "")});
  if (!idle.empty()) {
    finding.evidence.push_back(
        {"waiting",
         service::Concat(service::RankListText(JobRanks(snapshot, idle)), idle.size() == 1 ? " has" : " have",
                         " all the data that ", idle.size() == 1 ? "it asked" : "they asked", " for and ",
                         idle.size() == 1 ? "takes" : "take", " none of it in; the others wait for data")});
  }
  finding.suggested_action =
      "look at the GPUs of these ranks (`nvidia-smi`, `dmesg` for Xid and NVLink errors) and at their "
      "stacks; "
      "NCCL's RAS (`ncclras`) may know more; then restart the job without the node that shows errors";
  return finding;
}

}  // namespace

int64_t SuspectAfterNs(const Communicator& communicator, const HangThresholds& thresholds) {
  const int64_t usual_ns = communicator.longest_standstill_ns;
  return std::clamp(Times(usual_ns, thresholds.usual_factor), thresholds.suspect_ns,
                    std::max(thresholds.suspect_ns, thresholds.suspect_max_ns));
}

// What is usual is exceeded now and then; by minutes it is not. A pause of the job is usual for all that it
// has: another rank may be the one that writes the checkpoint, and its communicator a new one.
int64_t CertainAfterNs(const Communicator& communicator, const HangThresholds& thresholds) {
  const int64_t usual_ns = std::max(communicator.longest_standstill_ns, communicator.longest_in_job_ns);
  const auto times_ns = static_cast<int64_t>(thresholds.certain_factor * static_cast<double>(usual_ns));
  return std::max(thresholds.limit_ns, std::min(times_ns, usual_ns + thresholds.certain_more_ns));
}

bool DoesIo(const ProcessRef& ref, const HangThresholds& thresholds) {
  const Health& health = ref.process->health;
  return health.state == ProcessState::kBlocked ||
         (health.last_io_at_ns != kNever &&
          ref.host->as_of_ns - health.last_io_at_ns < thresholds.io_recent_ns);
}

std::vector<Finding> DetectStuckInside(const JobSnapshot& snapshot, const HangThresholds& thresholds) {
  const auto may_be = [&](const Communicator& communicator) {
    return communicator.waited_in && communicator.judgement == Judgement::kCanBeJudged &&
           communicator.StandstillNs() >=
               std::max(thresholds.inside_ns, SuspectAfterNs(communicator, thresholds));
  };
  std::vector<Finding> findings;
  if (std::none_of(snapshot.communicators.begin(), snapshot.communicators.end(), may_be)) return findings;
  const HangGraph graph(snapshot);
  for (const Node node : graph.EnteredByAll()) {
    if (!may_be(*graph.step(node).communicator)) continue;
    findings.push_back(DescribeStuckInside(snapshot, graph, node, thresholds));
  }
  return findings;
}

std::vector<Finding> DetectHangs(const JobSnapshot& snapshot, const HangThresholds& thresholds) {
  // A quick look, because nearly always nothing does: whoever is blamed, alone or in a ring, is waited for in
  // a communicator that has stood still for that long.
  const auto may_hang = [&](const Communicator& communicator) {
    return communicator.waited_in && communicator.StandstillNs() >= SuspectAfterNs(communicator, thresholds);
  };
  if (std::none_of(snapshot.communicators.begin(), snapshot.communicators.end(), may_hang)) return {};
  const HangGraph graph(snapshot);
  std::vector<Finding> findings;
  for (const Node culprit : graph.Culprits()) {
    const std::vector<WaitForGraph::Edge> blames = graph.graph().EdgesInto(culprit);
    const WaitForGraph::Edge* blame = FindSuspicious(blames, graph, snapshot.processes[culprit], thresholds);
    if (blame != nullptr) findings.push_back(Describe(snapshot, graph, culprit, *blame, thresholds));
  }
  for (Finding& deadlock : Deadlocks(snapshot, graph, thresholds)) findings.push_back(std::move(deadlock));
  std::stable_sort(findings.begin(), findings.end(),
                   [](const Finding& a, const Finding& b) { return a.rank < b.rank; });
  return findings;
}

}  // namespace c4::c4d
