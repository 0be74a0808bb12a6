#include "c4d_master/hardware_log.h"

#include <algorithm>
#include <cstdlib>
#include <set>
#include <string_view>

#include "absl/strings/str_format.h"
#include "c4/v1/telemetry.pb.h"
#include "c4d_master/telemetry_decode.h"
#include "service/text.h"

namespace c4::c4d {
namespace {

using service::Concat;

constexpr char kEvidence[] = "hardware";
constexpr int64_t kSameNs = 5 * kSecondNs;  // of one event told twice, by clocks that were related anew

HardwareSign SignOf(const std::string& host, const v1::HardwareEvent& event) {
  return {host,
          CutText(event.kind()),
          CutText(event.device()),
          event.number(),
          CutText(event.text()),
          event.times(),
          CutText(event.address()),
          0};
}

void FillSign(const HardwareSign& from, v1::HardwareSign* to) {
  to->set_host(from.host);
  to->set_kind(from.kind);
  to->set_device(from.device);
  to->set_number(from.number);
  to->set_text(from.text);
  to->set_times(from.times);
  to->set_address(from.address);
  to->set_unix_ns(from.unix_ns);
}

// Whose hardware a finding may be about.
std::set<std::string> HostsOf(const Finding& finding, const JobSnapshot& snapshot) {
  std::set<std::string> hosts;
  if (!finding.host.empty()) hosts.insert(finding.host);
  for (const ConnectionRef& ref : finding.connections) {
    hosts.insert(ref.from_host);
    hosts.insert(ref.to_host);
  }
  if (finding.candidates.empty()) return hosts;
  for (const ProcessRef& ref : snapshot.processes) {
    if (ref.superseded) continue;
    if (std::binary_search(finding.candidates.begin(), finding.candidates.end(), ref.process->rank)) {
      hosts.insert(ref.host->name);
    }
  }
  return hosts;
}

bool IsSame(const HardwareSign& a, const v1::HardwareSign& b) {
  return a.host == b.host() && a.kind == b.kind() && a.device == b.device() && a.number == b.number() &&
         std::llabs(a.unix_ns - b.unix_ns()) < kSameNs;
}

}  // namespace

void HardwareLog::DropOldest() {
  auto oldest = hosts_.end();
  for (auto at = hosts_.begin(); at != hosts_.end(); ++at) {
    if (oldest == hosts_.end() || at->second.front().at_ns < oldest->second.front().at_ns) oldest = at;
  }
  oldest->second.pop_front();
  --size_;
  if (oldest->second.empty()) hosts_.erase(oldest);
}

size_t HardwareLog::Observe(const v1::TelemetryBatch& batch, int64_t as_of_ns) {
  if (batch.hardware().empty() && !hosts_.contains(batch.host())) return 0;
  size_t added = 0;
  std::deque<Event>& events = hosts_[batch.host()];
  const size_t count = static_cast<size_t>(batch.hardware_size());
  for (size_t i = count - std::min(count, kMostOfBatch); i < count; ++i) {
    const v1::HardwareEvent& event = batch.hardware(static_cast<int>(i));
    const auto known = std::find_if(events.begin(), events.end(), [&](const Event& other) {
      return other.epoch == batch.agent_epoch() && other.sequence == event.sequence();
    });
    if (known != events.end()) {
      known->sign.times = std::max(known->sign.times, event.times());
      continue;
    }
    const int64_t age_ns = std::clamp<int64_t>(event.age_ns(), 0, batch.monotonic_ns());
    if (age_ns > kKeepNs) continue;
    events.push_back({batch.agent_epoch(), event.sequence(), as_of_ns - age_ns, SignOf(batch.host(), event)});
    ++size_;
    ++added;
  }
  while (!events.empty() && (events.size() > kMostOfHost || as_of_ns - events.front().at_ns > kKeepNs)) {
    events.pop_front();
    --size_;
  }
  if (events.empty()) hosts_.erase(batch.host());
  while (size_ > kMost) DropOldest();
  return added;
}

void HardwareLog::Attach(const JobSnapshot& snapshot, Now now, std::vector<Finding>* findings) const {
  if (size_ == 0) return;
  for (Finding& finding : *findings) {
    const int64_t onset_ns = finding.since_at_ns == kNever ? now.monotonic_ns : finding.since_at_ns;
    std::vector<const Event*> near;
    for (const std::string& host : HostsOf(finding, snapshot)) {
      const auto found = hosts_.find(host);
      if (found == hosts_.end()) continue;
      for (const Event& event : found->second) {
        if (event.at_ns >= onset_ns - kHardwareBeforeNs && event.at_ns <= onset_ns + kHardwareAfterNs) {
          near.push_back(&event);
        }
      }
    }
    std::stable_sort(near.begin(), near.end(), [&](const Event* a, const Event* b) {
      return std::llabs(a->at_ns - onset_ns) < std::llabs(b->at_ns - onset_ns);
    });
    std::map<std::string_view, size_t> of_kind;
    for (const Event* event : near) {
      if (finding.hardware.size() == kMostSigns) break;
      if (++of_kind[event->sign.kind] > kMostSignsOfKind) continue;
      finding.hardware.push_back(event->sign);
      finding.hardware.back().unix_ns = now.UnixOf(event->at_ns);
    }
  }
}

bool MergeSigns(const std::vector<HardwareSign>& signs, v1::Verdict* verdict) {
  bool changed = false;
  auto* const all = verdict->mutable_hardware();
  for (const HardwareSign& sign : signs) {
    const auto same = std::find_if(all->begin(), all->end(),
                                   [&](const v1::HardwareSign& other) { return IsSame(sign, other); });
    if (same != all->end()) {
      same->set_times(std::max(same->times(), sign.times));
    } else if (static_cast<size_t>(all->size()) < kMostSigns) {
      FillSign(sign, all->Add());
      changed = true;
    }
  }
  if (changed) {
    std::stable_sort(all->begin(), all->end(), [](const v1::HardwareSign& a, const v1::HardwareSign& b) {
      return a.unix_ns() < b.unix_ns();
    });
  }
  for (const v1::HardwareSign& sign : *all) {
    v1::Evidence* const item = verdict->add_evidence();
    item->set_kind(kEvidence);
    item->set_text(SignText(sign, verdict->since_unix_ns()));
  }
  return changed;
}

std::string SignText(const v1::HardwareSign& sign, int64_t onset_unix_ns) {
  const double seconds = static_cast<double>(sign.unix_ns() - onset_unix_ns) / 1e9;
  constexpr double kAtOnce = 0.05;
  return Concat(sign.device(), sign.address().empty() ? "" : Concat(" (", sign.address(), ")"), " of ",
                sign.host(), ": ", sign.text(),
                sign.times() > 1 ? Concat(", ", sign.times(), " times") : std::string(),
                std::abs(seconds) < kAtOnce
                    ? std::string(", at that moment")
                    : absl::StrFormat(", %.1f s %s", std::abs(seconds), seconds < 0 ? "before" : "after"));
}

}  // namespace c4::c4d
