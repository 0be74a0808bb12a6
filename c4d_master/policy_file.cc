#include "c4d_master/policy_file.h"

#include <utility>

namespace c4::c4d {

PolicyFile::PolicyFile(std::string path, GoOver go_over)
    : file_(std::move(path)), go_over_(std::move(go_over)) {}

std::optional<absl::StatusOr<Policy>> PolicyFile::Look(int64_t now_ns, bool asked) {
  if (!file_.Look(now_ns, asked)) return std::nullopt;
  const absl::StatusOr<Policy> policy = LoadPolicy(file_.path());
  return policy.ok() ? go_over_(*policy) : policy;
}

}  // namespace c4::c4d
