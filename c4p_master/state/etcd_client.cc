#include "c4p_master/state/etcd_client.h"

#include <utility>

#include "service/http_post.h"
#include "service/log.h"
#include "service/status.h"
#include "service/text.h"

namespace c4::c4p {
namespace {

using service::Concat;

constexpr size_t kMostAnswer = size_t{64} << 20;
constexpr int kOk = 200;

}  // namespace

EtcdClient::EtcdClient(EtcdPlace place, std::function<bool()> stop)
    : place_(std::move(place)), stop_(std::move(stop)) {
  if (!place_.user.empty() && place_.endpoints.front().starts_with("http://")) {
    service::LogWarning("the password of etcd's user ", service::ToUtf8(place_.user),
                        " goes over the network in clear; give --store as etcds://...");
  }
}

absl::StatusOr<std::string> EtcdClient::AskMember(const std::string& endpoint, const std::string& path,
                                                  const std::string& body, absl::Duration timeout) {
  service::HttpPostRequest request{.url = endpoint + path,
                                   .body = body,
                                   .timeout = timeout,
                                   .allow_inside = true,
                                   .ca_file = place_.ca_file,
                                   .max_answer_bytes = kMostAnswer};
  {
    const std::lock_guard lock(mutex_);
    if (!token_.empty()) request.headers["Authorization"] = token_;
  }
  absl::StatusOr<service::HttpAnswer> answer = service::HttpCall(request, stop_);
  if (!answer.ok()) {
    return absl::UnavailableError(Concat("etcd at ", endpoint, ": ", answer.status().message()));
  }
  if (answer->status == kOk && LooksLikeEtcd(answer->body)) return std::move(answer->body);
  return ExplainEtcdError(place_, endpoint, answer->status, answer->body);
}

absl::Status EtcdClient::LogIn(const std::string& endpoint, absl::Duration timeout) {
  {
    const std::lock_guard lock(mutex_);
    token_.clear();
  }
  const absl::StatusOr<std::string> answer =
      AskMember(endpoint, "/v3/auth/authenticate", EtcdLogIn(place_), timeout);
  if (absl::IsNotFound(answer.status())) {
    const std::lock_guard lock(mutex_);
    if (!std::exchange(without_users_, true)) service::LogWarning(answer.status().message());
    return absl::OkStatus();
  }
  if (!answer.ok()) return answer.status();
  absl::StatusOr<std::string> token = ReadEtcdToken(*answer);
  if (!token.ok()) return token.status();
  const std::lock_guard lock(mutex_);
  token_ = *std::move(token);
  without_users_ = false;
  return absl::OkStatus();
}

absl::StatusOr<std::string> EtcdClient::AskLoggedIn(const std::string& endpoint, const std::string& path,
                                                    const std::string& body, absl::Duration timeout) {
  bool has_token = false;
  bool without_users = false;
  {
    const std::lock_guard lock(mutex_);
    has_token = !token_.empty();
    without_users = without_users_;
  }
  const bool may_log_in = !place_.user.empty();
  if (may_log_in && !has_token && !without_users) C4_RETURN_IF_NOT_OK(LogIn(endpoint, timeout));
  absl::StatusOr<std::string> answer = AskMember(endpoint, path, body, timeout);
  // A token that ran out, or users that came after us.
  if (!may_log_in || !absl::IsUnauthenticated(answer.status())) return answer;
  C4_RETURN_IF_NOT_OK(LogIn(endpoint, timeout));
  return AskMember(endpoint, path, body, timeout);
}

absl::StatusOr<std::string> EtcdClient::Ask(const std::string& path, const std::string& body,
                                            absl::Duration timeout) {
  const size_t members = place_.endpoints.size();
  size_t first = 0;
  {
    const std::lock_guard lock(mutex_);
    first = endpoint_;
  }
  absl::Status told;
  for (size_t i = 0; i < members && !stop_(); ++i) {
    const size_t at = (first + i) % members;
    absl::StatusOr<std::string> answer =
        AskLoggedIn(place_.endpoints[at], path, body, timeout / static_cast<double>(members));
    const absl::StatusCode code = answer.status().code();
    const bool speaks_for_all =
        code != absl::StatusCode::kUnavailable && code != absl::StatusCode::kFailedPrecondition;
    if (speaks_for_all) {
      const std::lock_guard lock(mutex_);
      endpoint_ = at;
    }
    if (code == absl::StatusCode::kUnauthenticated)
      return absl::PermissionDeniedError(answer.status().message());
    if (speaks_for_all) return answer;
    // A member that does not answer may come back: one that is no etcd is only to blame when all are none.
    if (told.ok() || absl::IsFailedPrecondition(told)) told = answer.status();
  }
  return told.ok() ? absl::CancelledError("this master ends") : told;
}

}  // namespace c4::c4p
