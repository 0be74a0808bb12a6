// The period of a sequence of calls at its end: after how many calls the same calls come again.
//
// A call is a token: what it does, in which communicator, of which size, as one number. Tokens have no order,
// so the autocorrelation is that of their indicators: the share of calls that meet an equal one `k` calls
// earlier, less the share that would by chance. It is taken over the pairs that there are (the printed
// formula of the paper divides by the whole length, which needs 20 periods before 0.95 can be reached). An
// exact repetition has the value 1.
//
// Pure; any thread. REQUIRES of all: the tokens stand newest first.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace c4::failslow {

struct Period {
  size_t calls = 0;
  size_t reach = 0;    // so many of the newest calls repeat with it
  bool exact = false;  // all of them do; otherwise nearly all
};

// Below it a sequence does not repeat.
inline constexpr double kLeastCorrelation = 0.95;

// The smallest period that the newest calls show at least `repeats` times without a difference, unless a
// longer one, shown as often, reaches at least twice as far back: micro-batches and layers repeat as well,
// but only until their iteration ends. nullopt: there is none.
std::optional<Period> ExactPeriod(std::span<const uint64_t> newest_first, size_t repeats);

// The same for calls some of whose sizes are others each time. Tokens that come fewer than `repeats` times
// count as one and the same, and the smallest period of at least kShortestNearly calls is taken whose
// autocorrelation over `repeats` periods reaches kLeastCorrelation. nullopt: there is none, or more than half
// of the calls never come again.
inline constexpr size_t kShortestNearly = 20;
std::optional<Period> NearPeriod(std::span<const uint64_t> newest_first, size_t repeats);

// The share of equal tokens that chance would bring: the sum of the squared shares of each. 1 of none.
double ChanceOfEqual(std::span<const uint64_t> tokens);

}  // namespace c4::failslow
