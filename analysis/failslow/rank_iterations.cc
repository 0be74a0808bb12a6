#include "analysis/failslow/rank_iterations.h"

#include <algorithm>

namespace c4::failslow {
namespace {

// A detector without its heap, and what it holds at the most.
constexpr size_t kDetectorBytes = sizeof(ChangeDetector) + (size_t{48} << 10);

}  // namespace

RankIterations::Place RankIterations::Shape::PlaceOf(uint64_t iteration) const {
  const uint64_t count = detector.iterations();
  const uint64_t oldest = count > kPlaces ? count - kPlaces : 0;
  return places[std::clamp(iteration, oldest, count - 1) % kPlaces];
}

void RankIterations::Call(uint64_t token, int64_t called_ns) {
  if (tracker_ == nullptr) tracker_ = std::make_unique<PeriodTracker>();
  called_ns_ = called_ns;
  tracker_->Add(token, called_ns);
  for (const Iteration& iteration : tracker_->Take()) Heed(iteration);
}

void RankIterations::Gap() {
  if (tracker_ == nullptr) return;
  // A call that never comes again: no period goes on over it.
  tracker_->Add(0x9e3779b97f4a7c15ull ^ ~gaps_++, called_ns_);
}

RankIterations::Shape* RankIterations::ShapeOf(uint64_t hash) {
  const auto found =
      std::find_if(shapes_.begin(), shapes_.end(), [hash](const auto& shape) { return shape->hash == hash; });
  if (found != shapes_.end()) return found->get();
  if (shapes_.size() >= kShapes) {
    shapes_.erase(std::min_element(shapes_.begin(), shapes_.end(),
                                   [](const auto& a, const auto& b) { return a->used < b->used; }));
  }
  auto shape = std::make_unique<Shape>();
  shape->hash = hash;
  shape->number = ++shape_numbers_;
  shape->places.resize(Shape::kPlaces);
  shapes_.push_back(std::move(shape));
  return shapes_.back().get();
}

void RankIterations::Heed(const Iteration& iteration) {
  Shape* const shape = ShapeOf(iteration.shape);
  const uint64_t number = iterations_++;
  shape->used = number;
  shape->places[shape->detector.iterations() % Shape::kPlaces] = {number, iteration.began_ns};
  shape->detector.Add(static_cast<double>(iteration.duration_ns) / 1e9);
  if (untaken_.size() >= kUntaken) untaken_.pop_front();
  untaken_.push_back({.number = number,
                      .began_ns = iteration.began_ns,
                      .duration_ns = iteration.duration_ns,
                      .shape = shape->number,
                      .calls = iteration.calls});
  for (const ChangeNews& news : shape->detector.Take()) Note(*shape, news);
}

void RankIterations::Note(const Shape& shape, const ChangeNews& news) {
  auto known = std::find_if(numbers_.begin(), numbers_.end(), [&](const Number& number) {
    return number.shape == shape.number && number.in_detector == news.number;
  });
  if (known == numbers_.end()) {
    if (numbers_.size() >= kChanges) {
      numbers_.pop_front();
      changes_.pop_front();
    }
    numbers_.push_back({.shape = shape.number, .in_detector = news.number, .number = ++change_numbers_});
    changes_.push_back({});
    known = std::prev(numbers_.end());
  }
  const Place place = shape.PlaceOf(news.change.iteration);
  changes_[static_cast<size_t>(known - numbers_.begin())] = {.number = known->number,
                                                             .shape = shape.number,
                                                             .stage = news.stage,
                                                             .at_ns = place.began_ns,
                                                             .iteration = place.iteration,
                                                             .before_s = news.change.before_s,
                                                             .after_s = news.change.after_s,
                                                             .creeping = news.change.creeping};
}

std::vector<RankIteration> RankIterations::Take() {
  std::vector<RankIteration> taken(untaken_.begin(), untaken_.end());
  untaken_.clear();
  return taken;
}

size_t RankIterations::MemoryBytes() const {
  return sizeof *this + (tracker_ == nullptr ? 0 : tracker_->MemoryBytes()) +
         shapes_.size() * (sizeof(Shape) + Shape::kPlaces * sizeof(Place) + kDetectorBytes) +
         untaken_.size() * sizeof(RankIteration) + changes_.size() * sizeof(IterationChange);
}

}  // namespace c4::failslow
