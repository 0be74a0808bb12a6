// Small helpers around absl::Status. Outside ccl/ every call that can fail gives an absl::Status or
// StatusOr whose message is a sentence: what happened, to what, and what to do. Any thread.
#pragma once

#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace c4::service {

// "what: meaning of errno", with the status code that fits `error`.
absl::Status ErrnoStatus(int error, std::string_view what);

// The same status with "where: " in front of its message; OK stays OK.
absl::Status Annotate(const absl::Status& status, std::string_view where);

}  // namespace c4::service

// Returns from the calling function when `expr`, an absl::Status, is not OK.
#define C4_RETURN_IF_NOT_OK(expr)                                             \
  do {                                                                        \
    if (::absl::Status c4_status = (expr); !c4_status.ok()) return c4_status; \
  } while (0)
