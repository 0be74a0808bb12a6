#include "c4p_master/linear_paths.h"

#include "absl/strings/str_cat.h"

namespace c4::c4p {
namespace {

using service::IpAddress;

// By chance a hash of two ways passes 16 checks once in 65,536 times.
constexpr int kLeastChecked = 16;
constexpr int kHoldOutOneIn = 4;
constexpr IpAddress kWithinLeaf = {~uint64_t{0}, ~uint64_t{0}};  // instead of a spine

IpAddress SpineLabel(const HopPath& hops) {
  return hops.within_leaf ? kWithinLeaf : hops.spine;
}

// Far from any pattern in the port's bits.
bool HeldOut(uint16_t port) {
  return service::MixBits(port + 0x5bd1e995U) % kHoldOutOneIn == 0;
}

bool Same(const HopPath& predicted, const HopPath& seen) {
  return predicted == seen;
}

}  // namespace

void AffineMap::Insert(uint16_t difference) {
  for (int bit = 15; bit >= 0 && difference != 0; --bit) {
    if ((difference >> bit & 1) == 0) continue;
    uint16_t& row = basis_[static_cast<size_t>(bit)];
    if (row == 0) {
      row = difference;
      return;
    }
    difference = static_cast<uint16_t>(difference ^ row);
  }
}

uint16_t AffineMap::Reduce(uint16_t port) const {
  for (int bit = 15; bit >= 0; --bit) {
    const uint16_t row = basis_[static_cast<size_t>(bit)];
    if ((port >> bit & 1) != 0 && row != 0) port = static_cast<uint16_t>(port ^ row);
  }
  return port;
}

AffineMap AffineMap::Fit(const std::vector<Sample>& samples) {
  AffineMap map;
  std::unordered_map<IpAddress, uint16_t> first;
  for (const auto& [port, label] : samples) {
    const auto [at, added] = first.emplace(label, port);
    if (!added) map.Insert(static_cast<uint16_t>(port ^ at->second));
  }
  for (const auto& [port, label] : samples) {
    const auto [at, added] = map.label_by_coset_.emplace(map.Reduce(port), label);
    if (!added && at->second != label) map.consistent_ = false;
  }
  return map;
}

std::optional<IpAddress> AffineMap::Predict(uint16_t port) const {
  if (!consistent_) return std::nullopt;
  const auto at = label_by_coset_.find(Reduce(port));
  return at == label_by_coset_.end() ? std::nullopt : std::optional<IpAddress>(at->second);
}

int AffineMap::bits() const {
  int open = 16;
  for (const uint16_t row : basis_) open -= row != 0 ? 1 : 0;
  return open;
}

std::string LinearVerdict::text() const {
  switch (state) {
    case LinearState::kTooFew:
      return absl::StrCat("whether the hash is linear is not known from ", samples, " ports (", checked,
                          " of 16 checks)");
    case LinearState::kVerified:
      return absl::StrCat("the hash is linear: learnt from ", samples, " ports, right for all ", checked,
                          " held out");
    case LinearState::kNotLinear:
      return absl::StrCat("the hash is not linear: ", wrong, " of ", checked, " held-out ports of ", samples,
                          " were predicted wrong; only probed ports are used");
  }
  return "";
}

std::optional<HopPath> LinearPaths::Model::Predict(uint16_t port) const {
  const std::optional<IpAddress> leaf = egress.Predict(port);
  if (!leaf.has_value()) return std::nullopt;
  const auto by_leaf = spine.find(*leaf);
  if (by_leaf == spine.end()) return std::nullopt;
  const std::optional<IpAddress> over = by_leaf->second.Predict(port);
  if (!over.has_value()) return std::nullopt;
  const auto by_spine = remote.find({*leaf, *over});
  if (by_spine == remote.end()) return std::nullopt;
  const std::optional<IpAddress> down = by_spine->second.Predict(port);
  if (!down.has_value()) return std::nullopt;
  HopPath hops;
  hops.egress = *leaf;
  hops.within_leaf = *over == kWithinLeaf;
  hops.spine = hops.within_leaf ? IpAddress() : *over;
  hops.remote = *down;
  return hops;
}

LinearPaths::Model LinearPaths::Fit(const std::map<uint16_t, HopPath>& samples) {
  std::vector<AffineMap::Sample> egress;
  std::map<IpAddress, std::vector<AffineMap::Sample>> spine;
  std::map<std::pair<IpAddress, IpAddress>, std::vector<AffineMap::Sample>> remote;
  for (const auto& [port, hops] : samples) {
    const IpAddress over = SpineLabel(hops);
    egress.emplace_back(port, hops.egress);
    spine[hops.egress].emplace_back(port, over);
    remote[{hops.egress, over}].emplace_back(port, hops.remote);
  }
  Model model;
  model.egress = AffineMap::Fit(egress);
  for (const auto& [leaf, own] : spine) model.spine[leaf] = AffineMap::Fit(own);
  for (const auto& [ends, own] : remote) model.remote[ends] = AffineMap::Fit(own);
  return model;
}

void LinearPaths::Add(const PathObservation& seen, int64_t now_ns) {
  if (!seen.names_path()) return;
  Group& group = groups_[GroupOf(seen.tuple)];
  // An answer that was rationed away would look like another way.
  const bool whole = seen.hops.within_leaf || (seen.hops.spine.known() && seen.hops.remote.known());
  if (!whole) return;
  if (group.verdict.state == LinearState::kVerified) {
    const std::optional<HopPath> predicted = group.model.Predict(seen.tuple.source_port);
    if (predicted.has_value() && !Same(*predicted, seen.hops)) {
      ++dropped_;
      group = {};
    }
  }
  group.samples[seen.tuple.source_port] = seen.hops;
  group.seen_ns = now_ns;
}

LinearVerdict LinearPaths::Learn(const FlowGroup& key) {
  const auto at = groups_.find(key);
  if (at == groups_.end()) return {};
  Group& group = at->second;
  std::map<uint16_t, HopPath> taught;
  std::vector<std::pair<uint16_t, HopPath>> held;
  for (const auto& [port, hops] : group.samples) {
    if (HeldOut(port)) {
      held.emplace_back(port, hops);
    } else {
      taught[port] = hops;
    }
  }
  const Model trial = Fit(taught);
  LinearVerdict verdict;
  verdict.samples = static_cast<int>(group.samples.size());
  bool consistent = trial.egress.consistent();
  for (const auto& [leaf, map] : trial.spine) consistent = consistent && map.consistent();
  for (const auto& [ends, map] : trial.remote) consistent = consistent && map.consistent();
  for (const auto& [port, hops] : held) {
    const std::optional<HopPath> predicted = trial.Predict(port);
    // What fits no affine function at all would predict nothing, and fails every check.
    if (!predicted.has_value() && consistent) continue;
    ++verdict.checked;
    if (!predicted.has_value() || !Same(*predicted, hops)) ++verdict.wrong;
  }
  if (verdict.wrong > 0 || !consistent) {
    verdict.state = LinearState::kNotLinear;
  } else if (verdict.checked >= kLeastChecked) {
    verdict.state = LinearState::kVerified;
    group.model = Fit(group.samples);
  }
  group.verdict = verdict;
  return verdict;
}

LinearVerdict LinearPaths::verdict(const FlowGroup& group) const {
  const auto at = groups_.find(group);
  return at == groups_.end() ? LinearVerdict() : at->second.verdict;
}

std::optional<KnownPath> LinearPaths::Find(const service::IpTuple& tuple, int64_t) const {
  const auto at = groups_.find(GroupOf(tuple));
  if (at == groups_.end() || at->second.verdict.state != LinearState::kVerified) return std::nullopt;
  const std::optional<HopPath> hops = at->second.model.Predict(tuple.source_port);
  if (!hops.has_value()) return std::nullopt;
  return KnownPath{*hops, PathOrigin::kPredicted, at->second.seen_ns, false};
}

}  // namespace c4::c4p
