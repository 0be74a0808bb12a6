#include "c4d_master/recovery/kube_api.h"

#include <algorithm>
#include <thread>

#include "absl/strings/ascii.h"
#include "c4d_master/recovery/kube_words.h"
#include "service/http_post.h"
#include "service/run_dir.h"
#include "service/text.h"

namespace c4::c4d::recovery {

using service::Concat;
using SteadyClock = std::chrono::steady_clock;

const char kMergePatch[] = "application/merge-patch+json";
const char kStrategicPatch[] = "application/strategic-merge-patch+json";

namespace {

// A request that is not answered is given up and asked again: the server may have gone to another machine.
constexpr absl::Duration kLongest = absl::Seconds(10);
constexpr absl::Duration kPause = absl::Milliseconds(500);
constexpr absl::Duration kLongestPause = absl::Seconds(5);
constexpr absl::Duration kLook = absl::Milliseconds(50);
constexpr size_t kMaxToken = size_t{64} << 10;
constexpr size_t kMaxAnswer = size_t{32} << 20;

}  // namespace

void KubeDeadline::Nap(absl::Duration pause) const {
  const SteadyClock::time_point end = SteadyClock::now() + absl::ToChronoNanoseconds(pause);
  while (!over() && SteadyClock::now() < end)
    std::this_thread::sleep_for(absl::ToChronoNanoseconds(std::min(kLook, pause)));
}

absl::StatusOr<std::string> KubeApi::Ask(const KubeRequest& request, const KubeDeadline& deadline) const {
  absl::Status last = absl::DeadlineExceededError(Concat("no time is left to ", request.what));
  while (!deadline.over()) {
    absl::Duration again = absl::ZeroDuration();
    absl::StatusOr<std::string> answer = AskOnce(request, deadline, &again);
    if (answer.ok() || again <= absl::ZeroDuration()) return answer;
    last = answer.status();
    deadline.Nap(again);
  }
  return last;
}

// `again`: when it may be better; zero: this is the answer.
absl::StatusOr<std::string> KubeApi::AskOnce(const KubeRequest& request, const KubeDeadline& deadline,
                                             absl::Duration* again) const {
  const absl::StatusOr<std::string> token =
      service::ReadSmallFile(config_.token_file, kMaxToken, service::Links::kFollow);
  if (!token.ok()) return absl::FailedPreconditionError(token.status().message());
  const std::string bearer(absl::StripAsciiWhitespace(*token));
  if (bearer.empty() || !std::all_of(bearer.begin(), bearer.end(), [](char c) {
        return absl::ascii_isgraph(static_cast<unsigned char>(c));
      })) {
    return absl::FailedPreconditionError(
        Concat(config_.token_file, " holds no token; give the file of a service account"));
  }
  const absl::Duration left = absl::FromChrono(deadline.until - SteadyClock::now());
  const absl::StatusOr<service::HttpAnswer> answer =
      service::HttpCall({.url = config_.server + request.path,
                         .body = request.body,
                         .content_type = request.type,
                         .headers = {{"Authorization", "Bearer " + bearer}, {"Accept", "application/json"}},
                         .timeout = std::clamp(left, absl::Milliseconds(1), kLongest),
                         .allow_inside = true,
                         .ca_file = config_.ca_file,
                         .method = request.method,
                         .max_answer_bytes = kMaxAnswer},
                        deadline.stop);
  if (!answer.ok()) {
    if (absl::IsUnavailable(answer.status())) *again = kPause;
    return answer.status();
  }
  if (answer->status >= 200 && answer->status < 300) {
    C4_RETURN_IF_NOT_OK(CheckKubeObject(answer->body));
    return answer->body;
  }
  const std::string message = ReadKubeMessage(answer->body);
  const std::string said = Concat(" (", answer->status, message.empty() ? "" : ": ", message, ")");
  switch (answer->status) {
    case 401:
      return absl::FailedPreconditionError(Concat("the API server does not take the token of ",
                                                  config_.token_file,
                                                  "; see whether its service account is still there", said));
    case 403:
      return absl::FailedPreconditionError(
          Concat("the master may not ", request.what,
                 "; bind the roles of deploy/kubernetes to its service account", said));
    case 404:
      return absl::NotFoundError(Concat("there is nothing of that name to ", request.what, said));
    case 409:
      return absl::AbortedError(Concat("somebody else was faster to ", request.what, said));
    case 410:
      return absl::OutOfRangeError(Concat("the list is too old to go on with", said));
    default:
      break;
  }
  if (answer->status == 429 || answer->status >= 500 || answer->status == 408) {
    const absl::Duration pause = std::clamp(answer->retry_after, kPause, kLongestPause);
    if (answer->status == 429 && request.retry_after != nullptr) {
      *request.retry_after = pause;
      return absl::ResourceExhaustedError(message);
    }
    *again = pause;
    return absl::UnavailableError(Concat("the API server could not ", request.what,
                                         "; see its health (`kubectl get --raw /readyz`)", said));
  }
  return absl::FailedPreconditionError(
      Concat("the API server refuses to ", request.what,
             "; see whether \"server\" and the selectors of \"kubernetes\" are right", said));
}

}  // namespace c4::c4d::recovery
