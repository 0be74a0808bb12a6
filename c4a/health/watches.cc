#include "c4a/health/watches.h"

#include <algorithm>

#include "absl/strings/str_format.h"
#include "service/text.h"

namespace c4::agent {

using service::Concat;

void CounterWatch::Take(const CounterRule& rule, const std::string& device, uint64_t value, int64_t now_ns,
                        std::vector<HealthEvent>* events) {
  const std::pair<std::string, std::string_view> key(device, rule.counter);
  const auto known = states_.find(key);
  if (known == states_.end()) {
    if (states_.size() < kMostWatched) states_.emplace(key, State{value, now_ns, 0});
    return;
  }
  State& state = known->second;
  if (value < state.base) state = {value, now_ns, state.told_ns};
  const uint64_t grown = value - state.base;
  const bool quiet = state.told_ns != 0 && now_ns - state.told_ns < kRuleWindowNs;
  if (!quiet && grown >= rule.per_minute) {
    const double seconds = static_cast<double>(now_ns - state.base_ns) / 1e9;
    HealthEvent event;
    event.kind = rule.kind;
    event.device = device;
    event.number = grown;
    event.text = Concat(rule.words, ": ", grown, absl::StrFormat(" within %.0f s", std::max(seconds, 1.0)));
    event.at_ns = now_ns;
    events->push_back(std::move(event));
    state = {value, now_ns, now_ns};
    return;
  }
  if (!quiet && now_ns - state.base_ns >= kRuleWindowNs) state = {value, now_ns, state.told_ns};
}

bool LevelWatch::Entered(std::string_view rule, const std::string& device, bool holds, int64_t now_ns) {
  if (!holds) return false;
  const auto [at, is_new] = held_ns_.try_emplace({device, std::string(rule)}, now_ns);
  if (is_new && held_ns_.size() > kMostWatched) {
    held_ns_.erase(at);
    return false;
  }
  const bool entered = is_new || now_ns - at->second >= kRearmNs;
  at->second = now_ns;
  return entered;
}

}  // namespace c4::agent
