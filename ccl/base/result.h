// What a call inside the library gives back: NCCL's code, and for a failure one sentence that says what
// happened and what to do. We throw nothing; what the standard library throws ends at base/caught.h. A copy
// shares the sentence, so that a failure can be handed on where memory is at its end.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "ccl/include/nccl.h"

namespace c4 {

class [[nodiscard]] Result {
 public:
  Result() = default;
  Result(ncclResult_t code, std::string message)
      : code_(code), message_(std::make_shared<const std::string>(std::move(message))) {}

  bool ok() const { return code_ == ncclSuccess; }
  ncclResult_t code() const { return code_; }
  const std::string& message() const { return message_ != nullptr ? *message_ : NoMessage(); }

 private:
  static const std::string& NoMessage();

  ncclResult_t code_ = ncclSuccess;
  std::shared_ptr<const std::string> message_;
};

inline Result Ok() {
  return {};
}

// printf-style failure.
Result Fail(ncclResult_t code, const char* format, ...) __attribute__((format(printf, 2, 3)));

// What errno `error` means, safe from any thread.
std::string ErrnoText(int error);

}  // namespace c4

// Returns from the calling function when `expr` failed.
#define C4_RETURN_IF_ERROR(expr)                                            \
  do {                                                                      \
    if (::c4::Result c4_result = (expr); !c4_result.ok()) return c4_result; \
  } while (0)
