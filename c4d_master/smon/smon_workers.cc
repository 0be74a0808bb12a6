#include "c4d_master/smon/smon_workers.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "service/http_post.h"
#include "service/run_command.h"

namespace c4::c4d {
namespace {

constexpr int kAttempts = 5;

// The threads have nothing to do by themselves.
constexpr absl::Duration kSeldom = absl::Hours(24);
void Nothing() {}

// The master shares its machine, maybe with ranks.
int AnalysisThreads() {
  return std::clamp(static_cast<int>(std::thread::hardware_concurrency()) / 2, 1, 8);
}

}  // namespace

absl::Status Attempt(const Delivery& delivery, const std::function<bool()>& stop) {
  const absl::Duration timeout = absl::Nanoseconds(delivery.rule.timeout_ns);
  if (!delivery.rule.webhook.empty()) {
    return service::HttpPostJson(delivery.rule.webhook, delivery.body, timeout, stop);
  }
  return service::RunCommand(delivery.rule.command, delivery.body + "\n", timeout, stop);
}

struct SmonWorkers::Sender {
  service::Wakeup stopped;
  service::StateThread thread{"c4d-alerts", kSeldom, Nothing};
};

SmonWorkers::SmonWorkers(absl::Duration first_pause)
    : first_pause_(first_pause), analyst_("c4d-smon", kSeldom, Nothing) {}

SmonWorkers::~SmonWorkers() {
  Stop();
}

void SmonWorkers::Stop() {
  stopping_ = true;
  {
    const std::lock_guard lock(senders_mutex_);
    for (const auto& [rule, sender] : senders_) sender->stopped.Notify();
    senders_.clear();  // joins them
  }
  analyst_.Stop();
}

void SmonWorkers::Analyse(uint64_t session, ProfiledJob profile) {
  // Tasks are copied, profiles are not.
  const auto shared = std::make_shared<ProfiledJob>(std::move(profile));
  analyst_.Post([this, session, shared] {
    Analysed result{session, AnalyseProfile(*shared, AnalysisThreads())};
    const std::lock_guard lock(mutex_);
    analysed_.push_back(std::move(result));
  });
}

void SmonWorkers::Deliver(Delivery delivery) {
  const std::lock_guard lock(senders_mutex_);
  if (stopping_) return;
  std::unique_ptr<Sender>& sender = senders_[delivery.notification.rule];
  if (sender == nullptr) sender = std::make_unique<Sender>();
  service::Wakeup* const stopped = &sender->stopped;
  sender->thread.Post([this, stopped, delivery = std::move(delivery)] { SendNow(delivery, stopped); });
}

void SmonWorkers::SendNow(const Delivery& delivery, service::Wakeup* stopped) {
  absl::Status outcome = Send(delivery, stopped);
  if (stopping_ && !outcome.ok()) return;  // cut off, not given up
  const std::lock_guard lock(mutex_);
  delivered_.push_back({delivery.notification, std::move(outcome)});
}

absl::Status SmonWorkers::Send(const Delivery& delivery, service::Wakeup* stopped) {
  const bool test = delivery.notification.kind == Notification::Kind::kTest;
  absl::Duration pause = first_pause_;
  absl::Status outcome = absl::CancelledError("the master is about to end");
  for (int attempt = 1; !stopping_; ++attempt) {
    outcome = Attempt(delivery, [this] { return stopping_.load(); });
    // A test is to tell at once; what was refused is refused again.
    if (outcome.ok() || test || attempt == kAttempts || absl::IsFailedPrecondition(outcome)) break;
    (void)stopped->WaitFor(pause);
    pause *= 2;
  }
  return outcome;
}

std::vector<Analysed> SmonWorkers::TakeAnalysed() {
  const std::lock_guard lock(mutex_);
  return std::exchange(analysed_, {});
}

std::vector<Delivered> SmonWorkers::TakeDelivered() {
  const std::lock_guard lock(mutex_);
  return std::exchange(delivered_, {});
}

}  // namespace c4::c4d
