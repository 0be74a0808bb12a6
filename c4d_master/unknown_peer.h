// The peer of a queue pair of which nobody said the rank, only the number of the other end's
// (detectors/queue_pair_ends.h finds it). As agents say it.
#pragma once

#include <cstdint>

namespace c4::c4d {

inline constexpr uint32_t kUnknownPeer = UINT32_MAX;

}  // namespace c4::c4d
