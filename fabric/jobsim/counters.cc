#include "fabric/jobsim/counters.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "fabric/jobsim/dice.h"

namespace c4::jobsim {
namespace {

constexpr double kChunkNs = 60'000;  // what a chunk usually costs its path
constexpr uint32_t kLostOneOf = 8;   // chunks of a lossy path, that wait for a time-out
constexpr double kLostFactor = 10;

bool Lasts(const Fault& fault, int64_t at_ns) {
  return at_ns >= fault.at_ns && (fault.lasts_ns >= kNeverNs || at_ns < fault.at_ns + fault.lasts_ns);
}

}  // namespace

uint32_t ChunksOf(const Physics& physics, const Edge& edge, const Flow& flow, const Instruction& what,
                  int64_t at_ns) {
  const bool shares =
      physics.shape().engine == Engine::kHost && what.is_collective() && edge.flows.size() > 1;
  // What was given to one that is dead stays there.
  const bool slow = flow.factor > 1 && flow.factor < kDead;
  if (!shares || !slow || !Lasts(physics.fault(), at_ns)) return what.chunks;
  return std::max(1U, static_cast<uint32_t>(what.chunks / flow.factor));
}

// An operation's chunks on one path fare much alike, a few of them worse.
void AddLatency(const Physics& physics, const Flow& flow, uint64_t operation, int64_t begun_ns,
                uint64_t chunks, uint64_t done, FlowCount* to) {
  const Fault& fault = physics.fault();
  const bool hit = Lasts(fault, begun_ns) && flow.factor > 1 && flow.factor < kDead;
  const bool lossy = hit && fault.kind == FaultKind::kLossyNic;
  const uint64_t chance = Mix({physics.seed(), 0x11a7, flow.number, operation});
  const double usual_ns =
      kChunkNs * std::exp(physics.shape().link_noise * Normal(chance)) * (hit ? flow.factor : 1);
  const uint64_t bad = std::max<uint64_t>(lossy ? 1 : 0, lossy ? chunks / kLostOneOf : chunks / 6);
  const double bad_ns = usual_ns * (lossy ? kLostFactor : 1.6);
  const uint64_t good_done = std::min(done, chunks - std::min(chunks, bad));
  for (const auto& [number, ns] : {std::pair(good_done, usual_ns), std::pair(done - good_done, bad_ns)}) {
    if (number == 0) continue;
    const auto each_ns = static_cast<uint64_t>(ns);
    to->latency[static_cast<size_t>(wire::LatencyBucket(each_ns, kChunkBytes))] +=
        static_cast<uint32_t>(number);
    to->latency_sum_ns += each_ns * number;
    to->latency_max_ns = std::max(to->latency_max_ns, each_ns);
  }
}

RankCounters::RankCounters(const Physics& physics, uint32_t rank) : physics_(physics), rank_(rank) {
  for (size_t role = 0; role < kRoles; ++role) {
    const Place& place = physics.layout().places[rank][role];
    if (place.group == kNoGroup) continue;
    const Network& network = physics.network();
    const auto fill = [&](const std::vector<uint32_t>& edges, std::vector<EdgeCount>* counts) {
      counts->resize(edges.size());
      for (size_t i = 0; i < edges.size(); ++i) {
        (*counts)[i].flows.resize(network.edges(place.group)[edges[i]].flows.size());
      }
    };
    fill(network.sends(place.group, place.member), &members_[role].sends);
    fill(network.receives(place.group, place.member), &members_[role].receives);
  }
}

void RankCounters::Apply(const Event& event) {
  MemberCounters& member = members_[static_cast<size_t>(event.what->role)];
  switch (event.kind) {
    case EventKind::kCalled:
      member.called = {member.called.count + 1, event.at_ns};
      member.last_called = event.what;
      if (event.odd) member.odd_operation = member.called.count;
      break;
    case EventKind::kStarted:
      member.started = {member.started.count + 1, event.at_ns};
      member.last_started = event.what;
      member.open.push_back(event.what);
      if (open_++ == 0) open_since_ns_ = event.at_ns;
      if (first_started_ns_ == 0) first_started_ns_ = event.at_ns;
      break;
    case EventKind::kFinished:
      Finish(event, &member);
      break;
  }
}

void RankCounters::Finish(const Event& event, MemberCounters* member) {
  const int64_t before_ns = member->finished.last_ns;
  const bool first = member->finished.count == 0;
  member->finished = {member->finished.count + 1, event.at_ns};
  const auto open = std::find(member->open.begin(), member->open.end(), event.what);
  if (open != member->open.end()) member->open.erase(open);
  ++finished_;
  if (open_ > 0 && --open_ == 0) inside_ns_ += static_cast<uint64_t>(event.at_ns - open_since_ns_);
  auto summary = std::find_if(member->summaries.begin(), member->summaries.end(),
                              [&](const Summary& s) { return s.work == event.what->work; });
  if (summary == member->summaries.end()) {
    summary = member->summaries.insert(summary, Summary{});
    summary->work = event.what->work;
  }
  const auto lasted_ns = static_cast<uint64_t>(event.at_ns - event.begun_ns);
  ++summary->operations;
  summary->elements += event.what->chunks * kChunkBytes / 2;
  summary->duration_sum_ns += lasted_ns;
  summary->duration_max_ns = std::max(summary->duration_max_ns, lasted_ns);
  if (!first) {
    summary->gap_max_ns = std::max(summary->gap_max_ns, static_cast<uint64_t>(event.at_ns - before_ns));
  }
  const Place& place = physics_.layout().place(rank_, event.what->role);
  const Network& network = physics_.network();
  const std::vector<Edge>& edges = network.edges(place.group);
  const bool point_to_point = !event.what->is_collective();
  const auto& sends = network.sends(place.group, place.member);
  for (size_t i = 0; i < sends.size(); ++i) {
    if (point_to_point && (event.what->work != Work::kSend || edges[sends[i]].to != event.what->peer))
      continue;
    Carry(event, edges[sends[i]], true, &member->sends[i]);
  }
  const auto& receives = network.receives(place.group, place.member);
  for (size_t i = 0; i < receives.size(); ++i) {
    if (point_to_point && (event.what->work != Work::kReceive || edges[receives[i]].from != event.what->peer))
      continue;
    Carry(event, edges[receives[i]], false, &member->receives[i]);
    ++member->receives[i].first_waits;
    const auto waited_ns = static_cast<uint64_t>(event.waited_ns);
    member->receives[i].first_wait_sum_ns += waited_ns;
    member->receives[i].first_wait_max_ns = std::max(member->receives[i].first_wait_max_ns, waited_ns);
  }
}

void RankCounters::Carry(const Event& event, const Edge& edge, bool sends, EdgeCount* count) {
  count->last_done_ns = event.at_ns;
  count->last_post_ns = event.at_ns;
  for (size_t i = 0; i < edge.flows.size(); ++i) {
    const Flow& flow = edge.flows[i];
    FlowCount& to = count->flows[i];
    const uint32_t chunks = ChunksOf(physics_, edge, flow, *event.what, event.at_ns);
    to.chunks += chunks;
    if (sends) AddLatency(physics_, flow, count->operations, event.begun_ns, chunks, chunks, &to);
  }
  ++count->operations;
}

uint64_t RankCounters::inside_ns(int64_t at_ns) const {
  return inside_ns_ + static_cast<uint64_t>(open_ == 0 ? 0 : std::max<int64_t>(0, at_ns - open_since_ns_));
}

void RankCounters::ForgetTally(int64_t at_ns) {
  finished_ = 0;
  inside_ns_ = 0;
  open_since_ns_ = std::max(open_since_ns_, at_ns);
}

}  // namespace c4::jobsim
