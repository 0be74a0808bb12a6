// The names that C4P gives to links: directed ones ("leaf0>spine1" up, "leaf0<spine1" down) and cables, which
// are both directions ("leaf0-spine1"). Pure; any thread; no errors.
#pragma once

#include <string>
#include <string_view>

namespace c4::c4d {

// "leaf0-spine1" of "leaf0>spine1" and of "leaf0<spine1".
std::string CableOf(std::string_view link);
// "leaf0" of "leaf0>spine1".
std::string_view LowerEndOf(std::string_view link);
// "spine1" of it.
std::string_view UpperEndOf(std::string_view link);
bool LeadsUp(std::string_view link);

}  // namespace c4::c4d
