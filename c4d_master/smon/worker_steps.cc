#include "c4d_master/smon/worker_steps.h"

#include <algorithm>

namespace c4::c4d {
namespace {

// Of those that begin at one moment the longer one, which holds the other, comes first.
bool Before(const MarkedSpan* a, const MarkedSpan* b) {
  return a->began_ns != b->began_ns ? a->began_ns < b->began_ns : a->ended_ns > b->ended_ns;
}

// How many marks of the step have begun at that moment.
size_t Begun(const WorkerSteps::Step& step, int64_t at_ns) {
  const auto after = std::upper_bound(step.marks.begin(), step.marks.end(), at_ns,
                                      [](int64_t at, const MarkedSpan* mark) { return at < mark->began_ns; });
  return static_cast<size_t>(after - step.marks.begin());
}

}  // namespace

WorkerSteps::WorkerSteps(const ProfiledProcess& process) {
  std::set<int32_t> numbers;
  std::vector<const MarkedSpan*> marks;
  for (const MarkedSpan& mark : process.marks) {
    if (mark.kind != MarkKind::kStep) {
      marks.push_back(&mark);
      continue;
    }
    if (!numbers.insert(mark.step).second) twice_.insert(mark.step);
    steps_.push_back({mark.step, mark.began_ns, mark.ended_ns, mark.clock, {}, {}});
  }
  std::erase_if(steps_, [this](const Step& step) { return twice_.contains(step.number); });
  std::sort(steps_.begin(), steps_.end(),
            [](const Step& a, const Step& b) { return a.began_ns < b.began_ns; });
  std::stable_sort(marks.begin(), marks.end(), Before);
  for (const MarkedSpan* mark : marks) {
    const Step* const at = At(mark->began_ns);
    if (at == nullptr) continue;
    Step& step = steps_[static_cast<size_t>(at - steps_.data())];
    const int64_t before_ns = step.marks.empty() ? mark->ended_ns : step.latest_end_ns.back();
    step.marks.push_back(mark);
    step.latest_end_ns.push_back(std::max(before_ns, mark->ended_ns));
  }
}

const WorkerSteps::Step* WorkerSteps::At(int64_t at_ns) const {
  auto after = std::upper_bound(steps_.begin(), steps_.end(), at_ns,
                                [](int64_t at, const Step& step) { return at < step.began_ns; });
  if (after == steps_.begin()) return nullptr;
  const Step& step = *--after;
  return at_ns < step.ended_ns ? &step : nullptr;
}

const MarkedSpan* WorkerSteps::Around(const Step& step, int64_t at_ns) {
  for (size_t i = Begun(step, at_ns); i > 0 && step.latest_end_ns[i - 1] > at_ns; --i) {
    if (at_ns < step.marks[i - 1]->ended_ns) return step.marks[i - 1];
  }
  return nullptr;
}

const MarkedSpan* WorkerSteps::ComputedBefore(const Step& step, int64_t at_ns) {
  for (size_t i = Begun(step, at_ns); i > 0; --i) {
    if (IsComputation(step.marks[i - 1]->kind)) return step.marks[i - 1];
  }
  return nullptr;
}

const MarkedSpan* WorkerSteps::ComputedAfter(const Step& step, int64_t at_ns) {
  for (size_t i = Begun(step, at_ns); i < step.marks.size(); ++i) {
    if (IsComputation(step.marks[i]->kind)) return step.marks[i];
  }
  return nullptr;
}

const MarkedSpan* WorkerSteps::First(const Step& step, MarkKind kind) {
  const auto found = std::find_if(step.marks.begin(), step.marks.end(),
                                  [kind](const MarkedSpan* mark) { return mark->kind == kind; });
  return found == step.marks.end() ? nullptr : *found;
}

const MarkedSpan* WorkerSteps::Last(const Step& step, MarkKind kind) {
  const auto found = std::find_if(step.marks.rbegin(), step.marks.rend(),
                                  [kind](const MarkedSpan* mark) { return mark->kind == kind; });
  return found == step.marks.rend() ? nullptr : *found;
}

}  // namespace c4::c4d
