// The library's knobs as `c4 env` and docs/knobs.md show them: the table of ccl/include/c4/knobs.inc, what
// the environment says of each, and variables that look like knobs and are none.
//
// Pure: the environment is passed in as NAME=value. Any thread.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace c4::cli {

struct Knob {
  std::string_view name;
  std::string_view type;           // text, number, choice
  std::string_view default_value;  // empty where there is none
  std::string_view range;          // "low..high", "a|b|c", empty for a text
  std::string_view help;
};

std::span<const Knob> LibraryKnobs();
// Variables that the c4 command itself reads.
std::span<const Knob> CommandKnobs();

// What is wrong with `value` for this knob, as half a sentence; nullopt when it may be used.
std::optional<std::string> ValueFault(const Knob& knob, std::string_view value);

struct UnknownVariable {
  std::string name;
  std::string_view meant;  // the knob whose name is nearest; empty when none is near
};
// Variables named C4_* that no table holds, in order of their names.
std::vector<UnknownVariable> UnknownVariables(const std::vector<std::string>& environment);

std::string KnobsAsText(const std::vector<std::string>& environment);
std::string KnobsAsJson(const std::vector<std::string>& environment);
// docs/knobs.md; the same in every environment.
std::string KnobsAsMarkdown();

}  // namespace c4::cli
