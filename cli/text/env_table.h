// Tables of C4's environment variables as `c4 env`, `c4-install env` and docs/knobs.md show them: the
// library's, of ccl/include/c4/knobs.inc, and the command's; what the environment says of each, and variables
// that look like knobs and are none.
//
// Pure: the environment is passed in as NAME=value. Any thread.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

namespace c4::cli {

struct Knob {
  std::string name;
  std::string type;           // text, number (a whole one), real, choice, flag
  std::string default_value;  // empty where there is none
  std::string range;          // "low..high", "a|b|c", empty for a text; of a number empty: any
  std::string help;
  // Of a daemon's setting its name in files and, behind two dashes, on the command line; else empty. Such a
  // variable counts as not set when it is empty.
  std::string setting = {};
};

std::span<const Knob> LibraryKnobs();
// Variables that the c4 command itself reads.
std::span<const Knob> CommandKnobs();

// One table of variables: whose they are, what their names begin with, and the variables.
struct KnobTable {
  std::string owner;   // "the library", "c4a, the node agent"
  std::string prefix;  // "C4_", "C4A_"
  std::span<const Knob> knobs;
};
using KnobTables = std::span<const KnobTable>;
// What is read in a training image: the library's and the command's. The daemons' as well: AllKnobTables
// (cli/text/daemon_knobs.h).
KnobTables ImageKnobTables();

// What is wrong with `value` for this knob, as half a sentence; nullopt when it may be used.
std::optional<std::string> ValueFault(const Knob& knob, const std::string& value);

struct UnknownVariable {
  std::string name;
  std::string meant;  // the knob whose name is nearest; empty when none is near
};
// Variables with a prefix of these tables that none of them holds, in order of their names.
std::vector<UnknownVariable> UnknownVariables(KnobTables tables, const std::vector<std::string>& environment);

std::string KnobsAsText(KnobTables tables, const std::vector<std::string>& environment);
std::string KnobsAsJson(KnobTables tables, const std::vector<std::string>& environment);
// docs/knobs.md; the same in every environment.
std::string KnobsAsMarkdown(KnobTables tables);

}  // namespace c4::cli
