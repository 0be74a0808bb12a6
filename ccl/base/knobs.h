// Typed access to the knob table (ccl/include/c4/knobs.inc). Values are read from the environment at
// each call: keep them at the point of set-up, never in a hot path. Safe from any thread as long as
// nobody changes the environment. A value out of range is refused with one warning, the default holds.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace c4 {

enum class Knob {
#define C4_KNOB(name, type, default_value, range, help) name,
#include "ccl/include/c4/knobs.inc"
#undef C4_KNOB
};

int64_t KnobNumber(Knob knob);    // REQUIRES: the knob's type is number
std::string KnobText(Knob knob);  // text or choice; a choice comes in the table's spelling
bool KnobIsSet(Knob knob);        // the environment has it, and not empty

// The pure part, for tests: `value` as knob `knob` would take it. False when it is refused.
bool ParseNumber(std::string_view value, std::string_view range, int64_t* number);
bool ParseChoice(std::string_view value, std::string_view range, std::string* choice);

}  // namespace c4
