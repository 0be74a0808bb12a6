// The one table of what counts as an event of the hardware: which counters are read, from how much growth
// within a minute on they are told of, and which values are told of when they are entered. docs/health.md
// holds the same table; a test compares them. Plain values.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace c4::agent {

enum class RuleSource { kInfiniband, kInfinibandHardware, kEthernet, kGpu, kCpu, kMemory };

// A counter that only grows. Where nobody knows its harmless rate, what the vendor calls a symptom of a bad
// cable or device.
struct CounterRule {
  RuleSource source;
  std::string_view counter;  // the file's name in the source's folder; of a GPU our own
  std::string_view kind;     // event_kind
  uint64_t per_minute;       // growth within a minute, or less, that is told of
  std::string_view words;    // what has grown
  std::string_view reason;   // why this much
};
std::span<const CounterRule> CounterRules();

// A value that is told of when it is entered, again only after it was left for kRearmNs.
struct LevelRule {
  std::string_view name;
  std::string_view kind;
  double enter;  // at or above it
  std::string_view unit;
  std::string_view reason;
};
std::span<const LevelRule> LevelRules();
const LevelRule& LevelRuleOf(std::string_view name);  // REQUIRES: it is in the table

inline constexpr int64_t kRuleWindowNs = 60'000'000'000;  // of per_minute; a counter is told of no more often
inline constexpr int64_t kRearmNs = 60'000'000'000;

}  // namespace c4::agent
