#include "c4d_master/alerts/senders.h"

#include <utility>

#include "c4d_master/alerts/messages.h"
#include "service/clock.h"
#include "service/http_post.h"
#include "service/run_command.h"

namespace c4::c4d {
namespace {

constexpr char kAlertmanagerPath[] = "/api/v2/alerts";
constexpr char kOtlpPath[] = "/v1/logs";

// The threads have nothing to do by themselves.
constexpr absl::Duration kSeldom = absl::Hours(24);
void Nothing() {}

std::string Below(std::string root, const char* path) {
  while (root.ends_with('/')) root.pop_back();
  return root + path;
}

}  // namespace

absl::Status Send(const AlertAttempt& attempt, const std::function<bool()>& stop) {
  const AlertTarget& target = attempt.target;
  const absl::Duration timeout = absl::Nanoseconds(target.timeout_ns);
  if (target.kind == AlertTarget::Kind::kCommand) {
    return service::RunCommand(target.command, attempt.body + "\n", timeout, stop);
  }
  service::HttpPostRequest request;
  request.url = target.url;
  request.body = attempt.body;
  request.timeout = timeout;
  request.allow_inside = target.allow_private;
  request.ca_file = target.ca_file;
  if (target.kind == AlertTarget::Kind::kAlertmanager) {
    request.url = Below(target.url, kAlertmanagerPath);
  } else if (target.kind == AlertTarget::Kind::kOtlp) {
    request.url = Below(target.url, kOtlpPath);
  } else {
    request.headers =
        WebhookHeaders(attempt.number, target.secret, attempt.body, service::SystemClock().UnixNs());
  }
  return service::HttpPost(request, stop).status();
}

AlertSenders::~AlertSenders() {
  Stop();
}

void AlertSenders::Stop() {
  stopping_ = true;
  const std::lock_guard lock(threads_mutex_);
  threads_.clear();  // joins them
}

void AlertSenders::Try(AlertAttempt attempt) {
  const std::lock_guard lock(threads_mutex_);
  if (stopping_) return;
  std::unique_ptr<service::StateThread>& thread = threads_[attempt.target.name];
  if (thread == nullptr) thread = std::make_unique<service::StateThread>("c4d-alerts", kSeldom, Nothing);
  thread->Post([this, attempt = std::move(attempt)] { TryNow(attempt); });
}

void AlertSenders::TryNow(const AlertAttempt& attempt) {
  if (stopping_) return;
  absl::Status outcome = Send(attempt, [this] { return stopping_.load(); });
  if (stopping_ && !outcome.ok()) return;  // cut off
  const std::lock_guard lock(mutex_);
  results_.push_back({attempt.number, attempt.test, attempt.target.name, std::move(outcome)});
}

std::vector<AlertAttempted> AlertSenders::Take() {
  const std::lock_guard lock(mutex_);
  return std::exchange(results_, {});
}

}  // namespace c4::c4d
