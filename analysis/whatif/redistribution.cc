#include "analysis/whatif/redistribution.h"

#include <algorithm>
#include <numeric>

namespace c4::whatif {
namespace {

std::vector<size_t> MostFirst(std::span<const double> work) {
  std::vector<size_t> order(work.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [work](size_t a, size_t b) { return work[a] > work[b]; });
  return order;
}

size_t Bins(const BatchShape& shape) {
  return static_cast<size_t>(shape.dp_size) * static_cast<size_t>(shape.micro_batches);
}

size_t Bin(const Place& place, const BatchShape& shape) {
  return static_cast<size_t>(place.dp_rank) * static_cast<size_t>(shape.micro_batches) +
         static_cast<size_t>(place.micro_batch);
}

}  // namespace

std::vector<size_t> DealOut(std::span<const double> work, size_t bins, size_t room) {
  std::vector<size_t> bin_of(work.size());
  std::vector<double> load(bins);
  std::vector<size_t> held(bins);
  for (const size_t item : MostFirst(work)) {
    size_t best = bins;
    for (size_t bin = 0; bin < bins; ++bin) {
      if (room != 0 && held[bin] == room) continue;
      if (best == bins || load[bin] < load[best]) best = bin;
    }
    if (best == bins) best = static_cast<size_t>(std::min_element(load.begin(), load.end()) - load.begin());
    bin_of[item] = best;
    load[best] += work[item];
    ++held[best];
  }
  return bin_of;
}

std::vector<Place> Redistribute(std::span<const uint32_t> tokens, int dp_size, int micro_batches,
                                const SequenceCost& cost, uint64_t most_tokens) {
  std::vector<Place> places(tokens.size());
  if (dp_size < 1 || micro_batches < 1) return places;
  std::vector<double> work;
  for (const uint32_t count : tokens) work.push_back(cost.Of(count));
  const std::vector<size_t> rank_of = DealOut(work, static_cast<size_t>(dp_size), 0);
  std::vector<double> load(static_cast<size_t>(dp_size) * static_cast<size_t>(micro_batches));
  std::vector<uint64_t> held(load.size());
  for (const size_t item : MostFirst(work)) {
    const size_t first = rank_of[item] * static_cast<size_t>(micro_batches);
    size_t best = load.size();
    size_t emptiest = first;
    for (size_t bin = first; bin < first + static_cast<size_t>(micro_batches); ++bin) {
      if (held[bin] < held[emptiest]) emptiest = bin;
      if (most_tokens != 0 && held[bin] + tokens[item] > most_tokens) continue;
      if (best == load.size() || load[bin] < load[best]) best = bin;
    }
    if (best == load.size()) best = emptiest;
    load[best] += work[item];
    held[best] += tokens[item];
    places[item] = {static_cast<int>(rank_of[item]), static_cast<int>(best - first)};
  }
  return places;
}

std::vector<Place> InOrder(size_t sequences, const BatchShape& shape) {
  std::vector<Place> places(sequences);
  const size_t bins = Bins(shape);
  for (size_t i = 0; i < sequences; ++i) {
    const auto bin = static_cast<int>(i * bins / sequences);
    places[i] = {bin / shape.micro_batches, bin % shape.micro_batches};
  }
  return places;
}

double StepWork(std::span<const uint32_t> tokens, std::span<const Place> places, const BatchShape& shape,
                const SequenceCost& cost) {
  std::vector<double> load(Bins(shape));
  for (size_t i = 0; i < tokens.size(); ++i) load[Bin(places[i], shape)] += cost.Of(tokens[i]);
  double slowest = 0;
  for (auto rank = load.begin(); rank != load.end(); rank += shape.micro_batches) {
    const auto end = rank + shape.micro_batches;
    const double work = std::accumulate(rank, end, 0.0);
    slowest = std::max(slowest, work + (shape.pp_size - 1) * *std::max_element(rank, end));
  }
  return slowest;
}

uint64_t FullestTokens(std::span<const uint32_t> tokens, std::span<const Place> places,
                       const BatchShape& shape) {
  std::vector<uint64_t> held(Bins(shape));
  for (size_t i = 0; i < tokens.size(); ++i) held[Bin(places[i], shape)] += tokens[i];
  return *std::max_element(held.begin(), held.end());
}

}  // namespace c4::whatif
