// The mapping file that says which events of a Kineto profile are which operation of a training step, where
// steps begin, and which rank stands where in the job (docs/formats/kineto-mapping.md).
//
// Plain values; pure; any thread. What is wrong with a mapping is refused with the place in it:
// "rules[2].category: ...".
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "analysis/whatif/operation_type.h"

namespace re2 {
class RE2;
}

namespace c4::traces {

// A glob ("*", "?") of the whole text, or a regular expression of RE2 that is found anywhere in it: linear
// time, whatever the pattern.
class TextPattern {
 public:
  static absl::StatusOr<TextPattern> Glob(std::string_view glob);
  static absl::StatusOr<TextPattern> Regex(std::string_view regex);

  // `groups`, where wanted: what the capture groups hold, the whole match first; nullopt: took no part.
  bool Matches(std::string_view text, std::vector<std::optional<std::string>>* groups = nullptr) const;
  int groups() const;
  const std::string& source() const { return source_; }

 private:
  static absl::StatusOr<TextPattern> Make(const std::string& regex, std::string_view source);

  std::shared_ptr<const re2::RE2> regex_;
  std::string source_;  // as the mapping has it
};

// Where a number of an event stands.
struct NumberSource {
  int group = 0;    // of the name's pattern; 0: not there
  std::string arg;  // empty: not there
  bool said() const { return group > 0 || !arg.empty(); }
};

// A category that no event has: the kernels that were launched within marks of the program.
inline constexpr char kLaunched[] = "launched";

struct KinetoRule {
  whatif::OperationType type = whatif::OperationType::kGc;
  TextPattern name;
  std::vector<std::string> categories;  // the one to be preferred first; kLaunched may be among them
  std::vector<std::pair<std::string, TextPattern>> args;
  NumberSource micro_batch;
  NumberSource chunk;
  NumberSource global_chunk;
  NumberSource step;  // said: steps are not looked for
  std::string join;   // events with one value of this argument are one operation
  // What follows one another, with no other computation, transfer or optimizer between, is one operation.
  bool runs = false;
  bool last = false;  // of a step only the one that begins last counts
  bool optional = false;
};

struct KinetoLayout {
  // "tp", "cp", "dp", "pp", the one that varies fastest over ranks first; empty: by `ranks`.
  std::vector<std::string> order;
  std::map<std::string, int> sizes;
  std::map<int, std::pair<int, int>> ranks;  // rank: dp_rank and stage
};

struct KinetoMapping {
  std::vector<KinetoRule> rules;
  TextPattern step_name;  // its first group is the step's number
  std::vector<std::string> step_categories;
  std::optional<TextPattern> rank_of_file;  // said: goes before distributedInfo
  KinetoLayout layout;
};

// "rule 3 (forward-compute)", counted from 1.
std::string RuleName(const KinetoMapping& mapping, size_t rule);

absl::StatusOr<KinetoMapping> ParseKinetoMapping(std::string_view text);

}  // namespace c4::traces
