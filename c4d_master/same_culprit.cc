#include "c4d_master/same_culprit.h"

#include <algorithm>
#include <cstdint>
#include <set>
#include <tuple>
#include <vector>

namespace c4::c4d {
namespace {

bool SameConnection(const ConnectionRef& a, const v1::ConnectionRef& b) {
  return a.communicator_id == b.communicator_id() && a.from_rank == b.from_rank() &&
         a.to_rank == b.to_rank() && a.channel == b.channel() && a.index == b.index();
}

// How many connections of the finding are the culprit's as well.
size_t CountShared(const Finding& finding, const v1::Culprit& culprit) {
  if (finding.connections.empty() || culprit.connections().empty()) return 0;
  using Key = std::tuple<uint64_t, int32_t, int32_t, uint32_t, uint32_t>;
  std::vector<Key> known;
  known.reserve(static_cast<size_t>(culprit.connections_size()));
  for (const v1::ConnectionRef& ref : culprit.connections()) {
    known.emplace_back(ref.communicator_id(), ref.from_rank(), ref.to_rank(), ref.channel(), ref.index());
  }
  std::sort(known.begin(), known.end());
  return static_cast<size_t>(
      std::count_if(finding.connections.begin(), finding.connections.end(), [&](const ConnectionRef& ref) {
        return std::binary_search(
            known.begin(), known.end(),
            Key(ref.communicator_id, ref.from_rank, ref.to_rank, ref.channel, ref.index));
      }));
}

// Nearly all connections of the finding are the verdict's.
bool IsPartOf(const Finding& finding, const v1::Culprit& culprit) {
  const size_t known = CountShared(finding, culprit);
  return known > 0 && 2 * known >= finding.connections.size();
}

}  // namespace

bool SameConnections(const Finding& finding, const v1::Culprit& culprit) {
  return std::equal(finding.connections.begin(), finding.connections.end(), culprit.connections().begin(),
                    culprit.connections().end(), SameConnection);
}

bool Overlap(const Finding& finding, const v1::Culprit& culprit) {
  if (CountShared(finding, culprit) > 0) return true;
  const std::set<int32_t> candidates(culprit.candidates().begin(), culprit.candidates().end());
  return std::any_of(finding.candidates.begin(), finding.candidates.end(),
                     [&](int32_t rank) { return candidates.count(rank) != 0; });
}

bool IsOneOf(const Finding& finding, const v1::Culprit& culprit) {
  return finding.syndrome == Syndrome::kCrash && finding.kind == CulpritKind::kAmbiguous &&
         culprit.kind() == v1::CULPRIT_KIND_RANK &&
         std::find(finding.candidates.begin(), finding.candidates.end(), culprit.rank()) !=
             finding.candidates.end();
}

bool SameCulprit(const Finding& finding, const v1::Verdict& verdict) {
  // A job has one at a time; who is to blame for it may become known later.
  if (finding.syndrome == Syndrome::kFailSlow) return true;
  const v1::Culprit& culprit = verdict.culprit();
  const v1::ProcessId& process = culprit.process();
  const bool same_kind = culprit.kind() == static_cast<int>(finding.kind);
  if (finding.settled && Overlap(finding, culprit)) return true;
  switch (finding.kind) {
    case CulpritKind::kRank:
      if (!same_kind) return false;
      // Not every source tells the process.
      if (finding.culprit.pid == 0 || process.pid() == 0) return culprit.rank() == finding.rank;
      return process.pid() == finding.culprit.pid &&
             process.start_time_ticks() == finding.culprit.start_time_ticks &&
             process.boot_id() == finding.culprit.boot_id;
    case CulpritKind::kNode:
      return same_kind && culprit.host() == finding.host;
    case CulpritKind::kNic:
      // What looked like single connections at first may turn out to be their NIC.
      return same_kind ? culprit.nic() == finding.nic && culprit.host() == finding.host
                       : verdict.state() == v1::VERDICT_STATE_SUSPECTED && Overlap(finding, culprit);
    case CulpritKind::kConnection:
    case CulpritKind::kAmbiguous:
      if (IsOneOf(finding, culprit)) return true;
      // At one moment there is one finding about connections; its set comes and goes with the traffic.
      return culprit.kind() == v1::CULPRIT_KIND_CONNECTION || culprit.kind() == v1::CULPRIT_KIND_AMBIGUOUS ||
             (culprit.kind() == v1::CULPRIT_KIND_LINK && finding.taken.count(culprit.cable()) != 0) ||
             ((culprit.kind() == v1::CULPRIT_KIND_NIC || culprit.kind() == v1::CULPRIT_KIND_LINK) &&
              Overlap(finding, culprit));
    case CulpritKind::kLink:
      // What looked like single connections may turn out to be their link, and what is left of the trouble
      // over one link may look like that of another.
      return same_kind ? culprit.cable() == finding.cable || IsPartOf(finding, culprit)
                       : Overlap(finding, culprit);
  }
  return false;
}

}  // namespace c4::c4d
