#include "cli/text/gallery_text.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "analysis/median.h"
#include "cli/text/matrix_text.h"
#include "cli/text/status_text.h"
#include "service/verdict_json.h"

namespace c4::cli {
namespace {

constexpr size_t kMaxRanks = 24;  // of a table or heat map

using PathKey = std::tuple<uint64_t, int32_t, int32_t, uint32_t, uint32_t>;

PathKey KeyOf(const v1::ConnectionRef& ref) {
  return {ref.communicator_id(), ref.from_rank(), ref.to_rank(), ref.channel(), ref.index()};
}
PathKey KeyOf(const v1::MatrixCell& cell) {
  return {cell.communicator_id(), cell.from_rank(), cell.to_rank(), cell.channel(), cell.index()};
}

std::string Milliseconds(double ns) {
  return absl::StrFormat("%.1f ms", ns / 1e6);
}

bool IsSlow(const v1::Verdict& verdict) {
  return verdict.syndrome() == v1::SYNDROME_COMMUNICATION_SLOW ||
         verdict.syndrome() == v1::SYNDROME_NON_COMMUNICATION_SLOW;
}

// The ranks that the verdict speaks of, and then the first others, as many as fit on a page.
std::set<int32_t> RanksToShow(const v1::Verdict& verdict, const v1::GetStatusReply& status) {
  std::set<int32_t> ranks;
  const auto add = [&](int32_t rank) {
    if (rank >= 0 && ranks.size() < kMaxRanks) ranks.insert(rank);
  };
  add(verdict.culprit().rank());
  for (const v1::ConnectionRef& ref : verdict.culprit().connections()) {
    add(ref.from_rank());
    add(ref.to_rank());
  }
  for (const int32_t rank : verdict.culprit().candidates()) add(rank);
  for (const v1::RankStatus& rank : status.ranks()) add(rank.rank());
  return ranks;
}

// Its heat map with the marks where the verdict's own evidence lies, not wherever a cell was slow.
v1::GetMatrixReply EvidenceMatrix(const c4d::ReplayScene& scene, const std::set<int32_t>& ranks) {
  std::set<PathKey> evidence;
  for (const v1::ConnectionRef& ref : scene.change.verdict.culprit().connections()) {
    evidence.insert(KeyOf(ref));
  }
  v1::GetMatrixReply matrix;
  matrix.set_job(scene.matrix.job());
  for (const v1::MatrixCell& cell : scene.matrix.cells()) {
    if (ranks.count(cell.from_rank()) == 0 || ranks.count(cell.to_rank()) == 0) continue;
    v1::MatrixCell* item = matrix.add_cells();
    *item = cell;
    item->set_slow(evidence.count(KeyOf(cell)) != 0);
  }
  for (const v1::RankTime& rank : scene.matrix.ranks()) {
    if (ranks.count(rank.rank()) != 0) *matrix.add_ranks() = rank;
  }
  return matrix;
}

// Who waits for whom: for each communicator that somebody waits in, who is in the operation and who is not.
std::string Standing(const c4d::ReplayScene& scene) {
  struct Sides {
    std::map<uint64_t, std::vector<uint32_t>> waiting;  // by operation
    std::vector<uint32_t> elsewhere;
  };
  std::map<uint64_t, Sides> communicators;
  for (const c4d::ReplayPlace& place : scene.places) {
    Sides& sides = communicators[place.communicator_id];
    const auto rank = static_cast<uint32_t>(std::max(place.rank, 0));
    (place.waits ? sides.waiting[place.operation] : sides.elsewhere).push_back(rank);
  }
  std::string text;
  size_t shown = 0;
  for (const auto& [id, sides] : communicators) {
    // The one that the verdict is about, and as many others as fit on a page.
    if (++shown > kMaxRanks && id != scene.change.verdict.communicator_id()) continue;
    absl::StrAppend(&text, id == scene.change.verdict.communicator_id() ? "! " : "  ",
                    service::CommunicatorText(id));
    for (const auto& [operation, ranks] : sides.waiting) {
      absl::StrAppend(&text, "  in operation ", operation, ": ", service::RankListText(ranks), ";");
    }
    absl::StrAppend(&text,
                    sides.elsewhere.empty() ? "  all are in it"
                                            : "  not in it: " + service::RankListText(sides.elsewhere),
                    "\n");
  }
  if (shown > kMaxRanks) absl::StrAppend(&text, "  ", shown, " communicators are waited in, in all\n");
  text += "\n";
  for (const v1::RankStatus& rank : scene.status.ranks()) {
    const int state = rank.health().state();
    if (state != v1::PROCESS_STATE_RUNNING && state != v1::PROCESS_STATE_SLEEPING) {
      absl::StrAppend(&text, "rank ", rank.rank(), " on ", rank.process().host(), ": ",
                      std::string(service::ProcessStateWord(state)), " for ",
                      DurationText(rank.health().state_age_ns()), "\n");
    }
  }
  for (const v1::AgentStatus& agent : scene.status.agents()) {
    if (agent.last_batch_age_ns() < 2'000'000'000) continue;
    absl::StrAppend(&text, "the agent on ", agent.host(), ": silent for ",
                    DurationText(agent.last_batch_age_ns()), "\n");
  }
  return text;
}

const v1::RankStatus* FindStatus(const v1::GetStatusReply& status, int32_t rank) {
  for (const v1::RankStatus& item : status.ranks()) {
    if (item.rank() == rank) return &item;
  }
  return nullptr;
}

const v1::RankTime* FindTime(const v1::GetMatrixReply& matrix, int32_t rank) {
  for (const v1::RankTime& item : matrix.ranks()) {
    if (item.rank() == rank) return &item;
  }
  return nullptr;
}

// The other end of the culprit's busiest path, who would be the first to be blamed wrongly.
int32_t NeighbourOf(const c4d::ReplayScene& scene) {
  const v1::Culprit& culprit = scene.change.verdict.culprit();
  std::map<int32_t, uint64_t> chunks;
  for (const v1::MatrixCell& cell : scene.matrix.cells()) {
    if (cell.from_rank() == culprit.rank()) chunks[cell.to_rank()] += cell.chunks() + 1;
    if (cell.to_rank() == culprit.rank()) chunks[cell.from_rank()] += cell.chunks() + 1;
  }
  int32_t neighbour = -1;
  for (const auto& [rank, count] : chunks) {
    if (neighbour < 0 || count > chunks[neighbour]) neighbour = rank;
  }
  return neighbour;
}

std::string WhyNotTheNeighbourOfALateRank(const c4d::ReplayScene& scene) {
  const int32_t blamed = scene.change.verdict.culprit().rank();
  const int32_t neighbour = NeighbourOf(scene);
  const v1::RankTime* late = FindTime(scene.matrix, blamed);
  const v1::RankTime* other = FindTime(scene.matrix, neighbour);
  if (late == nullptr || other == nullptr) return "";
  return absl::StrFormat(
      "Rank %d, which exchanges data with rank %d, waits %s for the first data of an operation; rank %d "
      "waits "
      "%s. Of its own, rank %d spends %s on each operation (usually %s), rank %d %s (usually %s): who waits "
      "is not late, and who is late does not wait.",
      neighbour, blamed, Milliseconds(other->first_wait_ns()), blamed, Milliseconds(late->first_wait_ns()),
      neighbour, Milliseconds(other->own_ns()), Milliseconds(other->usual_own_ns()), blamed,
      Milliseconds(late->own_ns()), Milliseconds(late->usual_own_ns()));
}

struct Share {
  size_t evidence = 0;
  size_t all = 0;
  std::vector<double> other_ratios;

  void Add(bool is_evidence, double ratio) {
    ++all;
    evidence += is_evidence ? 1 : 0;
    if (!is_evidence) other_ratios.push_back(ratio);
  }
  std::string Text() const {
    std::string text = absl::StrCat(evidence, " of ", all);
    if (!other_ratios.empty()) {
      absl::StrAppendFormat(&text, " (the others: %.1f times what is usual)",
                            analysis::LowerMedian(other_ratios));
    }
    return text;
  }
};

std::string WhyNotTheNeighbourOfASlowPath(const c4d::ReplayScene& scene) {
  const v1::Culprit& culprit = scene.change.verdict.culprit();
  std::set<PathKey> evidence;
  for (const v1::ConnectionRef& ref : culprit.connections()) evidence.insert(KeyOf(ref));
  std::map<std::string, Share> nics;
  for (const v1::MatrixCell& cell : scene.matrix.cells()) {
    const bool is_evidence = evidence.count(KeyOf(cell)) != 0;
    nics[cell.from_nic()].Add(is_evidence, cell.ratio());
    nics[cell.to_nic()].Add(is_evidence, cell.ratio());
  }
  const bool nic = culprit.kind() == v1::CULPRIT_KIND_NIC;
  const std::string* worst = nullptr;
  for (const auto& [address, share] : nics) {
    if (nic && address == culprit.nic()) continue;
    if (share.evidence != 0 && (worst == nullptr || share.evidence > nics[*worst].evidence)) worst = &address;
  }
  if (worst == nullptr) return "";
  if (nic) {
    return absl::StrCat("Slow queue pairs of ", culprit.nic(), ": ", nics[culprit.nic()].Text(),
                        ". Of its peers ", *worst, " is touched most: ", nics[*worst].Text(),
                        ". What that one shares with others than ", culprit.nic(),
                        " is as fast as ever, so it is not to blame.");
  }
  if (culprit.kind() == v1::CULPRIT_KIND_LINK) {
    return absl::StrCat("What takes another link is as fast as ever, and no NIC explains it: ", *worst,
                        ", which is touched most, has slow queue pairs: ", nics[*worst].Text(), ".");
  }
  return absl::StrCat("No NIC explains it. The one that is touched most, ", *worst,
                      ", has slow queue pairs: ", nics[*worst].Text(),
                      ". The same hosts are as fast as ever over other paths, so it is the path.");
}

std::string WhyNotTheNeighbourOfAHang(const c4d::ReplayScene& scene) {
  const v1::Verdict& verdict = scene.change.verdict;
  const v1::Culprit& culprit = verdict.culprit();
  if (!culprit.connections().empty()) {
    const v1::ConnectionRef& ref = culprit.connections(0);
    std::vector<std::string> states;
    for (const int32_t rank : {ref.from_rank(), ref.to_rank()}) {
      const v1::RankStatus* status = FindStatus(scene.status, rank);
      if (status == nullptr) continue;
      states.push_back(absl::StrCat("rank ", rank, " is ",
                                    std::string(service::ProcessStateWord(status->health().state()))));
    }
    if (states.size() < 2) return "";
    return absl::StrCat("The processes at both ends can run (", states[0], ", ", states[1],
                        ") and wait for the network like everybody else: data is posted, so its receiver had "
                        "allowed it, and nothing of it is acknowledged.");
  }
  const auto neighbour =
      std::find_if(scene.places.begin(), scene.places.end(), [&](const c4d::ReplayPlace& place) {
        return place.waits && place.communicator_id == verdict.communicator_id() &&
               place.rank != culprit.rank();
      });
  if (neighbour == scene.places.end()) return "";
  const v1::RankStatus* other = FindStatus(scene.status, neighbour->rank);
  const v1::RankStatus* blamed = FindStatus(scene.status, culprit.rank());
  if (other == nullptr || blamed == nullptr) return "";
  return absl::StrFormat(
      "Rank %d does not go on either, but it can run (%s) and is in operation %u of %s; what is missing "
      "there is rank %d, which is %s. Who waits in another communicator in turn waits, in the end, for rank "
      "%d as well.",
      neighbour->rank, std::string(service::ProcessStateWord(other->health().state())), neighbour->operation,
      service::CommunicatorText(verdict.communicator_id()), culprit.rank(),
      std::string(service::ProcessStateWord(blamed->health().state())), culprit.rank());
}

std::string WhyNobodyElse(const c4d::ReplayScene& scene) {
  const v1::Verdict& verdict = scene.change.verdict;
  switch (verdict.syndrome()) {
    case v1::SYNDROME_NON_COMMUNICATION_SLOW:
      return WhyNotTheNeighbourOfALateRank(scene);
    case v1::SYNDROME_COMMUNICATION_SLOW:
      return WhyNotTheNeighbourOfASlowPath(scene);
    case v1::SYNDROME_COMMUNICATION_HANG:
    case v1::SYNDROME_NON_COMMUNICATION_HANG:
      return WhyNotTheNeighbourOfAHang(scene);
    case v1::SYNDROME_CRASH:
      return "The others failed or waited after it: the first process that is gone without having left in "
             "order ends the job for all, and deaths that follow are its consequence.";
    case v1::SYNDROME_MISMATCH:
      return "The others agree on the call; whoever differs from the majority is to blame, the ones that "
             "wait "
             "for the operation to end are not.";
    case v1::SYNDROME_LOST_NODE:
      return "The agents of all other nodes report, and their ranks wait inside operations with ranks of the "
             "silent node.";
    default:
      return "";
  }
}

std::string SceneText(const c4d::ReplayScene& scene) {
  const v1::Verdict& verdict = scene.change.verdict;
  const std::set<int32_t> ranks = RanksToShow(verdict, scene.status);
  std::string text = absl::StrFormat("Confirmed %.1f s after the recording begins:\n\n```\n%s```\n\n",
                                     static_cast<double>(scene.change.since_begin_ns) / 1e9,
                                     service::VerdictText(verdict, scene.change.unix_ns));
  if (IsSlow(verdict)) {
    absl::StrAppend(&text,
                    "The latency matrix then; `!` marks the cells that are this verdict's evidence.\n\n",
                    "```\n", MatrixText(EvidenceMatrix(scene, ranks), MatrixBy::kRank, {}), "```\n\n");
  } else {
    absl::StrAppend(
        &text,
        "Who waited for whom then, by communicator; `!` marks the one that the verdict is about.\n\n```\n",
        Standing(scene), "```\n\n");
  }
  const std::string why = WhyNobodyElse(scene);
  if (!why.empty()) absl::StrAppend(&text, "Why nobody else: ", why, "\n\n");
  return text;
}

}  // namespace

std::string GalleryText(const std::string& title, const std::string& fault, const c4d::Replay& replay) {
  std::string text = absl::StrCat("## ", title, "\n\n");
  if (!fault.empty()) absl::StrAppend(&text, "Injected: ", fault, "\n\n");
  absl::StrAppendFormat(&text, "%.0f s of job `%s`, %u batches. ",
                        static_cast<double>(replay.length_ns) / 1e9, replay.job, replay.batches);
  if (replay.scenes.empty()) return text + "No verdict was confirmed.\n\n";
  absl::StrAppend(&text, replay.scenes.size() == 1
                             ? "One verdict was confirmed.\n\n"
                             : absl::StrCat(replay.scenes.size(), " verdicts were confirmed.\n\n"));
  for (const c4d::ReplayScene& scene : replay.scenes) text += SceneText(scene);
  return text;
}

}  // namespace c4::cli
