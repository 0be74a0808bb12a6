#include "service/status.h"

#include "service/text.h"

namespace c4::service {

absl::Status ErrnoStatus(int error, std::string_view what) {
  return absl::ErrnoToStatus(error, absl::string_view(what.data(), what.size()));
}

absl::Status Annotate(const absl::Status& status, std::string_view where) {
  if (status.ok()) return status;
  return {status.code(), Concat(where, ": ", status.message())};
}

}  // namespace c4::service
