// Finds the rule of a mapping that an event comes under, and the numbers that the rule takes from it. What
// the name and category decide is kept for the next event with both, since profiles repeat few names often.
//
// The mapping must outlive it. One thread.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "absl/status/statusor.h"
#include "traces/kineto_events.h"
#include "traces/kineto_launches.h"
#include "traces/kineto_mapping.h"

namespace c4::traces {

// What an event is. Numbers: -1 where the rule does not say.
struct KinetoMatch {
  enum class Kind : uint8_t { kNothing, kStep, kOperation };
  Kind kind = Kind::kNothing;
  static constexpr uint8_t kNowhere = UINT8_MAX;
  uint8_t preference = kNowhere;  // place of the category in the rule's list
  uint8_t launched = kNowhere;    // place of kLaunched there, where the event may have launched kernels
  uint16_t rule = 0;
  int32_t step = -1;
  int32_t micro_batch = -1;
  int32_t chunk = -1;
  int32_t global_chunk = -1;
  uint64_t join = 0;  // 0: an operation of its own
};

class KinetoMatcher {
 public:
  explicit KinetoMatcher(const KinetoMapping& mapping);

  const std::set<std::string>& args() const { return args_; }  // those that rules look at
  bool wants_launches() const { return wants_launches_; }
  // InvalidArgument where a number that a rule takes is none.
  absl::StatusOr<KinetoMatch> Match(const KinetoEvent& event);

 private:
  static constexpr size_t kNumbers = 4;  // step, micro-batch, chunk, global chunk

  struct Candidate {
    KinetoMatch::Kind kind = KinetoMatch::Kind::kNothing;
    uint16_t rule = 0;
    uint8_t preference = KinetoMatch::kNowhere;
    uint8_t launched = KinetoMatch::kNowhere;
    std::array<std::string, kNumbers> texts;  // out of the name
  };

  const std::vector<Candidate>& Candidates(const KinetoEvent& event);
  bool ArgsMatch(const KinetoRule& rule, const KinetoEvent& event) const;
  absl::Status TakeNumbers(const Candidate& candidate, const KinetoEvent& event, KinetoMatch* match) const;

  const KinetoMapping& mapping_;
  std::set<std::string> args_;
  bool wants_launches_ = false;
  std::unordered_set<std::string> categories_;
  std::unordered_map<std::string, std::vector<Candidate>> known_;  // by category, NUL, name
  std::string key_;
};

}  // namespace c4::traces
