#include "c4d_master/hearing.h"

#include <algorithm>

namespace c4::c4d {
namespace {

// Slowness is judged by slices, which are as long whatever the agents do.
bool IsSlow(const Finding& finding) {
  return finding.syndrome == Syndrome::kCommunicationSlow ||
         finding.syndrome == Syndrome::kNonCommunicationSlow;
}

bool IsUnusual(const Communicator& communicator) {
  if (communicator.joining) return true;
  return communicator.waited_in &&
         communicator.StandstillNs() > std::max(Hearing::kUnusualNs, communicator.longest_standstill_ns);
}

}  // namespace

int64_t Hearing::UsualNs(size_t hosts, const Policy& policy) const {
  const int64_t wanted_ns = std::min(kLongestNs, static_cast<int64_t>(hosts) * per_host_ns_);
  const int64_t interval_ns = std::min(
      {wanted_ns, policy.agent_stale_ns / 3, policy.windows.slice_ns, policy.detectors.hang.suspect_ns / 2});
  return interval_ns > kLookNs ? interval_ns : 0;
}

void Hearing::Observe(const JobSnapshot& snapshot, const std::vector<Finding>& findings, const Policy& policy,
                      int64_t now_ns) {
  interval_ns_ = UsualNs(snapshot.stale_hosts.size(), policy);
  if (interval_ns_ == 0) return;
  const bool alert =
      std::any_of(findings.begin(), findings.end(), [](const Finding& f) { return !IsSlow(f); }) ||
      std::any_of(snapshot.changed.begin(), snapshot.changed.end(),
                  [&](uint32_t i) { return IsUnusual(snapshot.communicators[i]); });
  if (alert) alert_until_ns_ = now_ns + kAlertNs;
  if (now_ns < alert_until_ns_) interval_ns_ = 0;
}

}  // namespace c4::c4d
