#include "c4p_master/move_ledger.h"

#include <string_view>
#include <utility>

#include "service/text.h"

namespace c4::c4p {
namespace {

using service::Concat;

constexpr int64_t kHourNs = 3'600'000'000'000;
constexpr size_t kMostEntries = 256;

// "v-1/1" of its step "v-1/1.2".
std::string_view ExperimentOf(std::string_view step) {
  return step.substr(0, step.rfind('.'));
}

}  // namespace

absl::Status MoveLedger::Admit(const std::string& job, const std::string& experiment, size_t pairs,
                               int64_t now_ns) {
  if (!limits_.allowed) {
    return absl::PermissionDeniedError("the operator of the path master does not allow it (--interventions)");
  }
  if (pairs > limits_.most_pairs) {
    return absl::ResourceExhaustedError(
        Concat(pairs, " queue pairs are more than one step may move, which is ", limits_.most_pairs));
  }
  for (const auto& [number, held] : held_) {
    if (held.job != job || ExperimentOf(held.experiment) == ExperimentOf(experiment)) continue;
    return absl::ResourceExhaustedError(
        Concat("experiment ", held.experiment, " of this job is under way; one at a time"));
  }
  for (auto at = steps_.begin(); at != steps_.end();) {
    std::deque<int64_t>& times = at->second;
    while (!times.empty() && now_ns - times.front() >= kHourNs) times.pop_front();
    at = times.empty() ? steps_.erase(at) : std::next(at);
  }
  std::deque<int64_t>& times = steps_[job];
  if (times.size() >= limits_.per_hour) {
    return absl::ResourceExhaustedError(
        Concat("this job has had ", times.size(), " steps within an hour, which is the most"));
  }
  times.push_back(now_ns);
  return absl::OkStatus();
}

uint64_t MoveLedger::Hold(Held held) {
  held_[next_] = std::move(held);
  return next_++;
}

std::map<uint64_t, MoveLedger::Held> MoveLedger::Release(const std::string& job,
                                                         const std::string& experiment) {
  std::map<uint64_t, Held> released;
  for (auto at = held_.begin(); at != held_.end();) {
    const Held& held = at->second;
    const bool wanted =
        held.job == job && (held.experiment == experiment || ExperimentOf(held.experiment) == experiment);
    if (wanted) released.insert(*at);
    at = wanted ? held_.erase(at) : std::next(at);
  }
  return released;
}

std::map<uint64_t, MoveLedger::Held> MoveLedger::ReleaseExpired(int64_t now_ns) {
  std::map<uint64_t, Held> released;
  for (auto at = held_.begin(); at != held_.end();) {
    const bool due = now_ns >= at->second.until_ns;
    if (due) released.insert(*at);
    at = due ? held_.erase(at) : std::next(at);
  }
  return released;
}

void MoveLedger::Note(const std::string& job, const std::string& experiment, std::string text,
                      int64_t now_ns) {
  entries_.push_back({now_ns, job, experiment, std::move(text)});
  if (entries_.size() > kMostEntries) entries_.pop_front();
}

std::string MoveLedger::TextOf(const PairRef& pair) const {
  for (const auto& [number, held] : held_) {
    if (held.pair == pair) return Concat("moved for experiment ", held.experiment, " of C4D, ", held.why);
  }
  return "";
}

}  // namespace c4::c4p
