#include "analysis/mitigation/placement_state.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace c4::mitigation {
namespace {

uint64_t Mixed(uint64_t sum, uint64_t value) {
  sum = (sum ^ value) * 0x9e3779b97f4a7c15ull;
  return sum ^ (sum >> 29);
}

uint64_t Mixed(uint64_t sum, double value) {
  return Mixed(sum, std::bit_cast<uint64_t>(value));
}

}  // namespace

PlacementState::PlacementState(const IterationModel& model, Placement placement)
    : model_(model),
      stages_(static_cast<int>(model.job().stages.size())),
      groups_(model.job().groups),
      placement_(std::move(placement)),
      done_s_(placement_.size()),
      ring_s_(static_cast<size_t>(stages_)),
      mark_(static_cast<size_t>(groups_)),
      column_(static_cast<size_t>(stages_)) {
  for (int group = 0; group < groups_; ++group) Replay(group);
  for (int stage = 0; stage < stages_; ++stage) {
    ring_s_[static_cast<size_t>(stage)] = model_.Ring(placement_, stage);
  }
  for (int group = 0; group < groups_; ++group) Mark(group);
  worth_ = Sum();
}

void PlacementState::Replay(int group) {
  model_.Pipeline(placement_, group, &scratch_, column_);
  for (int stage = 0; stage < stages_; ++stage) {
    done_s_[static_cast<size_t>(WorkerOf(stage, group))] = column_[static_cast<size_t>(stage)];
  }
  operations_ += static_cast<uint64_t>(2 * stages_ * model_.job().micro_batches[static_cast<size_t>(group)]);
}

Worth PlacementState::Sum() const {
  Worth worth;
  double pipelines_s = 0;
  for (int group = 0; group < groups_; ++group) {
    double last_s = 0;
    for (int stage = 0; stage < stages_; ++stage) {
      last_s = std::max(last_s, done_s_[static_cast<size_t>(WorkerOf(stage, group))]);
    }
    pipelines_s += last_s;
  }
  for (int stage = 0; stage < stages_; ++stage) {
    const auto first = done_s_.begin() + static_cast<std::ptrdiff_t>(stage) * groups_;
    const double end_s = *std::max_element(first, first + groups_) + ring_s_[static_cast<size_t>(stage)];
    worth.time_s = std::max(worth.time_s, end_s);
    worth.rest_s += end_s;
  }
  worth.rest_s += pipelines_s / groups_;
  return worth;
}

// Exchanges the places and replays what that touches.
void PlacementState::Exchange(int a, int b) {
  std::swap(placement_[static_cast<size_t>(a)], placement_[static_cast<size_t>(b)]);
  Replay(a % groups_);
  if (b % groups_ != a % groups_) Replay(b % groups_);
  for (const int stage : {a / groups_, b / groups_}) {
    ring_s_[static_cast<size_t>(stage)] = model_.Ring(placement_, stage);
  }
}

Worth PlacementState::Try(int a, int b) {
  const auto save = [this](int worker, Saved* saved) {
    saved->done_s.resize(static_cast<size_t>(stages_));
    for (int stage = 0; stage < stages_; ++stage) {
      saved->done_s[static_cast<size_t>(stage)] =
          done_s_[static_cast<size_t>(WorkerOf(stage, worker % groups_))];
    }
    saved->ring_s = ring_s_[static_cast<size_t>(worker / groups_)];
  };
  const auto restore = [this](int worker, const Saved& saved) {
    for (int stage = 0; stage < stages_; ++stage) {
      done_s_[static_cast<size_t>(WorkerOf(stage, worker % groups_))] =
          saved.done_s[static_cast<size_t>(stage)];
    }
    ring_s_[static_cast<size_t>(worker / groups_)] = saved.ring_s;
  };
  ++tried_;
  save(a, &saved_a_);
  save(b, &saved_b_);
  Exchange(a, b);
  const Worth worth = Sum();
  std::swap(placement_[static_cast<size_t>(a)], placement_[static_cast<size_t>(b)]);
  restore(a, saved_a_);
  restore(b, saved_b_);
  return worth;
}

void PlacementState::Swap(int a, int b) {
  Exchange(a, b);
  Mark(a % groups_);
  Mark(b % groups_);
  worth_ = Sum();
}

bool PlacementState::IsSlow(int worker) const {
  const int place = placement_[static_cast<size_t>(worker)];
  const int node = model_.NodeOf(place);
  return model_.FactorOf(place) > 1 || model_.ShareOf(node) < 1 || model_.HasSlowLink(node);
}

uint64_t PlacementState::MarkOf(uint64_t sum, int place) const {
  const int node = model_.NodeOf(place);
  sum = Mixed(Mixed(sum, model_.FactorOf(place)), model_.ShareOf(node));
  return Mixed(sum, model_.HasSlowLink(node) ? static_cast<uint64_t>(node) + 1 : 0);
}

// What a pipeline is like: its places and the ways between them.
void PlacementState::Mark(int group) {
  uint64_t mark = Mixed(0, static_cast<uint64_t>(model_.job().micro_batches[static_cast<size_t>(group)]));
  for (int stage = 0; stage < stages_; ++stage) {
    const int place = PlaceOf(stage, group);
    mark = MarkOf(mark, place);
    if (stage > 0) mark = Mixed(mark, model_.BytesPerS(PlaceOf(stage - 1, group), place));
  }
  mark_[static_cast<size_t>(group)] = mark;
}

uint64_t PlacementState::Likeness(int a, int b) const {
  const int stage_a = a / groups_, group_a = a % groups_;
  const int stage_b = b / groups_, group_b = b % groups_;
  uint64_t sum = Mixed(mark_[static_cast<size_t>(group_b)], static_cast<uint64_t>(stage_b));
  const int apart = (group_b - group_a + groups_) % groups_;
  sum = Mixed(sum, static_cast<uint64_t>(std::min({apart, groups_ - apart, 2})));
  // Its neighbours in the ring.
  for (const int near : {(group_b + 1) % groups_, (group_b + groups_ - 1) % groups_}) {
    const int other = PlaceOf(stage_b, near);
    sum = Mixed(MarkOf(sum, other), model_.BytesPerS(placement_[static_cast<size_t>(b)], other));
  }
  // Where one comes to stand on one node with those around the other, ways between places become others.
  const auto around = [this](int stage, int group, int node) {
    uint64_t near = 0;
    const auto add = [&](int other_stage, int other_group) {
      const bool is_there = other_stage >= 0 && other_stage < stages_;
      const int place = is_there ? PlaceOf(other_stage, (other_group + groups_) % groups_) : 0;
      near = near * 2 + uint64_t{is_there && model_.NodeOf(place) == node};
    };
    add(stage, group);
    add(stage, group + 1);
    add(stage, group - 1);
    add(stage + 1, group);
    add(stage - 1, group);
    return near;
  };
  sum = Mixed(sum, around(stage_a, group_a, model_.NodeOf(placement_[static_cast<size_t>(b)])));
  return Mixed(sum, around(stage_b, group_b, model_.NodeOf(placement_[static_cast<size_t>(a)])));
}

}  // namespace c4::mitigation
