#include "fabric/jobsim/under_way.h"

#include <algorithm>

namespace c4::jobsim {
namespace {

constexpr uint64_t kInFlight = 4;  // chunks of a flow

// What came while not all were there has come, and stays.
Under With(const Under& before, uint64_t chunks, Under under) {
  under.post_ns = std::max(under.post_ns, before.post_ns);
  under.done_ns = std::max(under.done_ns, before.done_ns);
  under.done = std::max(under.done, std::min(chunks, before.done));
  under.posted = std::max(under.posted, under.done);
  under.granted = std::max(under.granted, under.posted);
  under.wanted = std::max(under.wanted, under.granted);
  return under;
}

}  // namespace

void Under::Add(const Under& from) {
  wanted += from.wanted;
  granted += from.granted;
  posted += from.posted;
  done += from.done;
  post_ns = std::max(post_ns, from.post_ns);
  done_ns = std::max(done_ns, from.done_ns);
}

// A collective that not all have entered: the first chunk of each that is there goes to those who are.
Under UnderWay::Waiting(const OpenOperation& op, const Edge& edge, bool sends) const {
  const auto is_there = [&op, this](uint32_t member) {
    const int64_t begun_ns = op.meeting->begun_ns[member];
    return begun_ns >= 0 && begun_ns <= at_ns_;
  };
  const bool both = is_there(edge.from) && is_there(edge.to);
  const int64_t met_ns = both ? std::max(op.meeting->begun_ns[edge.from], op.meeting->begun_ns[edge.to]) : 0;
  const bool moves = both && Passes(edge, met_ns);
  const uint64_t first = std::min<uint64_t>(1, op.what->chunks);
  Under under;
  under.wanted = first;
  under.granted = sends ? (both ? first : 0) : first;
  under.posted = sends ? under.granted : first;
  under.done = moves ? first : 0;
  under.post_ns = under.posted > 0 ? std::max(met_ns, op.meeting->begun_ns[place_.member]) : 0;
  under.done_ns = moves ? met_ns : 0;
  return under;
}

bool UnderWay::Passes(const Edge& edge, int64_t then_ns) const {
  return edge.factor != kDead || then_ns < physics_.fault().at_ns;
}

Under UnderWay::Running(const OpenOperation& op, uint64_t chunks) const {
  const int64_t all_ns = std::max<int64_t>(1, op.meeting->end_ns - op.meeting->last_ns);
  const double share =
      std::clamp(static_cast<double>(at_ns_ - op.meeting->last_ns) / static_cast<double>(all_ns), 0.0, 1.0);
  Under under;
  under.done = static_cast<uint64_t>(share * static_cast<double>(chunks));
  under.wanted = under.granted = under.posted = std::min(chunks, under.done + 2);
  const int64_t each_ns = all_ns / static_cast<int64_t>(std::max<uint64_t>(1, chunks));
  under.done_ns = op.meeting->last_ns + static_cast<int64_t>(under.done) * each_ns;
  under.post_ns = under.done_ns;
  if (under.done == 0) under.done_ns = 0;
  return under;
}

// What comes behind the place where it hangs gets nothing; what is before it cannot get rid of its own.
Under UnderWay::Stalled(const OpenOperation& op, const Edge& edge, const Flow& flow, bool sends,
                        uint64_t chunks) const {
  Under under;
  under.done =
      std::min<uint64_t>(chunks - 1, static_cast<uint64_t>(op.meeting->done * static_cast<double>(chunks)));
  under.wanted = under.granted = under.posted = under.done;
  under.done_ns = under.done > 0 ? op.meeting->stalled_ns : 0;
  under.post_ns = op.meeting->stalled_ns;
  const uint64_t more = std::min(chunks, under.done + kInFlight);
  const auto size = static_cast<uint32_t>(op.meeting->begun_ns.size());
  if (!op.meeting->stuck_itself && edge.factor == kDead) {
    // Lost on its way; of an edge that is dead in part, what the others carry has come.
    if (!sends || flow.factor == kDead) under.wanted = under.granted = under.posted = more;
    return under;
  }
  const bool into = edge.to == op.meeting->stuck_member;
  const bool out = edge.from == op.meeting->stuck_member;
  const bool starved = out || (!into && (edge.from + size - op.meeting->stuck_member) % size < size / 2);
  if (op.meeting->stuck_itself && (into || out)) {
    // Its kernel neither takes nor gives.
    if (into && sends) under.wanted = more;
    if (out && !sends) under.wanted = under.granted = under.posted = more;
    return under;
  }
  if (starved) {
    if (!sends) under.wanted = under.granted = under.posted = more;
  } else if (sends) {
    under.wanted = more;
  }
  return under;
}

Under UnderWay::Message(const Edge& edge, const Flow& flow, bool sends, const Instruction& what) const {
  const uint32_t peer = sends ? edge.to : edge.from;
  if (what.peer != peer || (what.work == Work::kSend) != sends) return {};
  Under under;
  under.wanted = what.chunks;
  const int64_t begun_ns = started_ns_;
  if (!sends) {
    under.granted = under.posted = what.chunks;
    under.post_ns = begun_ns;
    return under;
  }
  under.granted = what.chunks;
  under.posted = std::min<uint64_t>(what.chunks, kInFlight);
  under.post_ns = begun_ns;
  if (edge.factor == kDead && flow.factor != kDead && at_ns_ >= physics_.fault().at_ns) {
    under.done = under.posted;
    under.done_ns = begun_ns;
  }
  return under;
}

Under UnderWay::Of(const OpenOperation& op, const Edge& edge, const Flow& flow, bool sends) const {
  if (group_.point_to_point()) return Message(edge, flow, sends, *op.what);
  if (op.meeting == nullptr) return {};
  const bool all = op.meeting->end_ns >= 0 && op.meeting->last_ns <= at_ns_;
  if (!all) return Waiting(op, edge, sends);
  const uint64_t chunks = ChunksOf(physics_, edge, flow, *op.what, op.meeting->end_ns);
  const Under before = Waiting(op, edge, sends);
  if (op.meeting->end_ns < kNeverNs) return With(before, chunks, Running(op, chunks));
  if (at_ns_ < op.meeting->stalled_ns) return With(before, chunks, Under());
  // An operation that never ends has not had its last chunk over what is dead.
  const bool dead = !op.meeting->stuck_itself && edge.factor == kDead && (!sends || flow.factor == kDead);
  return With(before, dead ? chunks - 1 : chunks, Stalled(op, edge, flow, sends, chunks));
}

}  // namespace c4::jobsim
