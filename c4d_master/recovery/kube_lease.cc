#include "c4d_master/recovery/kube_lease.h"

#include <algorithm>
#include <random>
#include <unistd.h>

#include "service/clock.h"
#include "service/text.h"

namespace c4::c4d::recovery {
namespace {

using service::Concat;
using SteadyClock = std::chrono::steady_clock;

constexpr absl::Duration kNap = absl::Milliseconds(200);
constexpr int kTicks = 3;  // renewals within the time that it is given
constexpr int kMaxConflicts = 20;

int64_t Nanoseconds(SteadyClock::time_point time) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(time.time_since_epoch()).count();
}
absl::Time Now() {
  return absl::FromUnixNanos(service::SystemClock().UnixNs());
}

}  // namespace

KubeLease::KubeLease(const KubeApi* api, const KubernetesConfig& config, std::string name, std::string holder)
    : api_(api),
      duration_s_(std::max<int64_t>(config.lease_ns / kSecond, 1)),
      namespace_(config.lease_namespace),
      name_(std::move(name)),
      holder_(std::move(holder)),
      all_(Concat("/apis/coordination.k8s.io/v1/namespaces/", namespace_, "/leases")),
      path_(Concat(all_, "/", name_)),
      thread_("c4-kube-lease", absl::Seconds(static_cast<double>(duration_s_) / kTicks), [this] { Tick(); }) {
}

KubeLease::~KubeLease() {
  stopping_ = true;
  thread_.Stop();
}

bool KubeLease::held() const {
  return Nanoseconds(SteadyClock::now()) < held_until_ns_;
}

absl::Status KubeLease::Hold(const KubeDeadline& deadline) {
  wanted_ = true;
  int conflicts = 0;
  while (!held()) {
    absl::Status tried = Try(true, deadline);
    if (tried.ok()) continue;
    const bool patient = absl::IsAborted(tried) ? ++conflicts < kMaxConflicts : absl::IsAlreadyExists(tried);
    if (patient) {
      deadline.Nap(kNap);
      if (!deadline.over()) continue;
    }
    if (!absl::IsAlreadyExists(tried)) return tried;
    // Time is up before anybody knows whether its holder lives: it is the holder's still.
    const std::lock_guard lock(mutex_);
    return HeldBy(seen_holder_);
  }
  return absl::OkStatus();
}

absl::Status KubeLease::HeldBy(const std::string& holder) const {
  return absl::FailedPreconditionError(Concat(service::ToUtf8(holder), " holds the lease ", namespace_, "/",
                                              name_, " of this job; ask that master, or end it"));
}

void KubeLease::Tick() {
  const auto period = std::chrono::nanoseconds(std::chrono::seconds(duration_s_)) / kTicks;
  const KubeDeadline deadline = {SteadyClock::now() + period, [this] { return stopping_.load(); }};
  if (stopping_) return;
  // What went wrong the next command says; until then it is tried at each tick.
  (void)Try(wanted_, deadline).ok();
}

absl::Status KubeLease::Try(bool take, const KubeDeadline& deadline) {
  const SteadyClock::time_point asked = SteadyClock::now();
  const absl::StatusOr<std::string> text =
      api_->Ask({.method = "GET", .path = path_, .body = "", .what = "get leases"}, deadline);
  if (absl::IsNotFound(text.status())) {
    if (!take) return absl::OkStatus();
    return Put("POST", all_, LeaseBody(namespace_, name_, holder_, duration_s_, Now()), asked, deadline);
  }
  if (!text.ok()) return text.status();
  const absl::StatusOr<KubeLeaseState> state = ReadKubeLease(*text);
  if (!state.ok()) return state.status();
  if (!state->holder.empty() && state->holder != holder_) {
    held_until_ns_ = 0;
    C4_RETURN_IF_NOT_OK(Watch(*state));
  }
  if (!take) return absl::OkStatus();
  return Put("PATCH", path_, HoldPatch(*state, holder_, duration_s_, Now()), asked, deadline);
}

absl::Status KubeLease::Put(const std::string& method, const std::string& path, const std::string& body,
                            SteadyClock::time_point asked, const KubeDeadline& deadline) {
  const bool create = method == "POST";
  const absl::StatusOr<std::string> text = api_->Ask({.method = method,
                                                      .path = path,
                                                      .body = body,
                                                      .type = create ? "application/json" : kMergePatch,
                                                      .what = create ? "create leases" : "patch leases"},
                                                     deadline);
  if (!text.ok()) return text.status();
  const absl::StatusOr<KubeLeaseState> state = ReadKubeLease(*text);
  if (!state.ok()) return state.status();
  if (state->holder != holder_) return HeldBy(state->holder);
  const auto given = std::chrono::nanoseconds(std::chrono::seconds(duration_s_));
  // From before it was asked for, and a third less than others wait: a request that is under way has that
  // time.
  held_until_ns_ = Nanoseconds(asked + given * (kTicks - 1) / kTicks);
  return absl::OkStatus();
}

// OK: it may be taken, for its holder has not renewed it for as long as it was given.
absl::Status KubeLease::Watch(const KubeLeaseState& state) {
  const std::lock_guard lock(mutex_);
  const std::string seen = Concat(state.holder, " ", state.renewed, " ", state.transitions);
  const SteadyClock::time_point now = SteadyClock::now();
  if (seen != seen_) {
    alive_ = state.holder == seen_holder_;
    seen_ = seen;
    seen_holder_ = state.holder;
    seen_since_ = now;
  }
  const auto given =
      std::chrono::nanoseconds(std::chrono::seconds(state.duration_s > 0 ? state.duration_s : duration_s_));
  if (now - seen_since_ >= given) return absl::OkStatus();
  // One that lives has renewed it by now; one that has just died is waited for by those who ask again.
  if (alive_ && now - seen_since_ < given * (kTicks - 1) / kTicks) return HeldBy(state.holder);
  return absl::AlreadyExistsError(Concat(service::ToUtf8(state.holder), " holds the lease"));
}

absl::StatusOr<KubeLeaseState> KubeLease::Read(const KubeDeadline& deadline) {
  const absl::StatusOr<std::string> text =
      api_->Ask({.method = "GET", .path = path_, .body = "", .what = "get leases"}, deadline);
  if (!text.ok()) return text.status();
  absl::StatusOr<KubeLeaseState> state = ReadKubeLease(*text);
  if (state.ok() && state->holder != holder_) return HeldBy(state->holder);
  return state;
}

absl::Status KubeLease::Write(const KubeLeaseState& state, const KubeDeadline& deadline) {
  return api_
      ->Ask({.method = "PATCH",
             .path = path_,
             .body = RestartPatch(state),
             .type = kMergePatch,
             .what = "patch leases"},
            deadline)
      .status();
}

std::string KubeHolder() {
  static const std::string holder = [] {
    char name[256] = {};
    if (gethostname(name, sizeof name - 1) != 0) name[0] = '\0';
    std::random_device random;
    return Concat(name[0] == '\0' ? "c4d" : name, "_", absl::Hex(random(), absl::kZeroPad8),
                  absl::Hex(random(), absl::kZeroPad8));
  }();
  return holder;
}

}  // namespace c4::c4d::recovery
