// Binary network tomography: finds the bad links from which flows are bad and which links each takes. It
// takes the smallest set of links that explains the bad flows and contradicts few good ones. Where several
// sets do so equally well it gives all: it never chooses between links that no observed flow tells apart.
// (Duffield, "Network tomography of binary network performance characteristics", 2006; here wrong
// observations have a price, and a flow has two ways.)
//
// A link has a direction. The two directions of a cable mostly fail together and count as one culprit. A
// flow has two ways, that of its data and that of its acknowledgements, each over links of its own.
//
// One or two culprits are found exactly among the kMaxCables most suspicious cables, more by a beam search
// from there. Pure; any thread; no errors. A link beyond `cable_of` is a defect of the caller and fails an
// assertion.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace c4::analysis {

enum class FlowState { kUnknown, kGood, kBad };

struct FlowObservation {
  std::vector<uint32_t> data;  // links that its data take
  std::vector<uint32_t> acks;  // links that its acknowledgements take
  FlowState state = FlowState::kUnknown;
  double weight = 1;
};

struct TomographyOptions {
  // Whether a bad link is as bad for a flow whose acknowledgements alone take it. So it is with a cut; a link
  // that is merely slow may or may not hold them up.
  bool acks_count = true;
  double acks_only_cost = 0.5;  // where they do not: of a bad flow that they alone explain
  // What is minimised: this for each culprit, the weight of each bad flow that none explains and of each good
  // one that contradicts. So a culprit has to explain more than this many flows, unless it is the only one.
  double culprit_cost = 2;
  // Sets whose cost is by less than this above the least explain the flows equally well.
  double margin = 1;
  size_t max_culprits = 4;
};

struct BadCable {
  uint32_t cable = 0;
  std::vector<uint32_t> links;    // its bad directions, ascending
  double bad = 0;                 // weight of the bad flows that it explains
  double good = 0;                // weight of the good flows that contradict it
  std::vector<uint32_t> instead;  // other cables that would do in its place, ascending
};

struct Tomography {
  std::vector<BadCable> cables;  // by number; none: no flow is bad
  double bad = 0;                // weight of all bad flows
  double explained = 0;          // of those, by `cables`
  double contradicting = 0;      // weight of good flows that take one of `cables`

  bool ambiguous() const;
};

inline constexpr size_t kMaxCables = 64;

// `cable_of`: the cable of each link. Deterministic; the order of the flows does not matter.
Tomography FindBadLinks(const std::vector<uint32_t>& cable_of, const std::vector<FlowObservation>& flows,
                        const TomographyOptions& options);

}  // namespace c4::analysis
