#include "c4d_master/detectors/hang.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <utility>

#include "analysis/wait_for.h"
#include "c4d_master/detectors/hang_evidence.h"
#include "service/text.h"
#include "service/verdict_json.h"

namespace c4::c4d {
namespace {

using analysis::WaitForGraph;
using Node = WaitForGraph::Node;

enum Reason : uint64_t { kInside = 0, kAbsent = 1, kCannotRun = 2 };

// An operation of a communicator that some members wait in: a node of the graph, so that n waiting and m
// absent ranks make n + m edges, not n x m. A send or receive is a step of its own.
struct Step {
  const Communicator* communicator = nullptr;
  uint64_t operation = 0;
  std::vector<const Member*> waiting;
  bool point_to_point = false;
};

// The other end of `mine`, as `membership` has it.
const QueuePair* FindConnection(const Membership& membership, uint32_t peer, const QueuePair& mine) {
  for (const QueuePair& queue_pair : membership.queue_pairs) {
    if (queue_pair.connection.known && queue_pair.peer == peer && queue_pair.sends != mine.sends &&
        queue_pair.channel == mine.channel && queue_pair.carrier == mine.carrier) {
      return &queue_pair;
    }
  }
  return nullptr;
}

// Whether the end that `mine` belongs to waits for its peer to come (not for the network): it receives and
// the peer has handed nothing over, or it sends and the peer has posted no receive.
bool PeerIsAbsent(const Connection& mine, bool sends, const Connection& theirs) {
  if (sends) return mine.wanted > mine.granted && theirs.wanted == theirs.done;
  return mine.wanted > mine.done && theirs.wanted == theirs.done;
}

// Whether a member has come to an operation. On a GPU a call says nothing of that: it is made ahead, and its
// kernel waits for what is before it on its stream. If that is an operation of another communicator, the
// process waits in it, and the graph goes on from there; if not, its GPU is busy with something of its own.
bool HasCome(const Membership& membership, uint64_t operation) {
  const Counter& come = membership.vendor && membership.sees_kernels ? membership.started : membership.called;
  return come.count > operation;
}

class HangGraph {
 public:
  explicit HangGraph(const JobSnapshot& snapshot) : snapshot_(snapshot), graph_(snapshot.processes.size()) {
    for (const Communicator& communicator : snapshot.communicators) Add(communicator);
  }

  // Processes that others wait for and that wait for nobody.
  std::vector<Node> Culprits() const {
    std::vector<Node> culprits;
    for (const Node root : graph_.Roots()) {
      if (IsProcess(root)) culprits.push_back(root);
    }
    return culprits;
  }

  bool IsProcess(Node node) const { return node < snapshot_.processes.size(); }
  const Step& step(Node node) const { return steps_[node - snapshot_.processes.size()]; }
  const WaitForGraph& graph() const { return graph_; }

 private:
  void Add(const Communicator& communicator) {
    std::map<uint64_t, std::vector<const Member*>> waiting;  // by operation
    std::vector<const Member*> joining;
    for (const Member& member : communicator.members) {
      if (IsWaitingForPeer(*snapshot_.processes[member.process].process, *member.state)) {
        AddPeers(communicator, member);
      }
    }
    for (const Member& member : communicator.members) {
      const Process& process = *snapshot_.processes[member.process].process;
      if (IsWaiting(process, *member.state)) {
        waiting[member.state->finished.count].push_back(&member);
      } else if (member.state->phase == Phase::kInit && !process.ended && !CannotRun(process.health.state)) {
        joining.push_back(&member);
      }
    }
    for (const auto& [operation, members] : waiting) {
      const Node node = AddStep({&communicator, operation, members});
      const std::set<uint32_t> held_up_by = AddTargets(communicator, operation, node);
      for (const Member* member : members) {
        // A process with several ranks of one communicator that has yet to call for one of them waits
        // for nobody but itself.
        if (held_up_by.count(member->process) == 0) graph_.AddEdge(member->process, node, kInside);
      }
    }
    // Who waits for its peers to join is held up by somebody too, though nobody here can say by whom.
    if (!joining.empty()) {
      const Node node = AddStep({&communicator, 0, joining});
      for (const Member* member : joining) graph_.AddEdge(member->process, node, kInside);
    }
  }

  // A member inside a group of sends and receives: for whom of its peers it waits.
  void AddPeers(const Communicator& communicator, const Member& member) {
    const Node node = AddStep({&communicator, member.state->p2p_finished.count, {&member}, true});
    graph_.AddEdge(member.process, node, kInside);
    if (snapshot_.processes[member.process].stale) return;
    std::set<uint32_t> targets;
    for (const QueuePair& mine : member.state->queue_pairs) {
      if (!mine.connection.known || mine.connection.wanted == mine.connection.done) continue;
      const auto peer = std::find_if(communicator.members.begin(), communicator.members.end(),
                                     [&](const Member& other) { return other.state->rank == mine.peer; });
      if (peer == communicator.members.end() || peer->process == member.process) continue;
      const ProcessRef& ref = snapshot_.processes[peer->process];
      if (ref.stale || ref.process->ended) continue;
      const QueuePair* theirs = FindConnection(*peer->state, member.state->rank, mine);
      const bool absent = theirs == nullptr || PeerIsAbsent(mine.connection, mine.sends, theirs->connection);
      if (!absent && !CannotRun(ref.process->health.state)) continue;
      if (targets.insert(peer->process).second)
        graph_.AddEdge(node, peer->process, absent ? kAbsent : kCannotRun);
    }
  }

  Node AddStep(Step step) {
    steps_.push_back(std::move(step));
    return graph_.AddNode();
  }

  // Where not all members are known, who can run is not blamed: it may wait for the unknown ones.
  std::set<uint32_t> AddTargets(const Communicator& communicator, uint64_t operation, Node node) {
    std::set<uint32_t> targets;
    if (communicator.judgement == Judgement::kNotReady) return targets;
    const bool all_known = communicator.judgement == Judgement::kCanBeJudged;
    for (const Member& member : communicator.members) {
      const ProcessRef& ref = snapshot_.processes[member.process];
      const Process& process = *ref.process;
      if (process.ended || (!all_known && (ref.stale || !CannotRun(process.health.state)))) continue;
      const bool absent = !HasCome(*member.state, operation);
      const bool stuck = CannotRun(process.health.state) && member.state->finished.count <= operation;
      if (!absent && !stuck) continue;
      if (targets.insert(member.process).second)
        graph_.AddEdge(node, member.process, absent ? kAbsent : kCannotRun);
    }
    return targets;
  }

  const JobSnapshot& snapshot_;
  WaitForGraph graph_;
  std::vector<Step> steps_;
};

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

Certainty Confirm(const Communicator& communicator, const ProcessRef& culprit,
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
  if (health.last_progress_at_ns != kNever &&
      culprit.host->as_of_ns - health.last_progress_at_ns >= thresholds.no_progress_ns) {
    return {"no-progress", 0.95};
  }
  if (communicator.StandstillNs() >= CertainAfterNs(communicator, thresholds)) return {"past-limit", 0.9};
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
  const Step& step = graph.step(blame.from);

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

  const Certainty certainty = Confirm(*step.communicator, culprit, thresholds);
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
      const Step& step = graph.step(node);
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
    const bool certain = standstill_ns >= 2 * limit_ns;
    finding.confidence = certain ? 0.9 : 0.5;
    if (certain) finding.confirmed_by = "deadlock";
    finding.evidence.push_back({"ring",
                                "each of these ranks waits for an operation that another of them has "
                                "not called because it waits itself: a deadlock by order of calls"});
    finding.suggested_action =
        "compare the order in which these ranks call operations of these communicators (their stacks: "
        "`py-spy dump`, `gdb -p`): it has to be the same on all of them";
    findings.push_back(std::move(finding));
  }
  return findings;
}

}  // namespace

int64_t SuspectAfterNs(const Communicator& communicator, const HangThresholds& thresholds) {
  const int64_t usual_ns = communicator.longest_standstill_ns;
  return std::clamp(usual_ns + usual_ns / 2, thresholds.suspect_ns,
                    std::max(thresholds.suspect_ns, thresholds.suspect_max_ns));
}

int64_t CertainAfterNs(const Communicator& communicator, const HangThresholds& thresholds) {
  return std::max(thresholds.limit_ns, 5 * communicator.longest_standstill_ns);
}

std::vector<Finding> DetectHangs(const JobSnapshot& snapshot, const HangThresholds& thresholds) {
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
