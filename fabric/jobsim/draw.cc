#include "fabric/jobsim/draw.h"

#include <algorithm>

#include "fabric/jobsim/dice.h"
#include "fabric/jobsim/layout.h"
#include "fabric/jobsim/physics.h"

namespace c4::jobsim {
namespace {

// Draws one after the other from a seed.
class Draws {
 public:
  explicit Draws(uint64_t seed, uint64_t what) : state_(Mix({seed, what})) {}
  uint64_t Next() { return state_ = Mix(state_); }
  uint32_t Of(uint32_t least, uint32_t most) {
    return least + static_cast<uint32_t>(Next() % (most - least + 1));
  }
  bool OneOf(uint64_t count) { return Next() % count == 0; }
  double Log(double least, double most) { return LogBetween(Next(), least, most); }
  int64_t LogNs(double least_s, double most_s) { return static_cast<int64_t>(Log(least_s, most_s) * 1e9); }

 private:
  uint64_t state_;
};

void DrawLayout(uint32_t ranks, Draws* draws, Shape* shape) {
  shape->ranks_per_node = draws->OneOf(5) ? 4 : 8;
  constexpr uint32_t kTensor[] = {1, 2, 4, 8};
  shape->tensor = std::min(kTensor[draws->Of(0, 3)], shape->ranks_per_node);
  const uint32_t most = std::max(1U, ranks / shape->tensor);
  // Stages and replicas need not be powers of two.
  shape->pipeline =
      std::min(draws->OneOf(2) ? 1U << draws->Of(0, 3) : draws->Of(1, 6), std::max(1U, most / 2));
  shape->data = std::max(1U, most / shape->pipeline);
  if (shape->data > 3 && draws->OneOf(3)) shape->data -= draws->Of(0, std::min(3U, shape->data / 4));
  if (draws->OneOf(3)) {
    for (const uint32_t expert : {8U, 4U, 2U, 3U}) {
      if (shape->data % expert != 0 || shape->data < expert) continue;
      shape->expert = expert;
      break;
    }
  }
}

void DrawNetwork(Draws* draws, Shape* shape) {
  constexpr uint32_t kNics[] = {1, 2, 4, 8};
  shape->nics_per_node = std::min(kNics[draws->Of(0, 3)], shape->ranks_per_node);
  shape->rails = draws->OneOf(2);
  shape->nodes_per_leaf = draws->Of(2, 8);
  shape->spines = draws->Of(2, 8);
  shape->channels = draws->Of(1, 3);
  shape->queue_pairs = draws->Of(1, 2);
  shape->link_noise = draws->Log(0.1, 0.4);
}

}  // namespace

Shape DrawShape(uint32_t ranks, uint64_t seed) {
  Draws draws(seed, 0x5ba9e);
  Shape shape;
  DrawLayout(ranks, &draws, &shape);
  DrawNetwork(&draws, &shape);
  shape.engine = draws.OneOf(2) ? Engine::kHost : Engine::kVendor;
  shape.micro_batches = draws.Of(2, 8);
  shape.zero = draws.OneOf(3);
  shape.world_reduce = draws.OneOf(2);
  shape.overlaps = shape.engine == Engine::kVendor && draws.OneOf(2);
  shape.blocking_sync = draws.OneOf(4);
  shape.forward_ns = draws.LogNs(0.015, 0.15);
  shape.tensor_ns = static_cast<int64_t>(static_cast<double>(shape.forward_ns) * draws.Log(0.03, 0.3));
  shape.expert_ns = static_cast<int64_t>(static_cast<double>(shape.forward_ns) * draws.Log(0.05, 0.3));
  shape.transfer_ns = static_cast<int64_t>(static_cast<double>(shape.forward_ns) * draws.Log(0.02, 0.1));
  shape.gradients_ns = static_cast<int64_t>(static_cast<double>(shape.forward_ns) * draws.Log(0.3, 4));
  shape.data_ns = draws.LogNs(0.001, 0.05);
  shape.noise = draws.Log(0.005, 0.06);
  shape.start_skew_ns = draws.LogNs(0.1, 10);
  shape.first_step_ns = draws.LogNs(2, 15);
  return shape;
}

namespace {

// The number of steps in between the two.
uint32_t StepsOf(const Shape& shape, double seconds) {
  const double steps = seconds * 1e9 / static_cast<double>(std::max<int64_t>(1, NominalStepNs(shape)));
  return static_cast<uint32_t>(std::clamp(steps, 10.0, 1e9));
}

}  // namespace

void DrawLife(uint64_t seed, bool busy, Shape* shape) {
  Draws draws(seed, 0x11fe);
  shape->start_skew_ns = draws.LogNs(0.5, 300);
  shape->first_step_ns = draws.LogNs(2, 300);
  shape->warm_up_steps = draws.Of(0, 30);
  shape->warm_up_factor = draws.Log(1, 2);
  shape->checkpoint_steps = draws.Of(10, 100);
  shape->checkpoint_ns = draws.LogNs(1, 600);
  shape->checkpoint_fsync = draws.OneOf(2);
  shape->checkpoint_by_all = draws.OneOf(2);
  shape->evaluation_steps = draws.OneOf(2) ? draws.Of(15, 80) : 0;
  shape->evaluation_batches = draws.Of(5, 60);
  shape->stall_steps = draws.Of(50, 500);
  shape->stall_ns = draws.LogNs(0.5, 8);
  if (busy) return;
  shape->checkpoint_steps = StepsOf(*shape, draws.Log(600, 7200));
  if (shape->evaluation_steps != 0) shape->evaluation_steps = StepsOf(*shape, draws.Log(1800, 14'400));
  shape->stall_steps = StepsOf(*shape, draws.Log(900, 7200));
}

Fault DrawFault(const Shape& shape, FaultKind kind, int64_t from_ns, uint64_t seed) {
  Draws draws(seed, 0xfa17 + static_cast<uint64_t>(kind));
  Fault fault;
  fault.kind = kind;
  if (kind == FaultKind::kNone) return fault;
  fault.rank = static_cast<uint32_t>(draws.Next() % shape.ranks());
  fault.at_ns = from_ns + static_cast<int64_t>(draws.Next() % (20 * static_cast<uint64_t>(kSecondNs)));
  fault.factor = draws.Log(2.5, 6);
  fault.spine = draws.Of(0, shape.spines - 1);
  fault.count = draws.Of(2, 4);
  constexpr Launcher kLaunchers[] = {Launcher::kTorchrun, Launcher::kSrun, Launcher::kMpirun};
  fault.launcher = kLaunchers[draws.Of(0, 2)];
  switch (kind) {
    case FaultKind::kOffBus:
      if (draws.OneOf(2)) fault.launcher = Launcher::kNone;
      break;
    case FaultKind::kFileSystem:
      fault.lasts_ns = draws.LogNs(1000, 2400);
      break;
    case FaultKind::kSlowNic:
    case FaultKind::kSlowSpine:
    case FaultKind::kSlowNvlink:
      fault.factor = draws.Log(4, 12);
      break;
    default:
      break;
  }
  return fault;
}

namespace {

constexpr double kFelt = 1.2;
constexpr uint64_t kSteps = 4;

// When rank 0 has made a few steps.
int64_t TimeOfSteps(Shape shape, const Fault& fault) {
  shape.start_skew_ns = 0;
  shape.first_step_ns = 0;
  Physics physics(shape, fault, 1);
  int64_t at_ns = physics.ready_ns();
  const int64_t each_ns = std::max<int64_t>(1, NominalStepNs(shape) / 16);
  const int64_t most_ns = at_ns + 100 * static_cast<int64_t>(kSteps) * NominalStepNs(shape);
  while (physics.steps(0) < kSteps && at_ns < most_ns) physics.Advance(at_ns += each_ns);
  return at_ns - physics.ready_ns();
}

bool IsFelt(const Shape& shape, Fault fault) {
  fault.at_ns = 0;
  return static_cast<double>(TimeOfSteps(shape, fault)) >=
         kFelt * static_cast<double>(TimeOfSteps(shape, Fault()));
}

}  // namespace

int64_t SlowedStepNs(const Shape& shape, Fault fault) {
  fault.at_ns = 0;
  return TimeOfSteps(shape, fault) / static_cast<int64_t>(kSteps);
}

bool Matters(const Shape& shape, const Fault& fault) {
  const Layout layout = MakeLayout(shape);
  const auto& places = layout.places[fault.rank];
  const bool alone =
      std::all_of(places.begin(), places.end(), [](const Place& place) { return place.group == kNoGroup; });
  switch (fault.kind) {
    case FaultKind::kSlowSeveral:
    case FaultKind::kSlowGpu:
    case FaultKind::kSlowTensor:
      // Of a job that is slow as a whole, nobody is slower than the others.
      return !alone && 4 * SlowRanks(shape, fault).size() <= shape.ranks() && IsFelt(shape, fault);
    case FaultKind::kSlowNode:
      return !alone && shape.nodes() >= 3 && IsFelt(shape, fault);
    case FaultKind::kSlowNvlink:
    case FaultKind::kSlowNic:
    case FaultKind::kLossyNic:
    case FaultKind::kDeadNic:
    case FaultKind::kPfcStorm:
    case FaultKind::kSlowSpine:
    case FaultKind::kDeadSpine:
      return IsFelt(shape, fault);
    case FaultKind::kMismatch:
    case FaultKind::kStuckInside:
      return std::any_of(places.begin(), places.end(), [&](const Place& place) {
        return place.group != kNoGroup && !layout.groups[place.group].point_to_point();
      });
    case FaultKind::kLostNode:
      return !alone && shape.nodes() >= 3;
    default:
      return !alone;
  }
}

}  // namespace c4::jobsim
