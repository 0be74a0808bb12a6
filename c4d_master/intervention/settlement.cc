#include "c4d_master/intervention/settlement.h"

#include <algorithm>
#include <set>
#include <tuple>

#include "c4d_master/detectors/queue_pair_ends.h"
#include "service/text.h"

namespace c4::c4d {
namespace {

using service::Concat;

// Above what the detectors give: less is open than before. Below what is settled.
constexpr double kNarrowed = 0.91;
constexpr double kNicOrRank = 0.93;

ConnectionRef RefOfProto(const v1::ConnectionRef& from) {
  ConnectionRef ref;
  ref.from_rank = from.from_rank();
  ref.to_rank = from.to_rank();
  ref.from_host = from.from_host();
  ref.to_host = from.to_host();
  ref.local = from.local();
  ref.remote = from.remote();
  ref.communicator_id = from.communicator_id();
  ref.channel = from.channel();
  ref.index = from.index();
  ref.queue_pair_number = from.queue_pair_number();
  ref.ratio = from.ratio();
  return ref;
}

std::string RestText(bool left) {
  return left ? "; the queue pairs that were moved off it are left there" : "";
}

void NameLink(const Candidate& link, bool left, Finding* finding) {
  finding->kind = CulpritKind::kLink;
  finding->cable = link.thing.name;
  finding->links.assign(link.directions.begin(), link.directions.end());
  finding->suggested_action = Concat(
      "look at the link ", link.thing.name,
      ": the rate of both switch ports, errors that they count, congestion by other jobs; take it out of "
      "the routing if it stays slow",
      RestText(left));
}

void NameNic(const Thing& nic, bool or_rank, Finding* finding) {
  finding->kind = CulpritKind::kNic;
  finding->nic = nic.name;
  finding->host = nic.host;
  finding->suggested_action =
      Concat("look at the NIC ", nic.name, " of ", nic.host,
             ", its negotiated rate, errors and pauses (`ethtool`, `ip -s link`)",
             or_rank ? ", and at what else keeps that host busy; its path is not to blame" : "",
             "; if it stays slow, replace the node");
}

void NameRank(const Thing& rank, const JobSnapshot& snapshot, Finding* finding) {
  finding->kind = CulpritKind::kRank;
  finding->rank = rank.rank;
  finding->host = rank.host;
  for (const ProcessRef& ref : snapshot.processes) {
    if (!ref.superseded && !ref.process->ended && ref.process->rank == rank.rank) FillProcess(ref, finding);
  }
  finding->suggested_action = Concat(
      "look at ", rank.name, " on ", rank.host,
      ": it is slow over other NICs and paths as well; what else runs on its processors and its GPU, and "
      "restart it on another node if that does not help");
}

void NameSeveral(const std::vector<Candidate>& left, bool off, Finding* finding) {
  finding->kind = CulpritKind::kAmbiguous;
  std::set<std::string> hosts;
  std::set<int32_t> ranks;
  for (const Candidate& candidate : left) {
    if (candidate.thing.kind == ThingKind::kLink) {
      finding->links.insert(finding->links.end(), candidate.directions.begin(), candidate.directions.end());
    } else {
      hosts.insert(candidate.thing.host);
    }
  }
  std::sort(finding->links.begin(), finding->links.end());
  if (!hosts.empty()) {
    for (const ConnectionRef& ref : finding->connections) {
      if (hosts.contains(ref.from_host)) ranks.insert(ref.from_rank);
      if (hosts.contains(ref.to_host)) ranks.insert(ref.to_rank);
    }
  }
  finding->candidates.assign(ranks.begin(), ranks.end());
  finding->suggested_action =
      Concat("look at each of these, one of which is to blame: ", CandidatesText(left),
             "; all else that these queue pairs use was found to be well", RestText(off));
}

}  // namespace

std::optional<Finding> SettledFinding(const Experiment& experiment, const v1::Verdict& verdict,
                                      const JobSnapshot& snapshot, Now now,
                                      const InterventionThresholds& thresholds) {
  const std::vector<Candidate>& left = experiment.candidates();
  if (!experiment.learnt() || left.empty()) return std::nullopt;
  Finding finding;
  finding.syndrome = Syndrome::kCommunicationSlow;
  finding.settled = true;
  std::set<uint64_t> communicators;
  for (const v1::ConnectionRef& ref : verdict.culprit().connections()) {
    finding.connections.push_back(RefOfProto(ref));
    communicators.insert(ref.communicator_id());
  }
  finding.communicators.assign(communicators.begin(), communicators.end());
  finding.communicator_id = verdict.communicator_id();
  finding.since_at_ns = now.monotonic_ns - std::max<int64_t>(0, now.unix_ns - verdict.since_unix_ns());
  finding.confirmed_by = "moved";
  finding.confidence = thresholds.confidence;
  for (const std::string& line : experiment.evidence()) finding.evidence.push_back({"moved", line});
  for (const v1::Evidence& evidence : verdict.evidence()) {
    // What was thought of links before is no longer so.
    const bool superseded = evidence.kind() == "link" || evidence.kind() == "paths" ||
                            evidence.kind() == "nic" || evidence.kind() == "moved";
    if (!superseded) finding.evidence.push_back({evidence.kind(), evidence.text()});
  }
  const bool off = !experiment.left_off().empty();
  const bool ends_of_one_host =
      CountKind(left, ThingKind::kNic) == 1 && CountKind(left, ThingKind::kLink) == 0 &&
      std::all_of(left.begin(), left.end(),
                  [&](const Candidate& one) { return one.thing.host == left.front().thing.host; });
  if (left.size() == 1 && left.front().thing.kind == ThingKind::kLink) {
    NameLink(left.front(), off, &finding);
  } else if (ends_of_one_host) {
    NameNic(left.front().thing, left.size() > 1, &finding);
    if (left.size() > 1) {
      finding.confidence = std::min(kNicOrRank, thresholds.confidence);
      finding.evidence.insert(finding.evidence.begin() + 1,
                              {"nic", Concat("no other NIC tells it from ", left.back().thing.name)});
    }
  } else if (left.size() == 1) {
    NameRank(left.front().thing, snapshot, &finding);
  } else {
    NameSeveral(left, off, &finding);
    finding.confidence = std::min(kNarrowed, thresholds.confidence);
  }
  return finding;
}

v1::Intervention RecordOf(const Experiment& experiment) {
  v1::Intervention record;
  record.set_id(experiment.id());
  record.set_begun_unix_ns(experiment.begun_unix_ns());
  record.set_ended_unix_ns(experiment.ended_unix_ns());
  record.set_outcome(experiment.outcome());
  for (const std::string& line : experiment.lines()) record.add_lines(line);
  for (const MoveRecord& move : experiment.moves()) {
    v1::MovedQueuePair* const to = record.add_moves();
    to->set_unix_ns(move.unix_ns);
    to->set_role(std::string(MoveRoleWord(move.role)));
    to->set_back(move.back);
    to->set_from_rank(move.before.from_rank);
    to->set_to_rank(move.before.to_rank);
    to->set_communicator_id(move.before.communicator_id);
    to->set_channel(move.before.channel);
    to->set_index(move.before.index);
    to->set_local(move.before.local);
    to->set_new_local(move.local);
    to->mutable_links()->Assign(move.before.links.begin(), move.before.links.end());
    to->mutable_new_links()->Assign(move.links.begin(), move.links.end());
  }
  return record;
}

bool SharesConnection(const Finding& a, const Finding& b) {
  using Key = std::tuple<uint64_t, int32_t, int32_t, uint32_t, uint32_t>;
  const auto key = [](const ConnectionRef& ref) {
    return Key(ref.communicator_id, ref.from_rank, ref.to_rank, ref.channel, ref.index);
  };
  std::set<Key> known;
  for (const ConnectionRef& ref : a.connections) known.insert(key(ref));
  return std::any_of(b.connections.begin(), b.connections.end(),
                     [&](const ConnectionRef& ref) { return known.contains(key(ref)); });
}

}  // namespace c4::c4d
