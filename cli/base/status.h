// Status and StatusOr as abseil's, for what runs in a training image as well: `c4-install` links nothing but
// libc, and abseil's are a shared library of Debian's. The codes have abseil's numbers, so that the rest of
// the command goes on with its own (cli/base/absl_status.h). A message is a sentence: what happened, to what,
// and what to do. Values; any thread.
#pragma once

#include <optional>
#include <ostream>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

namespace c4::cli {

enum class StatusCode {
  kOk = 0,
  kInvalidArgument = 3,
  kDeadlineExceeded = 4,
  kNotFound = 5,
  kPermissionDenied = 7,
  kFailedPrecondition = 9,
  kInternal = 13,
  kUnavailable = 14,
};

class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(StatusCode code, std::string message) : code_(code), message_(std::move(message)) {}

  bool ok() const { return code_ == StatusCode::kOk; }
  StatusCode code() const { return code_; }
  const std::string& message() const { return message_; }
  // Says that a failure does not matter here.
  void IgnoreError() const {}

 private:
  StatusCode code_ = StatusCode::kOk;
  std::string message_;
};

inline Status NotFoundError(std::string message) {
  return {StatusCode::kNotFound, std::move(message)};
}
inline Status FailedPreconditionError(std::string message) {
  return {StatusCode::kFailedPrecondition, std::move(message)};
}
inline Status InvalidArgumentError(std::string message) {
  return {StatusCode::kInvalidArgument, std::move(message)};
}
inline Status PermissionDeniedError(std::string message) {
  return {StatusCode::kPermissionDenied, std::move(message)};
}
inline Status UnavailableError(std::string message) {
  return {StatusCode::kUnavailable, std::move(message)};
}
inline Status DeadlineExceededError(std::string message) {
  return {StatusCode::kDeadlineExceeded, std::move(message)};
}
inline Status InternalError(std::string message) {
  return {StatusCode::kInternal, std::move(message)};
}
// "what: meaning of errno", with the code that fits `error`.
Status ErrnoStatus(int error, std::string_view what);

inline bool IsNotFound(const Status& status) {
  return status.code() == StatusCode::kNotFound;
}

// A failure, or a value.
template <typename T>
class [[nodiscard]] StatusOr {
 public:
  // REQUIRES: !status.ok()
  StatusOr(Status status) : status_(std::move(status)) {}  // NOLINT(google-explicit-constructor)
  // In place, because std::nullopt may be a T.
  template <typename U = T, typename = std::enable_if_t<std::is_convertible_v<U&&, T>>>
  StatusOr(U&& value)  // NOLINT(google-explicit-constructor)
      : value_(std::in_place, std::forward<U>(value)) {}

  bool ok() const { return status_.ok(); }
  const Status& status() const { return status_; }
  // REQUIRES: ok()
  const T& operator*() const& { return *value_; }
  T& operator*() & { return *value_; }
  T&& operator*() && { return *std::move(value_); }
  const T* operator->() const { return &*value_; }
  T* operator->() { return &*value_; }

 private:
  Status status_;
  std::optional<T> value_;
};

// For the messages of tests.
inline std::ostream& operator<<(std::ostream& out, const Status& status) {
  return out << (status.ok() ? "OK" : status.message());
}

}  // namespace c4::cli

// Returns from the calling function when `expr`, a Status, is not OK.
#define C4_RETURN_ON_FAILURE(expr)                                               \
  do {                                                                           \
    if (::c4::cli::Status c4_status = (expr); !c4_status.ok()) return c4_status; \
  } while (0)
