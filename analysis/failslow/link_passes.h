// Transfers over many links, a few at a time: in a pass each device takes part in one transfer at most, so
// that none waits for another's, and all of a pass run at once ("Falcon", figure 9). How many passes it takes
// does not depend on how many devices there are, but on the shape of what joins them:
//
//   a ring of an even number of devices, a chain    2 passes
//   a ring of an odd number                         3
//   a tree                                          as many as its busiest device has links: 3 where it is
//                                                   binary (the paper's way takes 4)
//   anything else                                   one more than that at most (Misra and Gries, 1992)
//
// Pure; any thread. Devices are numbers of the caller's, in any order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace c4::analysis {

struct Link {
  uint32_t a = 0;
  uint32_t b = 0;
};

enum class LinkShape { kRing, kTree, kOther };

struct LinkPasses {
  // Of the links as a whole: rings and chains alone, trees among them, or anything else.
  LinkShape shape = LinkShape::kRing;
  // Indices of links, ascending. Links between the same two devices, either way, share a pass.
  std::vector<std::vector<size_t>> passes;
};

// A link from a device to itself is in no pass.
LinkPasses PlanLinkPasses(std::span<const Link> links);

}  // namespace c4::analysis
