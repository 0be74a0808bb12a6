#include "c4p_master/alloc/choose.h"

#include <algorithm>
#include <tuple>

namespace c4::c4p {

void TakePort(PlaneId plane, Way way, std::vector<PlaneWays>* offered) {
  if (plane >= offered->size()) return;
  for (WayPorts& offer : (*offered)[plane].ways) {
    if (offer.way == way && offer.ports > 0) {
      --offer.ports;
      return;
    }
  }
}

WayChooser::View WayChooser::ViewOf(RowId row) const {
  const Network::Row& links = network_->RowAt(row);
  View view{links.inverse.data(), accounts_->Loads(row).data(), nullptr, links.inverse.size(), 0};
  if (const std::vector<int64_t>* own = accounts_->LoadsOf(tenant_, row)) {
    view.own = own->data();
    view.own_columns = own->size();
  }
  return view;
}

template <typename Grain, typename Own, typename Sum>
size_t WayChooser::Pick(const Grain& grain, const Own& own, const Sum& sum) const {
  const auto emptiest = std::min_element(fullest_.begin(), fullest_.end());
  if (emptiest == fullest_.end() || *emptiest >= Network::kFullForEver) return kNoColumn;
  auto best = static_cast<size_t>(emptiest - fullest_.begin());
  const double alike = *emptiest + grain(best) / 2;
  auto least = std::tuple(own(best), fullest_[best], sum(best));
  for (size_t i = 0; i < fullest_.size(); ++i) {
    if (fullest_[i] > alike) continue;
    const auto candidate = std::tuple(own(i), fullest_[i], sum(i));
    if (candidate >= least) continue;
    best = i;
    least = candidate;
  }
  return best;
}

double WayChooser::Fill(const Hops& hops, Aim aim) const {
  double value = 0;
  for (const Hop& hop : hops) {
    const double fill =
        static_cast<double>(accounts_->Load(hop)) * network_->RowAt(hop.row).inverse[hop.column];
    value = aim == Aim::kSum ? value + fill : std::max(value, fill);
  }
  return value;
}

Way WayChooser::Choose(TenantId tenant, int64_t kbps, LeafId from, LeafId to, const PlaneWays& offered,
                       Aim aim) {
  tenant_ = tenant;
  kbps_ = kbps;
  aim_ = aim;
  if (from == to) {
    const auto direct = [](const WayPorts& offer) { return offer.way == kDirect && offer.ports > 0; };
    return offered.all || std::any_of(offered.ways.begin(), offered.ways.end(), direct) ? kDirect : kNoWay;
  }
  if (network_->PodOf(from) == network_->PodOf(to)) {
    return ChooseSpine(from, to, offered.all ? nullptr : &offered.ways);
  }
  return offered.all ? ChooseCore(from, to) : ChooseOfferedCore(from, to, offered.ways);
}

Way WayChooser::ChooseSpine(LeafId from, LeafId to, const std::vector<WayPorts>* ways) {
  const View up = ViewOf(RowOf(Tier::kLeaf, from, Direction::kUp));
  const View down = ViewOf(RowOf(Tier::kLeaf, to, Direction::kDown));
  const size_t columns = std::min(up.columns, down.columns);
  fullest_.resize(columns);
  for (size_t i = 0; i < columns; ++i) fullest_[i] = Together({Fill(up, i), Fill(down, i)});
  const PodId pod = network_->PodOf(from);
  if (ways != nullptr) {
    out_.assign(columns, 1);
    for (const WayPorts& offer : *ways) {
      if (offer.ports == 0 || offer.way >= network_->spines() || network_->PodOfSpine(offer.way) != pod) continue;
      if (const uint32_t column = network_->ColumnOf(offer.way); column < columns) out_[column] = 0;
    }
    for (size_t i = 0; i < columns; ++i) {
      if (out_[i] != 0) fullest_[i] = Network::kFullForEver;
    }
  }
  const size_t best = Pick(
      [&](size_t i) {
        return static_cast<double>(kbps_) * (Fill(up, i) >= Fill(down, i) ? up.inverse[i] : down.inverse[i]);
      },
      [&](size_t i) { return up.OwnAt(i) + down.OwnAt(i); },
      [&](size_t i) { return Fill(up, i) + Fill(down, i); });
  return best == kNoColumn ? kNoWay : network_->SpinesOf(pod)[best];
}

// Few pairs between pods have a list, and no list is long: hop by hop.
Way WayChooser::ChooseOfferedCore(LeafId from, LeafId to, const std::vector<WayPorts>& ways) {
  fullest_.clear();
  hops_.clear();
  ways_.clear();
  const auto fill = [&](const Hop& hop) { return Fill(ViewOf(hop.row), hop.column); };
  for (const WayPorts& offer : ways) {
    Hops hops;
    if (offer.ports == 0 || !network_->HopsOf(from, to, offer.way, &hops) || !network_->IsUp(hops)) continue;
    double fullest = 0;
    for (const Hop& hop : hops) fullest = Together({fullest, fill(hop)});
    fullest_.push_back(fullest);
    hops_.push_back(hops);
    ways_.push_back(offer.way);
  }
  const size_t best = Pick(
      [&](size_t i) {
        double inverse = 0;
        for (const Hop& hop : hops_[i]) {
          if (fill(hop) == fullest_[i]) inverse = network_->RowAt(hop.row).inverse[hop.column];
        }
        return static_cast<double>(kbps_) * inverse;
      },
      [&](size_t i) {
        int64_t own = 0;
        for (const Hop& hop : hops_[i]) own += ViewOf(hop.row).OwnAt(hop.column);
        return own;
      },
      [&](size_t i) {
        double sum = 0;
        for (const Hop& hop : hops_[i]) sum += fill(hop);
        return sum;
      });
  return best == kNoColumn ? kNoWay : ways_[best];
}

Way WayChooser::ChooseCore(LeafId from, LeafId to) {
  const PodId source = network_->PodOf(from);
  const PodId destination = network_->PodOf(to);
  const std::vector<SpineId>& spines = network_->SpinesOf(source);
  const std::vector<Network::Attachment>& counterparts = network_->Counterparts(source, destination);
  out_.assign(spines.size(), 0);
  for (;;) {
    const View up = ViewOf(RowOf(Tier::kLeaf, from, Direction::kUp));
    const View down = ViewOf(RowOf(Tier::kLeaf, to, Direction::kDown));
    fullest_.assign(up.columns, Network::kFullForEver);
    row_sums_.assign(up.columns, 0);
    // A spine's links to the cores count as one, and so do those from the cores to its counterpart.
    const auto row_fill = [&](RowId row) {
      return static_cast<double>(accounts_->Total(row) + kbps_) * network_->RowInverse(row);
    };
    for (size_t i = 0; i < up.columns; ++i) {
      const Network::Attachment there = counterparts[i];
      if (out_[i] != 0 || there.spine == kNobody || there.column >= down.columns) continue;
      const double a = row_fill(RowOf(Tier::kSpine, spines[i], Direction::kUp));
      const double b = row_fill(RowOf(Tier::kSpine, there.spine, Direction::kDown));
      fullest_[i] = Together({Fill(up, i), a, b, Fill(down, there.column)});
      row_sums_[i] = a + b;
    }
    const size_t best = Pick(
        [&](size_t i) { return static_cast<double>(kbps_) * up.inverse[i]; },
        [&](size_t i) { return up.OwnAt(i) + down.OwnAt(counterparts[i].column); },
        [&](size_t i) { return Fill(up, i) + row_sums_[i] + Fill(down, counterparts[i].column); });
    if (best == kNoColumn) return kNoWay;
    const Way core = ChooseCoreOf(spines[best], destination, down);
    if (core != kNoWay) return core;
    out_[best] = 1;
  }
}

Way WayChooser::ChooseCoreOf(SpineId spine, PodId destination, const View& down) {
  const std::vector<CoreId>& cores = network_->CoresOf(spine);
  const View up = ViewOf(RowOf(Tier::kSpine, spine, Direction::kUp));
  fullest_.assign(cores.size(), Network::kFullForEver);
  View there;
  SpineId seen = kNobody;
  const auto look_there = [&](const Network::Attachment& at) {
    if (at.spine != seen) there = ViewOf(RowOf(Tier::kSpine, at.spine, Direction::kDown));
    seen = at.spine;
  };
  for (size_t i = 0; i < cores.size(); ++i) {
    const Network::Attachment at = network_->AttachmentOf(cores[i], destination);
    if (at.spine == kNobody || network_->ColumnOf(at.spine) >= down.columns) continue;
    look_there(at);
    fullest_[i] =
        Together({Fill(up, i), Fill(there, at.column), Fill(down, network_->ColumnOf(at.spine))});
  }
  const auto with_attachment = [&](size_t i, const auto& value) {
    const Network::Attachment at = network_->AttachmentOf(cores[i], destination);
    look_there(at);
    return value(at.column);
  };
  const size_t best = Pick(
      [&](size_t i) { return static_cast<double>(kbps_) * up.inverse[i]; },
      [&](size_t i) {
        return with_attachment(i, [&](size_t column) { return up.OwnAt(i) + there.OwnAt(column); });
      },
      [&](size_t i) {
        return with_attachment(i, [&](size_t column) { return Fill(up, i) + Fill(there, column); });
      });
  return best == kNoColumn ? kNoWay : cores[best];
}

}  // namespace c4::c4p
