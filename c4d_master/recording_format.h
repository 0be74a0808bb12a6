// The version of the recordings' format (docs/formats/recording.md), for who says it without reading one.
#pragma once

#include <cstdint>

namespace c4::c4d {

inline constexpr uint8_t kRecordingVersion = 1;

}  // namespace c4::c4d
