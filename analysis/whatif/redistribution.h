// Deals sequences out so that all data-parallel ranks have the same work, and within a rank all
// micro-batches. The longest sequence goes first, to the rank with the least work; the same is done within
// the rank (the what-if paper, section 5.3).
//
// Pure; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace c4::whatif {

// What a sequence of a length costs: linear and quadratic (attention) part, in any unit.
struct SequenceCost {
  double per_token = 1;
  double per_token_squared = 0;

  double Of(double tokens) const { return tokens * (per_token + per_token_squared * tokens); }
};

struct Place {
  int dp_rank = 0;
  int micro_batch = 0;
};

// One place a sequence. `most_tokens`: a micro-batch holds at most so many (0: any number); a sequence that
// fits nowhere goes where there are the fewest tokens, so that none is lost.
std::vector<Place> Redistribute(std::span<const uint32_t> tokens, int dp_size, int micro_batches,
                                const SequenceCost& cost, uint64_t most_tokens);

struct BatchShape {
  int dp_size = 1;
  int micro_batches = 1;  // of one rank
  int pp_size = 1;
};

// As they come: an even number of sequences to each micro-batch, one rank's after the other's.
std::vector<Place> InOrder(size_t sequences, const BatchShape& shape);

// What a step costs with the sequences in these places: the slowest rank's work, and its largest micro-batch
// once more for each stage after the first, which has to wait for it.
double StepWork(std::span<const uint32_t> tokens, std::span<const Place> places, const BatchShape& shape,
                const SequenceCost& cost);

// In the fullest micro-batch.
uint64_t FullestTokens(std::span<const uint32_t> tokens, std::span<const Place> places,
                       const BatchShape& shape);

// Items of given work into `bins` bins of `room` items each at most (0: any number): the bin of each, the
// most work first, each into the bin with the least.
std::vector<size_t> DealOut(std::span<const double> work, size_t bins, size_t room);

}  // namespace c4::whatif
