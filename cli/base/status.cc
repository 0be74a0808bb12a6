#include "cli/base/status.h"

#include <cerrno>
#include <system_error>

#include "cli/base/plain_text.h"

namespace c4::cli {
namespace {

StatusCode CodeOf(int error) {
  switch (error) {
    case ENOENT:
      return StatusCode::kNotFound;
    case EACCES:
    case EPERM:
      return StatusCode::kPermissionDenied;
    case EINVAL:
    case ENAMETOOLONG:
      return StatusCode::kInvalidArgument;
    case EAGAIN:
    case EINTR:
      return StatusCode::kUnavailable;
    case ETIMEDOUT:
      return StatusCode::kDeadlineExceeded;
    case EIO:
      return StatusCode::kInternal;
    default:
      return StatusCode::kFailedPrecondition;
  }
}

}  // namespace

Status ErrnoStatus(int error, std::string_view what) {
  return {CodeOf(error), Cat(what, ": ", std::generic_category().message(error))};
}

}  // namespace c4::cli
