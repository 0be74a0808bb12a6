// Collectives as plans: what one rank receives from whom, what it reduces that with, where the result goes
// and to whom. Made by pure code from the ranks' layout, proved by a test that runs the plans of all ranks on
// symbols; the executor cuts regions into slices, and moves and reduces the bytes.
//
// A step takes one slice after the other: it receives the slice from all of `from`, reduces what came with
// its own operand, stores the result, and sends it to all of `to`. Steps run side by side, but between two
// ranks the messages of a channel go in the order of the steps, on both sides. Every step is complete in
// itself: none reads what another one stored. So all that holds a slice up is what it is to be made of.
//
// A rank's input at a place is read before anybody's result for that place can reach it, because the result
// is made of it: plans may run in place. For the same reason a step may store what it passes on where the
// result will come to.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "wire/segment.h"

namespace c4::host {

enum class Buffer : uint8_t { kNone, kInput, kOutput };

// `blocks` blocks of the call's `count` elements make up a buffer; each block is cut into the plan's parts.
struct Region {
  Buffer buffer = Buffer::kNone;
  int block = 0;
  int part = 0;  // kWhole: the whole block
};
inline constexpr int kWhole = -1;

struct Step {
  uint16_t channel = 0;
  std::vector<int> from;  // ranks; ascending, each reduced in this order
  Region operand;         // this rank's own; kNone: what comes is the result
  Region store;           // kNone: what is made is only sent on
  std::vector<int> to;    // ranks
  bool whole = true;      // what is made of the own operand lacks nothing more
  // Where, among the sources, the own operand is reduced: before from[own_place].
  int own_place = 0;
};

struct Plan {
  int parts = 1;
  // Results are stored where the input is still to be read, when both are one: then it needs a copy.
  bool overlaps = false;
  // Results are passed on that are stored nowhere. Then steps take turns, some slices each, or all the memory
  // for what is passed on might be full of slices that wait for the others.
  bool stages = false;
  // Ranks that each reduce everything have to do it in one order to come to the same result.
  bool in_rank_order = false;
  size_t most_sources = 0;
  std::vector<Step> steps;
};

enum class Algorithm : uint8_t {
  kAuto,
  kRing,      // pipelined ring; a chain where there is one root
  kTree,      // binary, up and down
  kDirect,    // everybody with everybody: one hop for each half of the work
  kExchange,  // all-reduce only: everybody sends all to everybody, who reduces it all
  kHierarchy  // direct within a host, rings of those with the same place between hosts
};
inline constexpr int kAlgorithms = 6;

std::string_view AlgorithmName(Algorithm algorithm);  // "ring"; "auto"
// False for a name that is none.
bool ParseAlgorithm(std::string_view name, Algorithm* algorithm);

// Which ranks share a host.
struct Layout {
  explicit Layout(std::vector<uint64_t> host_of_rank);  // any number per host, equal for those that share one

  int rank_count = 1;
  std::vector<int> host;                // by rank: 0 .. hosts.size() - 1, in the order of first appearance
  std::vector<int> place;               // by rank: its place in hosts[host]
  std::vector<std::vector<int>> hosts;  // ranks, ascending
  std::vector<int> ring;                // all ranks, host by host

  bool even() const;  // every host has as many ranks as the first
};

// Whether there is such a plan: kHierarchy needs several hosts with several ranks each, and as many on each.
bool Exists(Algorithm algorithm, wire::Function function, const Layout& layout);

// REQUIRES: Exists, not kAuto; 1 <= channels; root is a rank where the function has one.
Plan MakePlan(Algorithm algorithm, wire::Function function, const Layout& layout, int rank, int root,
              int channels);

// What a choice costs, in seconds, by the cost model (docs/collectives.md): `bytes` is the larger of the two
// buffers of a rank.
struct Costs {
  double local_latency_s = 4e-6;  // a message within a host
  double local_byte_s = 1.6e-10;
  double network_latency_s = 3e-5;
  double network_byte_s = 8e-10;
  double reduce_byte_s = 1e-10;
};
double Cost(Algorithm algorithm, wire::Function function, const Layout& layout, size_t bytes,
            const Costs& costs);
// The cheapest that exists.
Algorithm Choose(wire::Function function, const Layout& layout, size_t bytes, const Costs& costs);

// First element and number of elements of part `part` when `count` elements are cut into `parts`.
struct Span {
  size_t first;
  size_t count;
};
Span ChunkSpan(size_t count, int parts, int part);

}  // namespace c4::host
