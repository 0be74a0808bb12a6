// The handler's links that are held back: those that somebody drained, and those that come and go
// (link_holds.h). Queue pairs leave them, and come back to them, so many a second as the operator allows,
// each with its reason in the history.
#include <algorithm>
#include <utility>

#include "c4p_master/c4p_handler.h"
#include "c4p_master/state/records.h"
#include "service/log.h"
#include "service/text.h"

namespace c4::c4p {
namespace {

using service::Concat;

constexpr int64_t kMs = 1'000'000;
constexpr int64_t kMoveEveryNs = 100 * kMs;
// Who was away, or had no other way, may have one by now: as long as a link is drained.
constexpr int64_t kLookAgainNs = 10'000 * kMs;
constexpr size_t kMostText = 512;
constexpr int kMostTold = 10000;  // moves in an answer

// "leaf0>spine1", "leaf0<spine1", "leaf0-spine1" are one cable.
std::string CableText(std::string text) {
  if (const size_t mark = text.find_first_of("<>"); mark != std::string::npos) text[mark] = '-';
  return text;
}

}  // namespace

void C4pHandler::NoteCable(v1::PathEventKind kind, const std::string& cable, const std::string& why,
                           int64_t now_ns) {
  history_.Add({now_ns, kind, cable, "", "", 0, {}, {}, why});
}

std::string C4pHandler::WhyLeft(const std::vector<std::string>& links) const {
  const Topology& topology = view_.topology();
  for (const std::string& link : links) {
    const size_t mark = link.find_first_of("<>");
    if (mark == std::string::npos) continue;
    const int leaf = topology.FindLeaf(link.substr(0, mark));
    const int spine = topology.FindSpine(link.substr(mark + 1, link.find('#') - mark - 1));
    const int number = leaf < 0 || spine < 0 ? -1 : topology.UplinkBetween(leaf, spine);
    if (number < 0) continue;
    const Uplink& uplink = topology.uplinks()[static_cast<size_t>(number)];
    if (view_.IsUsed(uplink)) continue;
    const std::string held = view_.WhyHeld(uplink);
    return uplink.faulty ? Concat(view_.CableOf(uplink), " carries nothing")
                         : Concat(view_.CableOf(uplink), ": ", held.empty() ? "not used" : held);
  }
  return "";
}

void C4pHandler::UseChanged(const std::vector<LinkChange>& changes, int64_t now_ns) {
  bool lost = false;
  for (const LinkChange& change : changes) {
    if (change.up == change.used_before) continue;
    if (change.up) {
      evening_.emplace_back(change.link, change.name);
      continue;
    }
    std::erase_if(evening_, [&](const auto& entry) { return entry.second == change.name; });
    lost = lost || !change.carries;
    leaving_ = leaving_ || change.carries;
  }
  if (lost)
    SendAdvice(book_.Repair(SIZE_MAX, false, now_ns).advice, "its acknowledgements were lost", now_ns);
  moved_ns_ = 0;
  MoveInTime(now_ns);
}

void C4pHandler::MoveInTime(int64_t now_ns) {
  if ((!leaving_ && evening_.empty()) || (moved_ns_ != 0 && now_ns - moved_ns_ < kMoveEveryNs)) return;
  moved_ns_ = now_ns;
  if (const size_t most = budget_.Available(now_ns); leaving_ && most > 0) {
    const PathBook::Carried carried = book_.Repair(most, true, now_ns);
    budget_.Take(carried.moves);
    leaving_ = !carried.all;
    SendAdvice(carried.advice, "its acknowledgements came back over a link that is held back", now_ns);
  }
  while (!evening_.empty()) {
    const size_t most = budget_.Available(now_ns);
    if (most == 0) return;
    const auto& [link, cable] = evening_.front();
    const PathBook::Carried carried = book_.Even(link, most, now_ns);
    budget_.Take(carried.moves);
    SendAdvice(carried.advice, Concat(cable, " is used again, and has room"), now_ns);
    if (!carried.all) return;
    evening_.erase(evening_.begin());
  }
}

void C4pHandler::TendHolds(int64_t now_ns) {
  for (const std::string& cable : holds_.Release(now_ns)) {
    service::LogInfo("link ", cable, " has been quiet: it is used again");
    NoteCable(v1::PATH_EVENT_KIND_UNDRAINED, cable, "it has been quiet for long enough", now_ns);
  }
  if (const std::vector<LinkChange> changes = view_.ApplyHolds(); !changes.empty())
    UseChanged(changes, now_ns);
  if (holds_.drains().empty() || now_ns - drains_seen_ns_ < kLookAgainNs) return;
  drains_seen_ns_ = now_ns;
  leaving_ = true;
}

absl::Status C4pHandler::CheckTarget(const std::string& target) const {
  const Topology& topology = view_.topology();
  if (target.empty()) {
    return absl::InvalidArgumentError(
        "name a cable (leaf0-spine1), a leaf or a spine; `c4 topology` lists them");
  }
  if (topology.FindLeaf(target) >= 0 || topology.FindSpine(target) >= 0) return absl::OkStatus();
  const size_t parallel = target.find('#');
  for (const Uplink& uplink : topology.uplinks()) {
    const std::string cable = view_.CableOf(uplink);
    if (cable == target) return absl::OkStatus();
    if (parallel != std::string::npos && cable == target.substr(0, parallel)) {
      return absl::InvalidArgumentError(
          Concat("the cables between two switches are drained together: name ", cable));
    }
  }
  return absl::NotFoundError(Concat("there is no cable, leaf or spine '", target.substr(0, kMostText),
                                    "'; `c4 topology` lists them"));
}

std::string C4pHandler::CutOff(const std::vector<LinkChange>& changes) const {
  const Topology& topology = view_.topology();
  std::map<LeafId, bool> any;
  for (const LinkChange& change : changes) {
    if (change.used_before && !change.up) any[change.link.lower] = false;
  }
  std::map<LeafId, std::string> names;
  for (const Uplink& uplink : topology.uplinks()) {
    const LeafId leaf = view_.LinkOf(uplink).lower;
    names[leaf] = topology.leaves()[static_cast<size_t>(uplink.leaf)].name;
    if (const auto at = any.find(leaf); at != any.end()) at->second = at->second || view_.IsUsed(uplink);
  }
  for (const auto& [leaf, used] : any) {
    if (!used) return names[leaf];
  }
  return "";
}

absl::StatusOr<v1::DrainPathsReply> C4pHandler::DrainPaths(const v1::DrainPathsRequest& asked,
                                                           int64_t now_ns) {
  const std::string target = CableText(service::ToUtf8(asked.target()));
  const std::string why = service::ToUtf8(asked.why().substr(0, kMostText));
  // What was drained may have gone from the network since.
  if (!asked.undrain() || !holds_.drains().contains(target)) C4_RETURN_IF_NOT_OK(CheckTarget(target));
  v1::DrainPathsReply reply;
  reply.set_master_epoch(options_.master_epoch);
  const LinkHolds before = holds_;
  const absl::Status done = asked.undrain() ? holds_.Undrain(target) : holds_.Drain(target, why);
  if (!done.ok()) {
    reply.set_refused(std::string(done.message()));
    return reply;
  }
  const std::vector<LinkChange> changes = view_.ApplyHolds();
  const std::string cut_off = asked.undrain() || asked.force() ? "" : CutOff(changes);
  std::vector<Shift> shifts;
  std::vector<Link> back;
  if (cut_off.empty()) {
    std::vector<std::string> stranded;
    for (const LinkChange& change : changes) {
      reply.add_cables(change.name);
      if (change.up) back.push_back(change.link);
    }
    shifts = asked.undrain() ? book_.WouldEven(back, now_ns) : book_.WouldRepair(&stranded, now_ns);
    for (std::string& connection : stranded) reply.add_stranded(std::move(connection));
  } else {
    reply.set_refused(Concat(cut_off,
                             " would have no link left that is used, and its hosts no way to other leaves; "
                             "--force drains it all the same"));
  }
  const auto tell = [&](const Shift& shift, const std::string& reason) {
    PathHistory::Fill({now_ns, v1::PATH_EVENT_KIND_MOVE, "", shift.job, shift.connection, shift.queue_pair,
                       shift.from, shift.to, reason},
                      now_ns, reply.add_moves());
  };
  for (const Shift& shift : shifts) {
    if (reply.moves_size() >= kMostTold) break;
    tell(shift, asked.undrain() ? Concat(target, " is used again, and has room") : WhyLeft(shift.from));
  }
  if (asked.dry_run() || !cut_off.empty()) {
    holds_ = before;
    (void)view_.ApplyHolds();
    reply.set_to_come(cut_off.empty() ? static_cast<uint32_t>(shifts.size()) : 0);
    return reply;
  }
  const std::string key = Key(kDrainKeys, target);
  if (asked.undrain()) {
    keeper_.Remove(key);
  } else {
    stored::Drain record;
    record.set_target(target);
    record.set_why(why);
    keeper_.Put(key, record);
  }
  service::LogInfo(target, asked.undrain() ? " is given back" : " is drained", why.empty() ? "" : ": ", why);
  for (const std::string& cable : reply.cables()) {
    NoteCable(asked.undrain() ? v1::PATH_EVENT_KIND_UNDRAINED : v1::PATH_EVENT_KIND_DRAINED, cable,
              why.empty() ? Concat("somebody asked for it (", target, ")") : why, now_ns);
  }
  const size_t moved_before = budget_.Available(now_ns);
  UseChanged(changes, now_ns);
  const size_t made = moved_before - std::min(moved_before, budget_.Available(now_ns));
  reply.set_to_come(static_cast<uint32_t>(shifts.size() - std::min(made, shifts.size())));
  Deliver();
  return reply;
}

}  // namespace c4::c4p
