// Calls of the API server of Kubernetes, as its HTTP API has them: one request, its answer's text, and what a
// status other than 2xx means, as a sentence that says what to do. The token is read again at each request,
// for the cluster changes it. Blocks; any thread.
#pragma once

#include <chrono>
#include <string>

#include "absl/time/time.h"
#include "c4d_master/recovery/driver.h"
#include "service/status.h"

namespace c4::c4d::recovery {

// Until when, at the longest, and who else ends it.
struct KubeDeadline {
  std::chrono::steady_clock::time_point until;
  Driver::Stop stop;

  bool over() const { return std::chrono::steady_clock::now() >= until || (stop && stop()); }
  // For `pause` or to the end, looking at `stop`.
  void Nap(absl::Duration pause) const;
};

struct KubeRequest {
  std::string method;  // "GET"
  std::string path;    // "/api/v1/nodes/n1", with the query
  std::string body;
  std::string type = "application/json";
  std::string what;  // "patch nodes": for sentences
  // An answer of 429 is told at once, as ResourceExhausted, and `retry_after` filled; else it is waited for.
  absl::Duration* retry_after = nullptr;
};

extern const char kMergePatch[];  // content types
extern const char kStrategicPatch[];

class KubeApi {
 public:
  explicit KubeApi(const KubernetesConfig& config) : config_(config) {}

  // The body of a 2xx that is an object of the API. FailedPrecondition: it is refused, and would be again.
  // NotFound (404), Aborted (409: somebody else has changed it, or it is there already), OutOfRange (410:
  // what the token stood for is no more). Servers that are busy, away, or fail are asked again until time is
  // up: Unavailable with the last word. InvalidArgument: an answer that cannot be read.
  absl::StatusOr<std::string> Ask(const KubeRequest& request, const KubeDeadline& deadline) const;

 private:
  absl::StatusOr<std::string> AskOnce(const KubeRequest& request, const KubeDeadline& deadline,
                                      absl::Duration* again) const;

  const KubernetesConfig config_;
};

}  // namespace c4::c4d::recovery
