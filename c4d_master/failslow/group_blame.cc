#include "c4d_master/failslow/group_blame.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <string>

#include "absl/strings/str_format.h"
#include "c4d_master/detectors/queue_pair_ends.h"
#include "service/text.h"
#include "service/verdict_json.h"

namespace c4::c4d {
namespace {

using service::Concat;

std::string RanksText(const std::vector<int32_t>& ranks) {
  std::vector<uint32_t> shown;
  for (const int32_t rank : ranks) shown.push_back(static_cast<uint32_t>(std::max(0, rank)));
  return service::RankListText(shown);
}

double Excess(const std::vector<SlowGroup>& groups) {
  return groups.empty() ? 0 : groups.front().seconds - groups.front().median_seconds;
}

const ProcessRef* RefOf(const JobSnapshot& snapshot, int32_t rank) {
  const auto found =
      std::find_if(snapshot.processes.begin(), snapshot.processes.end(), [rank](const ProcessRef& ref) {
        return !ref.superseded && !ref.process->ended && ref.process->rank == rank;
      });
  return found == snapshot.processes.end() ? nullptr : &*found;
}

// The ranks that all of these groups have; those of the worst where they share none.
std::vector<int32_t> Shared(const std::vector<SlowGroup>& groups) {
  std::vector<int32_t> shared = groups.front().ranks;
  for (const SlowGroup& group : groups) {
    std::vector<int32_t> both;
    std::set_intersection(shared.begin(), shared.end(), group.ranks.begin(), group.ranks.end(),
                          std::back_inserter(both));
    shared = std::move(both);
  }
  return shared.empty() ? groups.front().ranks : shared;
}

// One rank, one node, or candidates.
void NameRanks(const std::vector<int32_t>& ranks, const JobSnapshot& snapshot, bool computes,
               Finding* finding) {
  std::set<std::string> hosts;
  for (const int32_t rank : ranks) {
    const ProcessRef* const ref = RefOf(snapshot, rank);
    hosts.insert(ref == nullptr ? "" : ref->host->name);
  }
  const bool one_host = hosts.size() == 1 && !hosts.begin()->empty();
  if (ranks.size() == 1 && one_host && computes) {
    finding->kind = CulpritKind::kRank;
    FillProcess(*RefOf(snapshot, ranks.front()), finding);
    finding->suggested_action =
        Concat("see what slows process ", finding->culprit.pid, " on ", finding->host,
               " down: CPU quota and neighbours, GPU clocks and temperature, data loading");
  } else if (one_host) {
    finding->kind = CulpritKind::kNode;
    finding->host = *hosts.begin();
    finding->suggested_action =
        Concat("look at ", finding->host,
               computes ? ": clocks, temperature and power of its GPUs, CPU quota and neighbours"
                        : ": rate and errors of its NICs, congestion on their links");
  } else {
    finding->kind = CulpritKind::kAmbiguous;
    finding->candidates = ranks;
    finding->suggested_action =
        computes ? "compare the GPUs' clocks, the hosts and the data of these ranks with those of the others"
                 : "look at the NICs of these ranks and at the links between them: `c4 matrix --by qp`";
  }
}

}  // namespace

void AddGroups(const GroupProfile& profile, Finding* finding) {
  for (const std::vector<SlowGroup>* groups : {&profile.ranks, &profile.communicators}) {
    for (const SlowGroup& group : *groups) {
      const bool computes = group.communicator_id == 0;
      finding->evidence.push_back(
          {"group",
           absl::StrFormat(
               "%s %s for %.4g s an iteration, %.2f times the median of the %d that do the same "
               "(%.4g s)",
               computes ? RanksText(group.ranks) : Concat(group.kind, " group of ", RanksText(group.ranks)),
               computes ? "computes" : "transfers", group.seconds, group.ratio, group.of,
               group.median_seconds)});
      finding->fail_slow->groups.push_back(group);
    }
  }
  if (finding->fail_slow->groups.empty() && profile.iterations > 0) {
    finding->evidence.push_back(
        {"group", absl::StrFormat("in the records of %.1f iterations no rank or group takes longer than the "
                                  "others of its kind",
                                  profile.iterations)});
  }
}

// A rank that computes longer has transfers that last longer where its processor moves the bytes.
bool BlameByProfile(const GroupProfile& profile, const JobSnapshot& snapshot, Finding* finding) {
  if (profile.ranks.empty() && profile.communicators.empty()) return false;
  const auto touches_slow_rank = [&](const SlowGroup& group) {
    return std::any_of(profile.ranks.begin(), profile.ranks.end(), [&](const SlowGroup& rank) {
      return std::binary_search(group.ranks.begin(), group.ranks.end(), rank.ranks.front());
    });
  };
  const bool explained =
      std::all_of(profile.communicators.begin(), profile.communicators.end(), touches_slow_rank) &&
      2 * Excess(profile.ranks) >= Excess(profile.communicators);
  const bool communication = !profile.communicators.empty() && (profile.ranks.empty() || !explained);
  const bool computation = !profile.ranks.empty();
  FailSlowFacts& facts = *finding->fail_slow;
  facts.cause = communication && computation ? FailSlowCause::kBoth
                : computation                ? FailSlowCause::kComputation
                                             : FailSlowCause::kCommunication;
  facts.known_from = "profile";
  const bool ranks_first = computation && Excess(profile.ranks) >= Excess(profile.communicators);
  if (ranks_first || !communication) {
    std::vector<int32_t> ranks;
    for (const SlowGroup& rank : profile.ranks) ranks.push_back(rank.ranks.front());
    std::sort(ranks.begin(), ranks.end());
    NameRanks(ranks, snapshot, /*computes=*/true, finding);
  } else {
    NameRanks(Shared(profile.communicators), snapshot, /*computes=*/false, finding);
  }
  return true;
}

}  // namespace c4::c4d
