#include "analysis/failslow/period_search.h"

#include <algorithm>
#include <vector>

namespace c4::failslow {
namespace {

// For each lag up to `longest`: how many of the newest calls equal the one that many calls before them (the Z
// function of the reversed sequence, in linear time).
std::vector<uint32_t> EqualRuns(std::span<const uint64_t> tokens, size_t longest) {
  std::vector<uint32_t> run(longest + 1, 0);
  size_t left = 0;
  size_t right = 0;
  for (size_t lag = 1; lag <= longest; ++lag) {
    size_t length = lag < right ? std::min<size_t>(run[lag - left], right - lag) : 0;
    while (lag + length < tokens.size() && tokens[length] == tokens[lag + length]) ++length;
    run[lag] = static_cast<uint32_t>(length);
    if (lag + length > right) {
      left = lag;
      right = lag + length;
    }
  }
  return run;
}

constexpr size_t kGlance = 32;
constexpr uint64_t kRare = 0;

// Takes the better one of two, of which `candidate` is the longer.
void Prefer(const Period& candidate, std::optional<Period>* best) {
  if (!*best || candidate.reach >= 2 * (*best)->reach) *best = candidate;
}

// How many of the newest calls nearly repeat with that lag, at a share of differences of at most `allowed`;
// 0: fewer than `least`.
size_t NearRun(std::span<const uint64_t> tokens, size_t lag, size_t least, double allowed) {
  size_t differences = 0;
  size_t good = 0;
  for (size_t i = 0; i + lag < tokens.size(); ++i) {
    if (tokens[i] != tokens[i + lag]) ++differences;
    if (i + 1 == kGlance && differences > kGlance / 2) return 0;  // most lags end here
    const auto budget = allowed * static_cast<double>(std::max(i + 1, least));
    if (static_cast<double>(differences) > budget) break;
    good = i + 1;
  }
  return good >= least ? good : 0;
}

// Gives tokens that come fewer than `least` times one value; how many of the calls these are.
size_t UniteRare(size_t least, std::vector<uint64_t>* tokens) {
  std::vector<uint64_t> rare(*tokens);
  std::sort(rare.begin(), rare.end());
  size_t kept = 0;
  for (size_t begin = 0, end = 0; begin < rare.size(); begin = end) {
    while (end < rare.size() && rare[end] == rare[begin]) ++end;
    if (end - begin < least) rare[kept++] = rare[begin];
  }
  rare.resize(kept);
  size_t united = 0;
  for (uint64_t& token : *tokens) {
    if (!std::binary_search(rare.begin(), rare.end(), token)) continue;
    token = kRare;
    ++united;
  }
  return united;
}

}  // namespace

double ChanceOfEqual(std::span<const uint64_t> tokens) {
  if (tokens.empty()) return 1;
  std::vector<uint64_t> sorted(tokens.begin(), tokens.end());
  std::sort(sorted.begin(), sorted.end());
  double squares = 0;
  for (size_t begin = 0, end = 0; begin < sorted.size(); begin = end) {
    while (end < sorted.size() && sorted[end] == sorted[begin]) ++end;
    const double share = static_cast<double>(end - begin) / static_cast<double>(sorted.size());
    squares += share * share;
  }
  return squares;
}

std::optional<Period> ExactPeriod(std::span<const uint64_t> newest_first, size_t repeats) {
  const size_t longest = newest_first.size() / repeats;
  const std::vector<uint32_t> run = EqualRuns(newest_first, longest);
  std::optional<Period> best;
  for (size_t lag = 1; lag <= longest; ++lag) {
    const size_t reach = lag + run[lag];
    if (reach >= repeats * lag) Prefer({.calls = lag, .reach = reach, .exact = true}, &best);
  }
  return best;
}

std::optional<Period> NearPeriod(std::span<const uint64_t> newest_first, size_t repeats) {
  const size_t longest = newest_first.size() / repeats;
  if (longest < kShortestNearly) return std::nullopt;
  std::vector<uint64_t> tokens(newest_first.begin(), newest_first.end());
  if (2 * UniteRare(repeats, &tokens) > tokens.size()) return std::nullopt;
  // correlation >= c  <=>  differences / pairs <= (1 - c) * (1 - chance)
  const double allowed = (1 - kLeastCorrelation) * (1 - ChanceOfEqual(tokens));
  std::optional<Period> best;
  for (size_t lag = kShortestNearly; lag <= longest; ++lag) {
    const size_t run = NearRun(tokens, lag, (repeats - 1) * lag, allowed);
    if (run > 0) Prefer({.calls = lag, .reach = lag + run, .exact = false}, &best);
  }
  return best;
}

}  // namespace c4::failslow
