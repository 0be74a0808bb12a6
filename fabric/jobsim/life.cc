#include "fabric/jobsim/life.h"

#include <algorithm>
#include <numeric>

#include "fabric/jobsim/dice.h"

namespace c4::jobsim {
namespace {

int64_t Seconds(uint64_t chance, double least, double most) {
  return static_cast<int64_t>(LogBetween(chance, least, most) * 1e9);
}

Life FirstLife(const Shape& shape, uint64_t seed) {
  Life life;
  life.shape = shape;
  life.seed = seed;
  life.hosts.resize(shape.nodes());
  std::iota(life.hosts.begin(), life.hosts.end(), 0U);
  return life;
}

// Without some of its replicas, and the nodes that these leave; never without all but one.
Life Shrunk(const Life& before, uint64_t chance, std::vector<uint32_t>* left) {
  Life life = before;
  const uint32_t group = std::max(1U, life.shape.expert);
  const uint32_t fewer = group * static_cast<uint32_t>(1 + chance % 2);
  if (life.shape.data < fewer + 2 * group) return life;
  life.shape.data -= fewer;
  // Any node may be the one that does not come back.
  const size_t gone = life.hosts.size() - life.shape.nodes();
  for (size_t i = 0; i < gone; ++i) {
    const auto at = static_cast<ptrdiff_t>(Mix({chance, i}) % life.hosts.size());
    left->push_back(life.hosts[static_cast<size_t>(at)]);
    life.hosts.erase(life.hosts.begin() + at);
  }
  return life;
}

// Agents restart and stall and clocks step about once in `each_ns`.
void AddAgentEvents(int64_t lasts_ns, int64_t each_ns, uint64_t seed, JobPlan* plan) {
  for (int64_t at_ns = each_ns / 4; at_ns + each_ns / 2 < lasts_ns; at_ns += each_ns) {
    const auto number = static_cast<uint64_t>(at_ns);
    AgentEvent event;
    event.host = static_cast<uint32_t>(Mix({seed, 21, number}) % plan->hosts);
    event.at_ns = at_ns + static_cast<int64_t>(Mix({seed, 22, number}) % static_cast<uint64_t>(each_ns / 2));
    // The node of rank 0, which writes, as often as all others together.
    if (Mix({seed, 23, number}) % 2 == 0) event.host = 0;
    switch (Mix({seed, 24, number}) % 3) {
      case 0:
        event.kind = AgentEventKind::kRestart;
        event.lasts_ns = Seconds(Mix({seed, 25, number}), 0.5, 8);
        break;
      case 1:
        event.kind = AgentEventKind::kStall;
        event.lasts_ns = Seconds(Mix({seed, 26, number}), 0.5, 40);
        break;
      default:
        event.kind = AgentEventKind::kClockStep;
        event.step_ns = Seconds(Mix({seed, 27, number}), 0.01, 3600);
        if (Mix({seed, 28, number}) % 2 == 0) event.step_ns = -event.step_ns;
        break;
    }
    plan->agents.push_back(event);
  }
}

}  // namespace

JobPlan PlanOf(const Shape& shape, const Fault& fault, uint64_t seed) {
  JobPlan plan;
  plan.hosts = shape.nodes();
  plan.lives.push_back(FirstLife(shape, seed));
  plan.lives.front().fault = fault;
  AgentEvent event{.host = shape.node(fault.rank), .at_ns = fault.at_ns};
  switch (fault.kind) {
    case FaultKind::kLostNode:
      event.kind = AgentEventKind::kGone;
      break;
    case FaultKind::kAgentRestart:
      event.kind = AgentEventKind::kRestart;
      event.lasts_ns = Seconds(Mix({seed, 31}), 0.5, 20);
      break;
    case FaultKind::kAgentStall:
      event.kind = AgentEventKind::kStall;
      event.lasts_ns = Seconds(Mix({seed, 32}), 0.5, 60);
      break;
    case FaultKind::kClockStep:
      event.kind = AgentEventKind::kClockStep;
      event.step_ns = Seconds(Mix({seed, 33}), 0.01, 100'000) * (Mix({seed, 34}) % 2 == 0 ? 1 : -1);
      break;
    default:
      return plan;
  }
  plan.agents.push_back(event);
  return plan;
}

JobPlan HealthyPlan(const Shape& shape, bool busy, int64_t lasts_ns, uint64_t seed) {
  JobPlan plan;
  plan.hosts = shape.nodes();
  Life life = FirstLife(shape, seed);
  AddAgentEvents(lasts_ns, (busy ? 400 : 7200) * kSecondNs, seed, &plan);
  const bool numbered = Mix({seed, 11}) % 2 == 0;
  for (uint64_t number = 1;; ++number) {
    const int64_t ended_ns = Seconds(Mix({seed, 12, number}), busy ? 600 : 3600, busy ? 7200 : 43'200);
    const bool last = life.start_ns + ended_ns + 60 * kSecondNs >= lasts_ns;
    if (!last) life.shape.ended_ns = ended_ns;
    plan.lives.push_back(life);
    if (last) break;
    std::vector<uint32_t> left;
    Life next = Mix({seed, 13, number}) % 2 == 0 ? life : Shrunk(life, Mix({seed, 14, number}), &left);
    next.start_ns = life.start_ns + ended_ns + Seconds(Mix({seed, 15, number}), 2, 60);
    next.shape.ended_ns = kNeverNs;
    next.seed = Mix({seed, 16, number});
    next.incarnation = numbered ? static_cast<uint32_t>(number) : 0;
    // A node that leaves is there until the job has ended on it, and a while longer.
    for (const uint32_t host : left) {
      const int64_t after_ns = Seconds(Mix({seed, 17, number, host}), 2, 120);
      plan.agents.push_back(
          {.kind = AgentEventKind::kGone, .host = host, .at_ns = life.start_ns + ended_ns + after_ns});
    }
    life = next;
  }
  return plan;
}

}  // namespace c4::jobsim
