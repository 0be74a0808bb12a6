#include "c4p_master/alloc/network.h"

#include <algorithm>
#include <cmath>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"

namespace c4::c4p {
namespace {

template <typename... Words>
absl::Status Refuse(const Words&... words) {
  return absl::InvalidArgumentError(absl::StrCat(words...));
}

absl::Status CheckNumber(const char* kind, uint32_t number) {
  if (number < kMostNumbers) return absl::OkStatus();
  return Refuse(kind, " ", number, ": number them from 0, below ", kMostNumbers);
}

constexpr double kMostMbps = 1e9;

absl::StatusOr<int64_t> Kbps(double mbps) {
  if (!(mbps > 0) || mbps > kMostMbps) {
    return Refuse("a link of ", mbps, " Mbit/s: give a rate above 0, of at most ", kMostMbps);
  }
  return std::max<int64_t>(1, std::llround(mbps * 1000));
}

}  // namespace

std::string LinkName(const Link& link) {
  switch (link.tier) {
    case Tier::kPort:
      return absl::StrCat("NIC ", link.lower, ", plane ", link.upper);
    case Tier::kLeaf:
      return absl::StrCat("leaf ", link.lower, " - spine ", link.upper);
    default:
      return absl::StrCat("spine ", link.lower, " - core ", link.upper);
  }
}

absl::Status Network::AddLeaf(LeafId leaf, PodId pod, PlaneId plane) {
  if (absl::Status bad = CheckNumber("leaf", leaf); !bad.ok()) return bad;
  if (absl::Status bad = CheckNumber("pod", pod); !bad.ok()) return bad;
  if (plane >= kMostPlanes) return Refuse("plane ", plane, " of leaf ", leaf, ": there are ", kMostPlanes);
  if (leaf < leaves_.size() && leaves_[leaf].pod != kNobody) {
    if (leaves_[leaf].pod == pod && leaves_[leaf].plane == plane) return absl::OkStatus();
    return absl::FailedPreconditionError(absl::StrCat("leaf ", leaf, " is of pod ", leaves_[leaf].pod,
                                                      " and plane ", leaves_[leaf].plane,
                                                      ": that cannot be changed"));
  }
  if (leaf >= leaves_.size()) {
    leaves_.resize(leaf + 1);
    rows_[0].resize(2 * leaves_.size());
    row_inverse_[0].resize(2 * leaves_.size(), kFullForEver);
  }
  if (pod >= pods_.size()) pods_.resize(pod + 1);
  leaves_[leaf] = {pod, plane};
  return absl::OkStatus();
}

absl::Status Network::AddSpine(SpineId spine, PodId pod) {
  if (absl::Status bad = CheckNumber("spine", spine); !bad.ok()) return bad;
  if (absl::Status bad = CheckNumber("pod", pod); !bad.ok()) return bad;
  if (spine < spines_.size() && spines_[spine].pod != kNobody) {
    if (spines_[spine].pod == pod) return absl::OkStatus();
    return absl::FailedPreconditionError(
        absl::StrCat("spine ", spine, " is of pod ", spines_[spine].pod, ": that cannot be changed"));
  }
  if (spine >= spines_.size()) {
    spines_.resize(spine + 1);
    rows_[1].resize(2 * spines_.size());
    row_inverse_[1].resize(2 * spines_.size(), kFullForEver);
  }
  if (pod >= pods_.size()) pods_.resize(pod + 1);
  spines_[spine].pod = pod;
  spines_[spine].column = static_cast<uint32_t>(pods_[pod].size());
  pods_[pod].push_back(spine);
  counterparts_.clear();
  return absl::OkStatus();
}

absl::Status Network::AddCore(CoreId core) {
  if (absl::Status bad = CheckNumber("core", core); !bad.ok()) return bad;
  if (core >= cores_.size()) cores_.resize(core + 1);
  cores_[core].known = true;
  return absl::OkStatus();
}

absl::Status Network::AddPort(NicId nic, PlaneId plane, LeafId leaf, double mbps) {
  if (absl::Status bad = CheckNumber("NIC", nic); !bad.ok()) return bad;
  const absl::StatusOr<int64_t> kbps = Kbps(mbps);
  if (!kbps.ok()) return kbps.status();
  if (leaf >= leaves_.size() || leaves_[leaf].pod == kNobody) {
    return absl::NotFoundError(absl::StrCat("leaf ", leaf, " of NIC ", nic, " is not known: add it first"));
  }
  if (leaves_[leaf].plane != plane) {
    return Refuse("leaf ", leaf, " is of plane ", leaves_[leaf].plane, ": no port of NIC ", nic, " in plane ",
                  plane, " hangs on it");
  }
  if (const Port* port = FindPort(nic, plane); port != nullptr && port->leaf != leaf) {
    return absl::FailedPreconditionError(absl::StrCat("NIC ", nic, " hangs on leaf ", port->leaf,
                                                      " in plane ", plane, ": that cannot be changed"));
  }
  if (plane >= ports_.size()) ports_.resize(plane + 1);
  if (nic >= ports_[plane].size()) ports_[plane].resize(nic + 1);
  Port& port = ports_[plane][nic];
  if (port.leaf == kNobody) port.up = {true, true};
  port.leaf = leaf;
  port.kbps = {*kbps, *kbps};
  return absl::OkStatus();
}

absl::Status Network::AddLeafLink(LeafId leaf, SpineId spine, double mbps) {
  const absl::StatusOr<int64_t> kbps = Kbps(mbps);
  if (!kbps.ok()) return kbps.status();
  if (leaf >= leaves_.size() || leaves_[leaf].pod == kNobody || spine >= spines_.size() ||
      spines_[spine].pod == kNobody) {
    return absl::NotFoundError(
        absl::StrCat("leaf ", leaf, " or spine ", spine, " is not known: add both first"));
  }
  if (leaves_[leaf].pod != spines_[spine].pod) {
    return Refuse("leaf ", leaf, " is of pod ", leaves_[leaf].pod, ", spine ", spine, " of pod ",
                  spines_[spine].pod, ": a link joins those of one pod");
  }
  for (const Direction direction : {Direction::kUp, Direction::kDown}) {
    const Hop hop{RowOf(Tier::kLeaf, leaf, direction), spines_[spine].column};
    SetColumn(hop, *kbps, IsUpOrNew(hop));
  }
  return absl::OkStatus();
}

absl::Status Network::AddSpineLink(SpineId spine, CoreId core, double mbps) {
  const absl::StatusOr<int64_t> kbps = Kbps(mbps);
  if (!kbps.ok()) return kbps.status();
  if (spine >= spines_.size() || spines_[spine].pod == kNobody || core >= cores_.size() ||
      !cores_[core].known) {
    return absl::NotFoundError(
        absl::StrCat("spine ", spine, " or core ", core, " is not known: add both first"));
  }
  std::vector<Attachment>& by_pod = cores_[core].by_pod;
  const PodId pod = spines_[spine].pod;
  if (pod >= by_pod.size()) by_pod.resize(pod + 1);
  Attachment& at = by_pod[pod];
  if (at.spine != kNobody && at.spine != spine) {
    return absl::FailedPreconditionError(
        absl::StrCat("core ", core, " is joined to spine ", at.spine, " of pod ", pod,
                     ": a second spine of that pod would make its paths ambiguous"));
  }
  if (at.spine == kNobody) {
    at = {spine, static_cast<uint32_t>(spines_[spine].cores.size())};
    spines_[spine].cores.push_back(core);
    counterparts_.clear();
  }
  for (const Direction direction : {Direction::kUp, Direction::kDown}) {
    const Hop hop{RowOf(Tier::kSpine, spine, direction), at.column};
    SetColumn(hop, *kbps, IsUpOrNew(hop));
  }
  return absl::OkStatus();
}

bool Network::IsUpOrNew(const Hop& hop) const {
  const Row& row = RowAt(hop.row);
  return hop.column >= row.kbps.size() || row.kbps[hop.column] == 0 ||
         row.inverse[hop.column] != kFullForEver;
}

void Network::SetColumn(const Hop& hop, int64_t kbps, bool up) {
  Row& row = MutableRow(hop.row);
  if (hop.column >= row.kbps.size()) {
    row.kbps.resize(hop.column + 1, 0);
    row.inverse.resize(hop.column + 1, kFullForEver);
  }
  const auto count = [&](int sign) {
    if (row.kbps[hop.column] == 0) return;
    if (row.inverse[hop.column] == kFullForEver) {
      row.down += static_cast<uint32_t>(sign);
      if (hop.row.tier == Tier::kSpine) spine_links_down_ += static_cast<uint32_t>(sign);
    } else {
      row.up_kbps += sign * row.kbps[hop.column];
    }
  };
  count(-1);
  row.kbps[hop.column] = kbps;
  row.inverse[hop.column] = up ? 1.0 / static_cast<double>(kbps) : kFullForEver;
  count(1);
  row_inverse_[Index(hop.row.tier)][hop.row.number] =
      row.up_kbps == 0 ? kFullForEver : 1.0 / static_cast<double>(row.up_kbps);
}

const std::vector<Network::Counterpart>& Network::Counterparts(PodId from, PodId to) const {
  if (counterparts_.size() <= from) counterparts_.resize(pods_.size());
  if (counterparts_[from].size() <= to) counterparts_[from].resize(pods_.size());
  std::vector<Counterpart>& found = counterparts_[from][to];
  if (!found.empty()) return found;
  for (const SpineId spine : pods_[from]) {
    Counterpart counterpart;
    uint32_t column = 0;
    for (const CoreId core : spines_[spine].cores) {
      const Attachment at = AttachmentOf(core, to);
      if (counterpart.spine == kNobody && at.spine != kNobody) {
        counterpart = {at.spine, ColumnOf(at.spine), column == 0};
      }
      counterpart.parallel &= at.spine == counterpart.spine && at.column == column;
      ++column;
    }
    found.push_back(counterpart);
  }
  return found;
}

absl::Status Network::Find(const Link& link) const {
  bool known = false;
  switch (link.tier) {
    case Tier::kPort:
      known = FindPort(link.lower, link.upper) != nullptr;
      break;
    case Tier::kLeaf:
      if (link.lower < leaves_.size() && link.upper < spines_.size() &&
          leaves_[link.lower].pod == spines_[link.upper].pod && leaves_[link.lower].pod != kNobody) {
        const Row& row = RowAt(RowOf(Tier::kLeaf, link.lower, Direction::kUp));
        const uint32_t column = spines_[link.upper].column;
        known = column < row.kbps.size() && row.kbps[column] != 0;
      }
      break;
    case Tier::kSpine:
      known = link.lower < spines_.size() && link.upper < cores_.size() &&
              spines_[link.lower].pod != kNobody &&
              AttachmentOf(link.upper, spines_[link.lower].pod).spine == link.lower;
      break;
  }
  if (known) return absl::OkStatus();
  return absl::NotFoundError(absl::StrCat("no link ", LinkName(link), " is known: add it first"));
}

Hop Network::HopOf(const Link& link, Direction direction) const {
  const uint32_t column = link.tier == Tier::kLeaf ? spines_[link.upper].column
                                                   : AttachmentOf(link.upper, spines_[link.lower].pod).column;
  return {RowOf(link.tier, link.lower, direction), column};
}

absl::Status Network::SetUp(const Link& link, bool up) {
  for (const Direction direction : {Direction::kUp, Direction::kDown}) {
    if (absl::Status fault = SetUp(link, direction, up); !fault.ok()) return fault;
  }
  return absl::OkStatus();
}

absl::Status Network::SetUp(const Link& link, Direction direction, bool up) {
  if (absl::Status fault = Find(link); !fault.ok()) return fault;
  if (link.tier == Tier::kPort) {
    ports_[link.upper][link.lower].up[static_cast<size_t>(direction)] = up;
  } else {
    const Hop hop = HopOf(link, direction);
    SetColumn(hop, RowAt(hop.row).kbps[hop.column], up);
  }
  return absl::OkStatus();
}

absl::Status Network::SetCapacity(const Link& link, Direction direction, double mbps) {
  if (absl::Status fault = Find(link); !fault.ok()) return fault;
  const absl::StatusOr<int64_t> kbps = Kbps(mbps);
  if (!kbps.ok()) return kbps.status();
  if (link.tier == Tier::kPort) {
    ports_[link.upper][link.lower].kbps[static_cast<size_t>(direction)] = *kbps;
  } else {
    const Hop hop = HopOf(link, direction);
    SetColumn(hop, *kbps, RowAt(hop.row).inverse[hop.column] != kFullForEver);
  }
  return absl::OkStatus();
}

bool Network::HasNic(NicId nic) const {
  for (PlaneId plane = 0; plane < planes(); ++plane) {
    if (FindPort(nic, plane) != nullptr) return true;
  }
  return false;
}

int64_t Network::NicKbps(NicId nic) const {
  int64_t sum = 0;
  for (PlaneId plane = 0; plane < planes(); ++plane) {
    if (const Port* port = FindPort(nic, plane)) sum += port->kbps[0];
  }
  return sum;
}

bool Network::HopsOf(LeafId from, LeafId to, Way way, Hops* hops) const {
  hops->size = 0;
  if (from == to) return way == kDirect;
  const auto add = [&](Tier tier, uint32_t lower, Direction direction, uint32_t column) {
    const Hop hop{RowOf(tier, lower, direction), column};
    const Row& row = RowAt(hop.row);
    hops->hop[hops->size++] = hop;
    return column < row.kbps.size() && row.kbps[column] != 0;
  };
  const PodId source = leaves_[from].pod;
  const PodId destination = leaves_[to].pod;
  if (source == destination) {
    if (way >= spines_.size() || spines_[way].pod != source) return false;
    const uint32_t column = spines_[way].column;
    return add(Tier::kLeaf, from, Direction::kUp, column) && add(Tier::kLeaf, to, Direction::kDown, column);
  }
  if (way >= cores_.size()) return false;
  const Attachment up = AttachmentOf(way, source);
  const Attachment down = AttachmentOf(way, destination);
  if (up.spine == kNobody || down.spine == kNobody) return false;
  return add(Tier::kLeaf, from, Direction::kUp, ColumnOf(up.spine)) &&
         add(Tier::kSpine, up.spine, Direction::kUp, up.column) &&
         add(Tier::kSpine, down.spine, Direction::kDown, down.column) &&
         add(Tier::kLeaf, to, Direction::kDown, ColumnOf(down.spine));
}

bool Network::IsUp(const Hops& hops) const {
  return std::all_of(hops.begin(), hops.end(),
                     [this](const Hop& hop) { return RowAt(hop.row).inverse[hop.column] != kFullForEver; });
}

}  // namespace c4::c4p
