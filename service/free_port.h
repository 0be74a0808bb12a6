// A port for a program that is about to be started. Any thread.
#pragma once

#include <random>

#include "absl/status/statusor.h"

namespace c4::service {

// A port that nobody listens on, below the range that the kernel gives to outgoing connections, so that
// none of the job's own connections takes it before its owner opens it.
absl::StatusOr<int> FreePort(std::mt19937* random);

}  // namespace c4::service
