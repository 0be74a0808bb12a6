// The version of this build, from CMake's project version. Any thread.
#pragma once

#include <cstdint>
#include <string_view>

namespace c4::service {

std::string_view Version();  // "0.1.0"
uint32_t VersionNumber();    // major << 16 | minor << 8 | patch, as in wire/control.h

}  // namespace c4::service
