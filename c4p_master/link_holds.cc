#include "c4p_master/link_holds.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "service/text.h"

namespace c4::c4p {
namespace {

using service::Concat;

constexpr double kForgotten = 0.1;

}  // namespace

absl::Status LinkHolds::Drain(const std::string& target, std::string why) {
  if (!drains_.try_emplace(target, std::move(why)).second)
    return absl::AlreadyExistsError(Concat(target, " is drained already"));
  return absl::OkStatus();
}

absl::Status LinkHolds::Undrain(const std::string& target) {
  if (drains_.erase(target) > 0) return absl::OkStatus();
  if (const size_t mark = target.find('-'); mark != std::string::npos) {
    for (const std::string& end : {target.substr(0, mark), target.substr(mark + 1)}) {
      if (!drains_.contains(end)) continue;
      return absl::NotFoundError(Concat(target, " is drained with all cables of ", end, ": undrain ", end));
    }
  }
  return absl::NotFoundError(Concat(target, " is not drained"));
}

double LinkHolds::CountNow(const Flap& flap, int64_t now_ns) const {
  if (options_.half_life_ns <= 0) return 0;
  return flap.count *
         std::exp2(-static_cast<double>(now_ns - flap.at_ns) / static_cast<double>(options_.half_life_ns));
}

bool LinkHolds::Failed(const std::string& cable, int64_t now_ns) {
  if (options_.half_life_ns <= 0) return false;
  Flap& flap = flaps_[cable];
  flap.count = std::min(CountNow(flap, now_ns) + 1, options_.most);
  flap.at_ns = now_ns;
  if (flap.held || flap.count <= options_.hold_above) return false;
  flap.held = true;
  return true;
}

std::vector<std::string> LinkHolds::Release(int64_t now_ns) {
  std::vector<std::string> released;
  for (auto at = flaps_.begin(); at != flaps_.end();) {
    const double count = CountNow(at->second, now_ns);
    if (at->second.held && count < options_.use_below) {
      at->second.held = false;
      released.push_back(at->first);
    }
    at = count < kForgotten ? flaps_.erase(at) : std::next(at);
  }
  return released;
}

double LinkHolds::Flaps(const std::string& cable, int64_t now_ns) const {
  const auto found = flaps_.find(cable);
  return found == flaps_.end() ? 0 : CountNow(found->second, now_ns);
}

std::string LinkHolds::Why(std::string_view leaf, std::string_view spine) const {
  const std::string cable = Concat(leaf, "-", spine);
  for (const std::string& target : {cable, std::string(leaf), std::string(spine)}) {
    const auto drain = drains_.find(target);
    if (drain == drains_.end()) continue;
    return Concat(target == cable ? std::string("drained") : Concat("drained with ", target),
                  drain->second.empty() ? "" : ": ", drain->second);
  }
  const auto flap = flaps_.find(cable);
  if (flap == flaps_.end() || !flap->second.held) return "";
  return "it comes and goes: held back until it has been quiet for a while";
}

}  // namespace c4::c4p
