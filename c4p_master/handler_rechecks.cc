// After a link has changed the handler looks whether switches send known ports other ways than before.
#include <iterator>
#include <utility>

#include "c4p_master/c4p_handler.h"
#include "service/log.h"

namespace c4::c4p {
namespace {

constexpr int64_t kMs = 1'000'000;
// After a link has changed: routes converge at their own pace.
constexpr int64_t kRecheckAfterNs[] = {0, 500 * kMs, 3000 * kMs};
constexpr size_t kRecheckPorts = 8;
// Ports that grew old, at every round.
constexpr size_t kDoubtfulAtATime = 256;

// Until a tuple whose path could not be learnt is probed again, and how many are remembered for that.
constexpr int64_t kWonderAgainNs = 5000 * kMs;
constexpr size_t kMostWondered = 1U << 16;

}  // namespace

// Routers whose routes changed may hash all flows anew, also those that were not concerned.
void C4pHandler::BeginRechecks(int64_t now_ns) {
  for (auto at = recheck_leaves_.begin(); at != recheck_leaves_.end();) {
    auto& [since_ns, done] = at->second;
    if (done == std::size(kRecheckAfterNs)) {
      at = recheck_leaves_.erase(at);
      continue;
    }
    if (now_ns - since_ns >= kRecheckAfterNs[done]) {
      ++done;
      for (const FlowGroup& group : book_.GroupsAt(at->first)) BeginRecheck(group, now_ns);
    }
    ++at;
  }
}

void C4pHandler::BeginRecheck(const FlowGroup& group, int64_t now_ns) {
  Recheck recheck;
  for (const uint16_t port : book_.KnownPorts(group)) {
    const service::IpTuple tuple = WithPort(group, port);
    if (!book_.IsFree(tuple)) continue;
    const std::optional<KnownPath> path = catalogue_.Find(tuple, now_ns);
    if (!path || !plan_.AskAgain(tuple)) continue;
    recheck.before[port] = path->hops;
    recheck.outstanding.insert(port);
    if (recheck.outstanding.size() == kRecheckPorts) break;
  }
  if (!recheck.outstanding.empty()) rechecks_[group] = std::move(recheck);
}

void C4pHandler::FinishRechecks(int64_t now_ns) {
  std::map<FlowGroup, std::set<uint16_t>> remapped;
  for (auto at = rechecks_.begin(); at != rechecks_.end();) {
    if (!at->second.outstanding.empty()) {
      ++at;
      continue;
    }
    if (at->second.changed) {
      std::set<uint16_t>& ports = remapped[at->first];
      for (const auto& [port, hops] : at->second.before) ports.insert(port);
      rounds_.erase(at->first);
    }
    at = rechecks_.erase(at);
  }
  if (remapped.empty()) return;
  service::LogInfo("switches send the ports of ", remapped.size(),
                   " pairs of addresses other ways than before");
  SendAdvice(book_.Remap(remapped, now_ns), "switches send its port another way than before", now_ns);
}

bool C4pHandler::IsUnknown(const service::IpTuple& tuple, int64_t now_ns) const {
  if (tuple.source_port == 0 || !book_.DirectLinks(tuple.source, tuple.destination).empty()) return false;
  const auto found = catalogue_.Links(view_.topology(), tuple, now_ns);
  return !found.ok() || !found->has_value() || !(*found)->complete;
}

void C4pHandler::Wonder(const service::IpTuple& tuple, int64_t now_ns) {
  if (wondered_.size() >= kMostWondered) return;
  const auto [at, is_new] = wondered_.try_emplace(tuple, now_ns);
  if (!is_new && now_ns - at->second < kWonderAgainNs) return;
  if (plan_.AskAgain(tuple)) {
    at->second = now_ns;
  } else {
    wondered_.erase(at);  // nobody can probe it yet
  }
}

void C4pHandler::ForgetWondered(int64_t now_ns) {
  std::erase_if(wondered_, [&](const auto& entry) { return now_ns - entry.second > 2 * kWonderAgainNs; });
}

void C4pHandler::RefreshDoubtful(int64_t now_ns) {
  for (const service::IpTuple& tuple :
       catalogue_.probed().Doubtful(book_.InUse(), now_ns, kDoubtfulAtATime)) {
    (void)plan_.AskAgain(tuple);
  }
}

void C4pHandler::ForgetRounds() {
  if (rounds_.empty()) return;
  const std::set<FlowGroup> wanting = book_.Wanting();
  std::erase_if(rounds_, [&](const auto& entry) {
    return !wanting.contains(entry.first) && book_.KnownPorts(entry.first).empty();
  });
}

}  // namespace c4::c4p
