// The handler's eye on links: queue pairs that lose their paths are a reason to look whether one is dead, and
// links that are dead are looked at until they are back.
#include <algorithm>
#include <utility>

#include "c4p_master/c4p_handler.h"
#include "service/log.h"
#include "service/text.h"

namespace c4::c4p {
namespace {

using service::Concat;

constexpr int64_t kMs = 1'000'000;
// A link is suspect when so many of the tuples over it, and so much of its load, lose their path within this
// time, or all of its load. One of many may be the transport's impatience, and a few of many are congestion.
constexpr size_t kTroubledTuples = 2;
constexpr double kTroubledShare = 0.25;
constexpr int64_t kTroubledNs = 4000 * kMs;  // longer than a round
constexpr int64_t kSuspectEveryNs = 100 * kMs;
// Between looks at the same suspect, as each probes the whole mesh.
constexpr int64_t kSuspectNs = 2000 * kMs;
constexpr int64_t kSuspectAtLastNs = 32000 * kMs;
// As long as a queue pair has no path.
constexpr int64_t kDeadRoundNs = 4000 * kMs;
constexpr int64_t kDeadRoundAtLastNs = 64000 * kMs;
// Between probes over a link that is dead, and over how many of its paths.
constexpr int64_t kLookNs = 1000 * kMs;
constexpr int64_t kLookAtLastNs = 8000 * kMs;
constexpr size_t kLookTuples = 8;
// Until all of a round has come in.
constexpr int64_t kRoundNs = TopologyLearner::kSettleNs + 500 * kMs;

}  // namespace

void C4pHandler::Pause::Double(int64_t now_ns, int64_t first_ns, int64_t last_ns) {
  // What was quiet for long begins anew.
  const bool anew = length_ns == 0 || now_ns - until_ns > 2 * last_ns;
  length_ns = anew ? first_ns : std::min(2 * length_ns, last_ns);
  until_ns = now_ns + length_ns;
}

void C4pHandler::TakeTroubles(const std::vector<Trouble>& troubles, int64_t now_ns) {
  for (const Trouble& trouble : troubles) {
    metrics_.troubles.Add();
    // Not to be given out again before a probe has come through.
    catalogue_.RecordEndToEnd(trouble.tuple, false, now_ns);
    // The first and the last link are the hosts' own: no probe of the mesh says more of them.
    for (size_t i = 1; i + 1 < trouble.links.size(); ++i) {
      troubled_[trouble.links[i]][trouble.tuple] = {now_ns, trouble.kbps};
    }
  }
}

// `link`: directed.
bool C4pHandler::IsSuspect(const std::string& link, int64_t load_kbps, int64_t now_ns) const {
  const auto troubled = troubled_.find(link);
  if (troubled == troubled_.end()) return false;
  const auto looked = looked_.find(link);
  if (looked != looked_.end() && now_ns < looked->second.until_ns) return false;
  int64_t lost_kbps = 0;
  for (const auto& [tuple, lost] : troubled->second) lost_kbps += lost.kbps;
  return lost_kbps >= load_kbps ||
         (troubled->second.size() >= kTroubledTuples &&
          static_cast<double>(lost_kbps) >= kTroubledShare * static_cast<double>(load_kbps));
}

// Why a round is wanted; empty: none is.
std::string C4pHandler::WhyToLook(int64_t now_ns) {
  std::string why;
  for (auto at = troubled_.begin(); at != troubled_.end();) {
    std::erase_if(at->second, [&](const auto& entry) { return now_ns - entry.second.at_ns > kTroubledNs; });
    at = at->second.empty() ? troubled_.erase(at) : std::next(at);
  }
  const Topology& topology = view_.topology();
  // One pass, however many links are in trouble: naming a link costs more than looking it up.
  const size_t uplinks = troubled_.empty() ? 0 : topology.uplinks().size();
  for (size_t i = 0; i < uplinks; ++i) {
    for (const bool up : {true, false}) {
      const std::string name = topology.LinkName(topology.UplinkLink(static_cast<int>(i), up));
      const int64_t load_kbps = book_.allocator().LoadOf(view_.LinkOf(topology.uplinks()[i]),
                                                         up ? Direction::kUp : Direction::kDown);
      if (!IsSuspect(name, load_kbps, now_ns)) continue;
      why = Concat("queue pairs lost their path over ", name);
      looked_[name].Double(now_ns, kSuspectNs, kSuspectAtLastNs);
    }
  }
  if (const std::string dead = book_.NameOfADeadOne(); dead.empty()) {
    dead_pause_ = {};
  } else if (now_ns >= dead_pause_.until_ns) {
    if (dead_pause_.length_ns > 0) why = Concat("there is still no path for ", dead);
    dead_pause_.Double(now_ns, kDeadRoundNs, kDeadRoundAtLastNs);
  }
  return why;
}

// What is lost right after a round has begun may not show in it.
void C4pHandler::LookForDeadLinks(int64_t now_ns) {
  if (now_ns - suspected_ns_ < kSuspectEveryNs || InRound(now_ns)) return;
  suspected_ns_ = now_ns;
  const std::string why = WhyToLook(now_ns);
  if (why.empty()) return;
  service::LogInfo("probing again: ", why);
  troubled_.clear();
  BeginRound(now_ns);
}

void C4pHandler::BeginRound(int64_t now_ns) {
  round_ns_ = now_ns;
  view_.BeginRound();
  plan_.Restart();
}

bool C4pHandler::InRound(int64_t now_ns) const {
  return round_ns_ != 0 && now_ns - round_ns_ < kRoundNs;
}

void C4pHandler::LinksChanged(const std::vector<LinkChange>& changes, int64_t now_ns) {
  for (const LinkChange& change : changes) {
    if (change.carries == change.carried_before) continue;
    looked_.clear();  // what was found of links before says nothing of the network as it is now
    recheck_leaves_[change.link.lower] = {now_ns, 0};
    CableChanged(change, now_ns);
  }
  UseChanged(changes, now_ns);
}

void C4pHandler::CableChanged(const LinkChange& change, int64_t now_ns) {
  metrics_.link_changes.Add();
  if (change.carries) {
    service::LogInfo("link ", change.name, " is back", change.up ? "" : ", and held back");
    dead_links_.erase(change.name);
    NoteCable(v1::PATH_EVENT_KIND_LINK_BACK, change.name, "probes come through again", now_ns);
    return;
  }
  service::LogWarning("link ", change.name, " carries nothing: its connections move to others");
  NoteCable(v1::PATH_EVENT_KIND_LINK_DOWN, change.name, "probes do not come through", now_ns);
  WatchDeadLink(change, now_ns);
  if (!holds_.Failed(change.name, now_ns)) return;
  service::LogWarning("link ", change.name,
                      " comes and goes: when it is back it is not used before it has been quiet");
  NoteCable(v1::PATH_EVENT_KIND_HELD, change.name, "it comes and goes", now_ns);
}

void C4pHandler::WatchDeadLink(const LinkChange& change, int64_t now_ns) {
  std::vector<service::IpAddress> ends;
  for (const Uplink& uplink : view_.topology().uplinks()) {
    if (!(view_.LinkOf(uplink) == change.link)) continue;
    for (const service::IpAddress end : {uplink.spine_address, uplink.leaf_address}) {
      if (end.known()) ends.push_back(end);
    }
  }
  DeadLink& dead = dead_links_[change.name];
  dead.tuples = catalogue_.probed().Through(ends, kLookTuples);
  dead.pause.Double(now_ns, kLookNs, kLookAtLastNs);
}

void C4pHandler::LookAtDeadLinks(int64_t now_ns) {
  for (auto& [name, link] : dead_links_) {
    if (now_ns < link.pause.until_ns) continue;
    for (const service::IpTuple& tuple : link.tuples) (void)plan_.AskAgain(tuple);
    link.pause.Double(now_ns, kLookNs, kLookAtLastNs);
  }
}

}  // namespace c4::c4p
