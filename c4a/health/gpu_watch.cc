#include "c4a/health/gpu_watch.h"

#include <algorithm>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "service/text.h"

namespace c4::agent {
namespace {

using service::Concat;

constexpr int kSlowReadings = 10;  // in a row: a clock takes a moment to rise after a pause
constexpr double kBusyPercent = 50;

HealthEvent MakeEvent(std::string_view kind, std::string device, std::string text, int64_t now_ns,
                      uint64_t number = 0) {
  HealthEvent event;
  event.kind = kind;
  event.device = std::move(device);
  event.text = std::move(text);
  event.number = number;
  event.at_ns = now_ns;
  return event;
}

}  // namespace

std::string ThrottleText(uint64_t reasons) {
  struct Reason {
    uint64_t bit;
    std::string_view words;
  };
  // nvmlClocksThrottleReason…; power cap, idle and settings of the user are no faults.
  constexpr std::array<Reason, 4> kReasons = {{{0x08, "slow-down by hardware"},
                                               {0x20, "thermal slow-down by software"},
                                               {0x40, "thermal slow-down by hardware"},
                                               {0x80, "power brake"}}};
  std::vector<std::string> words;
  for (const Reason& reason : kReasons) {
    if ((reasons & reason.bit) != 0) words.emplace_back(reason.words);
  }
  return absl::StrJoin(words, ", ");
}

void GpuWatch::TakeCounter(std::string_view counter, const std::string& device,
                           const std::optional<uint64_t>& value, int64_t now_ns,
                           std::vector<HealthEvent>* events) {
  if (!value.has_value()) return;
  for (const CounterRule& rule : CounterRules()) {
    if (rule.source == RuleSource::kGpu && rule.counter == counter) {
      counters_.Take(rule, device, *value, now_ns, events);
    }
  }
}

void GpuWatch::TakeLevels(const GpuReading& reading, int64_t now_ns, std::vector<HealthEvent>* events) {
  const std::string throttle = ThrottleText(reading.throttle_reasons.value_or(0));
  const LevelRule& throttled = LevelRuleOf("gpu throttle");
  if (levels_.Entered(throttled.name, reading.name, !throttle.empty(), now_ns)) {
    events->push_back(MakeEvent(throttled.kind, reading.name, Concat("its clock is held back: ", throttle),
                                now_ns, *reading.throttle_reasons));
  }
  const LevelRule& heat = LevelRuleOf("gpu temperature");
  const double temperature = reading.temperature.value_or(0);
  const double limit = reading.slowdown_temperature.value_or(0);
  if (levels_.Entered(heat.name, reading.name, limit > 0 && temperature >= limit - heat.enter, now_ns)) {
    events->push_back(
        MakeEvent(heat.kind, reading.name,
                  absl::StrFormat("%.0f degrees, it slows down from %.0f on", temperature, limit), now_ns,
                  static_cast<uint64_t>(temperature)));
  }
  const LevelRule& clock = LevelRuleOf("gpu clock");
  const double most = reading.max_sm_clock_mhz.value_or(0);
  const double now = reading.sm_clock_mhz.value_or(most);
  const bool slow =
      most > 0 && reading.utilization.value_or(0) >= kBusyPercent && 1 - now / most >= clock.enter;
  int& in_a_row = slow_in_a_row_[reading.name];
  in_a_row = slow ? std::min(in_a_row + 1, kSlowReadings) : 0;
  if (levels_.Entered(clock.name, reading.name, in_a_row >= kSlowReadings, now_ns)) {
    events->push_back(MakeEvent(clock.kind, reading.name,
                                absl::StrFormat("runs at %.0f of %.0f MHz though it is busy", now, most),
                                now_ns, static_cast<uint64_t>(now)));
  }
}

void GpuWatch::TakeNvlinks(const GpuReading& reading, int64_t now_ns, std::vector<HealthEvent>* events) {
  for (size_t i = 0; i < reading.nvlinks.size(); ++i) {
    const GpuReading::Nvlink& link = reading.nvlinks[i];
    const std::string device = Concat(reading.name, " NVLink ", i);
    TakeCounter("nvlink_replay", device, link.replay, now_ns, events);
    TakeCounter("nvlink_recovery", device, link.recovery, now_ns, events);
    TakeCounter("nvlink_crc", device, link.crc, now_ns, events);
    if (!link.active.has_value()) continue;
    const auto [at, is_new] = links_.try_emplace(device, *link.active);
    if (!is_new && at->second && !*link.active) {
      events->push_back(MakeEvent(event_kind::kNvlink, device, "the link is down", now_ns));
    }
    at->second = *link.active;
  }
}

void GpuWatch::Take(const GpuReading& reading, int64_t now_ns, std::vector<HealthEvent>* events) {
  bool& lost = lost_[reading.name];
  if (reading.lost && !lost) {
    events->push_back(
        MakeEvent(event_kind::kGpuLost, reading.name, "the driver no longer reaches it", now_ns));
  }
  lost = reading.lost;
  if (lost) return;
  TakeCounter("ecc_uncorrected", reading.name, reading.ecc_uncorrected, now_ns, events);
  TakeCounter("ecc_corrected", reading.name, reading.ecc_corrected, now_ns, events);
  TakeCounter("retired_pages", reading.name, reading.retired_pages, now_ns, events);
  TakeCounter("remapped_rows", reading.name, reading.remapped_rows, now_ns, events);
  TakeLevels(reading, now_ns, events);
  TakeNvlinks(reading, now_ns, events);
}

}  // namespace c4::agent
