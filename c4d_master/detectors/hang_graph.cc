#include "c4d_master/detectors/hang_graph.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

namespace c4::c4d {
namespace {

using EndKey = std::tuple<uint32_t, bool, uint32_t, Carrier>;

EndKey KeyOf(const QueuePair& end) {
  return {end.peer, end.sends, end.channel, end.carrier};
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

}  // namespace

HangGraph::HangGraph(const JobSnapshot& snapshot) : snapshot_(snapshot), graph_(snapshot.processes.size()) {
  for (const Communicator& communicator : snapshot.communicators) {
    if (communicator.waited_in || communicator.joining) Add(communicator);
  }
  ends_.clear();
}

// An all-to-all group has as many connections as pairs of ranks: each is found without looking at the others.
const QueuePair* HangGraph::FindOtherEnd(const Membership& membership, uint32_t peer, const QueuePair& mine) {
  const auto [at, is_new] = ends_.try_emplace(&membership);
  std::vector<const QueuePair*>& ends = at->second;
  if (is_new) {
    for (const QueuePair& queue_pair : membership.queue_pairs) {
      if (queue_pair.connection.known) ends.push_back(&queue_pair);
    }
    std::stable_sort(ends.begin(), ends.end(),
                     [](const QueuePair* a, const QueuePair* b) { return KeyOf(*a) < KeyOf(*b); });
  }
  const EndKey other{peer, !mine.sends, mine.channel, mine.carrier};
  const auto found =
      std::lower_bound(ends.begin(), ends.end(), other,
                       [](const QueuePair* end, const EndKey& key) { return KeyOf(*end) < key; });
  return found != ends.end() && KeyOf(**found) == other ? *found : nullptr;
}

std::vector<HangGraph::Node> HangGraph::Culprits() const {
  std::vector<Node> culprits;
  for (const Node root : graph_.Roots()) {
    if (IsProcess(root)) culprits.push_back(root);
  }
  return culprits;
}

std::vector<HangGraph::Node> HangGraph::EnteredByAll() const {
  std::vector<Node> entered;
  for (const Node root : graph_.Roots()) {
    if (IsProcess(root) || step(root).point_to_point) continue;
    if (step(root).communicator->judgement == Judgement::kCanBeJudged) entered.push_back(root);
  }
  return entered;
}

void HangGraph::Add(const Communicator& communicator) {
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

void HangGraph::AddPeers(const Communicator& communicator, const Member& member) {
  const Node node = AddStep({&communicator, member.state->p2p_finished.count, {&member}, true});
  graph_.AddEdge(member.process, node, kInside);
  if (snapshot_.processes[member.process].stale) return;
  std::set<uint32_t> targets;
  for (const QueuePair& mine : member.own->queue_pairs) {
    if (!mine.connection.known || mine.connection.wanted == mine.connection.done) continue;
    const Member* peer = communicator.FindRank(mine.peer);
    if (peer == nullptr || peer->process == member.process) continue;
    const ProcessRef& ref = snapshot_.processes[peer->process];
    if (ref.stale || ref.process->ended) continue;
    const QueuePair* theirs = FindOtherEnd(*peer->own, member.state->rank, mine);
    const bool absent = theirs == nullptr || PeerIsAbsent(mine.connection, mine.sends, theirs->connection);
    if (!absent && !CannotRun(ref.process->health.state)) continue;
    if (targets.insert(peer->process).second)
      graph_.AddEdge(node, peer->process, absent ? kAbsent : kCannotRun);
  }
}

HangGraph::Node HangGraph::AddStep(HangStep step) {
  steps_.push_back(std::move(step));
  return graph_.AddNode();
}

std::set<uint32_t> HangGraph::AddTargets(const Communicator& communicator, uint64_t operation, Node node) {
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

}  // namespace c4::c4d
