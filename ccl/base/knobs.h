// Typed access to the knob table (ccl/include/c4/knobs.inc). The whole table is read from the environment at
// the first use of any knob, by the thread that uses it, and never again: programs change their environment
// while threads of ours run, which getenv does not survive. The child of a fork reads its own at its first
// use. Safe from any thread. A value out of range is refused with one warning, the default holds.
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

// A choice's place in its table's range, from 0, as it is told to others; and back, "?" when it has no such.
uint16_t KnobChoiceNumber(Knob knob);
std::string KnobChoiceText(Knob knob, uint16_t number);
const char* KnobName(Knob knob);

// The next use reads the environment anew: for what runs before the program can have set it (constructors),
// where the program asks for it (ncclResetDebugInit), and for tests.
void ForgetKnobs();

// The pure part, for tests: `value` as knob `knob` would take it. False when it is refused.
bool ParseNumber(std::string_view value, std::string_view range, int64_t* number);
bool ParseChoice(std::string_view value, std::string_view range, std::string* choice);

}  // namespace c4
