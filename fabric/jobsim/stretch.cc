// A stretch of steps in closed form, for Physics and RankCounters: a job in its rhythm is after some hundred
// steps what it was before, but for its counters, which have grown by what a step adds to them.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "fabric/jobsim/counters.h"
#include "fabric/jobsim/physics.h"

namespace c4::jobsim {
namespace {

struct Distance {
  uint64_t behind = 0;
  uint64_t ahead = 0;
};

// Of ranks that are in these steps from those that are `place` more than a multiple of `each`.
Distance DistanceOf(uint64_t least_step, uint64_t most_step, uint64_t each, uint64_t place) {
  const uint64_t since = (most_step + each - place % each) % each;
  if (since <= most_step - least_step) return {};  // some rank is in it
  return {since - (most_step - least_step) - 1, each - since - 1};
}

void Shift(int64_t by_ns, int64_t* moment_ns) {
  if (*moment_ns > 0 && *moment_ns < kNeverNs) *moment_ns += by_ns;
}

}  // namespace

Rhythm Physics::rhythm() const {
  const auto [least, most] = std::minmax_element(
      ranks_.begin(), ranks_.end(), [](const Rank& a, const Rank& b) { return a.step < b.step; });
  // Those of the first steps that warm up are behind as well.
  const uint64_t warm = std::max<uint64_t>(1, shape_.warm_up_steps);
  if (least->step <= warm + kStepsKept) return {};
  Rhythm rhythm{least->step - warm, UINT64_MAX, 0};
  const auto apply = [&](uint64_t each, uint64_t place) {
    if (each == 0) return;
    const Distance distance = DistanceOf(least->step, most->step, each, place);
    rhythm.behind = std::min(rhythm.behind, distance.behind);
    rhythm.ahead = std::min(rhythm.ahead, distance.ahead);
  };
  apply(shape_.checkpoint_steps, 0);
  apply(shape_.evaluation_batches == 0 ? 0 : shape_.evaluation_steps,
        shape_.evaluation_steps == 0 ? 0 : shape_.evaluation_steps - 1);
  apply(shape_.stall_steps, shape_.stall_steps / 2);
  if (shape_.steps != 0)
    rhythm.ahead = std::min(rhythm.ahead, shape_.steps - std::min(shape_.steps, most->step + 1));
  const uint64_t step = ranks_.front().step;
  const int64_t last_ns = stepped_ns_[(step - 1) % kStepsKept];
  const int64_t first_ns = stepped_ns_[step % kStepsKept];
  if (rhythm.behind > kStepsKept)
    rhythm.step_ns = (last_ns - first_ns) / static_cast<int64_t>(kStepsKept - 1);
  return rhythm;
}

int64_t Physics::Skip(uint64_t steps) {
  const int64_t by_ns = static_cast<int64_t>(steps) * rhythm().step_ns;
  for (uint32_t number = 0; number < ranks_.size(); ++number) {
    Rank& rank = ranks_[number];
    rank.step += steps;
    for (const Instruction& what : training(number).instructions) {
      if (what.work == Work::kCompute || what.work == Work::kSend) rank.kernels += steps;
      if (what.is_collective()) rank.operations[static_cast<size_t>(what.role)] += steps;
    }
    Shift(by_ns, &rank.cpu_ns);
    Shift(by_ns, &rank.launched_ns);
    for (int64_t& moment_ns : rank.free_ns) Shift(by_ns, &moment_ns);
    for (int64_t& moment_ns : rank.begun_ns) Shift(by_ns, &moment_ns);
    for (int64_t& moment_ns : rank.done_ns) Shift(by_ns, &moment_ns);
    for (Event& event : rank.events) {
      Shift(by_ns, &event.at_ns);
      Shift(by_ns, &event.begun_ns);
    }
  }
  for (uint32_t group = 0; group < meetings_.size(); ++group) {
    const Group& of = layout_.groups[group];
    for (const Instruction& what : training(of.ranks.front()).instructions) {
      if (what.is_collective() && what.role == of.role) meetings_[group].first += steps;
    }
    for (Meeting& meeting : meetings_[group].open) {
      for (int64_t& moment_ns : meeting.begun_ns) Shift(by_ns, &moment_ns);
      Shift(by_ns, &meeting.last_ns);
      Shift(by_ns, &meeting.end_ns);
    }
  }
  for (auto& [edge, arrivals] : messages_) {
    for (int64_t& moment_ns : arrivals) Shift(by_ns, &moment_ns);
  }
  for (int64_t& moment_ns : stepped_ns_) Shift(by_ns, &moment_ns);
  std::rotate(stepped_ns_.begin(),
              stepped_ns_.begin() + static_cast<ptrdiff_t>(kStepsKept - steps % kStepsKept),
              stepped_ns_.end());
  Shift(by_ns, &last_event_ns_);
  return by_ns;
}

void RankCounters::Mark(int64_t at_ns) {
  mark_ns_ = at_ns;
  mark_inside_ns_ = inside_ns(at_ns);
  for (MemberCounters& member : members_) {
    for (EdgeCount& edge : member.receives) {
      edge.mark_first_waits = edge.first_waits;
      edge.mark_first_wait_sum_ns = edge.first_wait_sum_ns;
    }
  }
}

namespace {

// So many chunks more, spread as those were that came before.
void Spread(uint64_t chunks, FlowCount* flow) {
  const uint64_t all = std::accumulate(flow->latency.begin(), flow->latency.end(), uint64_t{0});
  if (all == 0) return;
  const double times = static_cast<double>(chunks) / static_cast<double>(all);
  flow->latency_sum_ns += static_cast<uint64_t>(times * static_cast<double>(flow->latency_sum_ns));
  double wanted = 0;
  uint64_t given = 0;
  for (uint32_t& bucket : flow->latency) {
    wanted += times * bucket;
    const uint64_t more = static_cast<uint64_t>(std::llround(wanted)) - given;
    bucket += static_cast<uint32_t>(more);
    given += more;
  }
}

struct OfStep {
  uint64_t operations = 0;
  uint64_t chunks = 0;  // on each flow
};

template <typename Counts>
OfStep Sum(const Program& program, const Counts& counts) {
  OfStep sum;
  for (const Instruction& what : program.instructions) {
    if (what.work == Work::kCompute || !counts(what)) continue;
    ++sum.operations;
    sum.chunks += what.chunks;
  }
  return sum;
}

}  // namespace

void RankCounters::Skip(uint64_t steps, int64_t at_ns, int64_t by_ns) {
  const Program& program = physics_.training(rank_);
  const double share = at_ns <= mark_ns_ ? 0
                                         : static_cast<double>(inside_ns(at_ns) - mark_inside_ns_) /
                                               static_cast<double>(at_ns - mark_ns_);
  inside_ns_ += static_cast<uint64_t>(share * static_cast<double>(by_ns));
  if (open_ > 0) open_since_ns_ += by_ns;
  for (size_t i = 0; i < kRoles; ++i) {
    const auto role = static_cast<Role>(i);
    const Place& place = physics_.layout().place(rank_, role);
    if (place.group == kNoGroup) continue;
    MemberCounters& member = members_[i];
    const OfStep all = Sum(program, [&](const Instruction& what) { return what.role == role; });
    for (Count* count : {&member.called, &member.started, &member.finished}) {
      count->count += steps * all.operations;
      Shift(by_ns, &count->last_ns);
    }
    finished_ += steps * all.operations;
    const auto skip = [&](const std::vector<uint32_t>& edges, bool sends, std::vector<EdgeCount>* counts) {
      for (size_t edge = 0; edge < edges.size(); ++edge) {
        const Edge& of = physics_.network().edges(place.group)[edges[edge]];
        const OfStep here = Sum(program, [&](const Instruction& what) {
          if (what.role != role) return false;
          return what.is_collective() || (what.work == (sends ? Work::kSend : Work::kReceive) &&
                                          what.peer == (sends ? of.to : of.from));
        });
        SkipEdge(steps * here.operations, steps * here.chunks, by_ns, sends, &(*counts)[edge]);
      }
    };
    skip(physics_.network().sends(place.group, place.member), true, &member.sends);
    skip(physics_.network().receives(place.group, place.member), false, &member.receives);
  }
}

void RankCounters::SkipEdge(uint64_t operations, uint64_t chunks, int64_t by_ns, bool sends,
                            EdgeCount* edge) {
  edge->operations += operations;
  Shift(by_ns, &edge->last_post_ns);
  Shift(by_ns, &edge->last_done_ns);
  for (FlowCount& flow : edge->flows) {
    flow.chunks += chunks;
    if (sends) Spread(chunks, &flow);
  }
  const uint64_t waits = edge->first_waits - edge->mark_first_waits;
  if (sends || waits == 0) return;
  const double each_ns = static_cast<double>(edge->first_wait_sum_ns - edge->mark_first_wait_sum_ns) /
                         static_cast<double>(waits);
  edge->first_waits += operations;
  edge->first_wait_sum_ns += static_cast<uint64_t>(each_ns * static_cast<double>(operations));
}

}  // namespace c4::jobsim
