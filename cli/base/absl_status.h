// From the statuses of what `c4-install` links as well (cli/base/status.h) to abseil's, which the rest of the
// command uses. Pure; any thread.
#pragma once

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cli/base/status.h"

namespace c4::cli {

inline absl::Status ToAbsl(const Status& status) {
  return {static_cast<absl::StatusCode>(status.code()), status.message()};
}

template <typename T>
absl::StatusOr<T> ToAbsl(StatusOr<T> result) {
  if (!result.ok()) return ToAbsl(result.status());
  return *std::move(result);
}

}  // namespace c4::cli
