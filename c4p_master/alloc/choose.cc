#include "c4p_master/alloc/choose.h"

#include <algorithm>
#include <tuple>

namespace c4::c4p {

void TakePort(Way way, PlaneWays* offered) {
  for (WayPorts& offer : offered->ways) {
    if (offer.way != way || offer.ports == 0) continue;
    --offer.ports;
    return;
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
size_t WayChooser::Pick(const std::vector<double>& value, const Grain& grain, const Own& own,
                        const Sum& sum) {
  const auto emptiest = std::min_element(value.begin(), value.end());
  if (emptiest == value.end() || *emptiest >= Network::kFullForEver) return kNoColumn;
  auto best = static_cast<size_t>(emptiest - value.begin());
  const double alike = *emptiest + grain(best) / 2;
  auto least = std::tuple(own(best), value[best], sum(best));
  for (size_t i = 0; i < value.size(); ++i) {
    if (value[i] > alike) continue;
    const auto candidate = std::tuple(own(i), value[i], sum(i));
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

const std::vector<Way>& WayChooser::Choose(TenantId tenant, int64_t kbps, LeafId from, LeafId to,
                                           uint32_t count, PlaneWays* offered, Aim aim) {
  tenant_ = tenant;
  kbps_ = kbps;
  aim_ = aim;
  chosen_.clear();
  if (from == to) {
    if (!offered->all) {
      uint32_t ports = 0;
      for (const WayPorts& offer : offered->ways) ports += offer.way == kDirect ? offer.ports : 0;
      count = std::min(count, ports);
    }
    chosen_.assign(count, kDirect);
  } else if (network_->PodOf(from) == network_->PodOf(to)) {
    ChooseSpines(from, to, count, offered);
  } else if (offered->all) {
    ChooseCores(from, to, count);
  } else {
    ChooseOfferedCores(from, to, count, &offered->ways);
  }
  if (!offered->all) {
    for (const Way way : chosen_) TakePort(way, offered);
  }
  return chosen_;
}

void WayChooser::ChooseSpines(LeafId from, LeafId to, uint32_t count, PlaneWays* offered) {
  const View up = ViewOf(RowOf(Tier::kLeaf, from, Direction::kUp));
  const View down = ViewOf(RowOf(Tier::kLeaf, to, Direction::kDown));
  const size_t columns = std::min(up.columns, down.columns);
  const PodId pod = network_->PodOf(from);
  taken_.assign(columns, 0);
  ports_.assign(columns, offered->all ? UINT32_MAX : 0);
  for (const WayPorts& offer : offered->ways) {
    if (offered->all || offer.way >= network_->spines() || network_->PodOfSpine(offer.way) != pod) continue;
    if (const uint32_t column = network_->ColumnOf(offer.way); column < columns) ports_[column] = offer.ports;
  }
  const auto value = [&](size_t i) {
    return taken_[i] < int64_t{ports_[i]} ? Together({Fill(up, i, taken_[i]), Fill(down, i, taken_[i])})
                                          : Network::kFullForEver;
  };
  value_.resize(columns);
  for (size_t i = 0; i < columns; ++i) value_[i] = value(i);
  while (chosen_.size() < count) {
    const size_t best = Pick(
        value_,
        [&](size_t i) {
          const bool upwards = Fill(up, i, taken_[i]) >= Fill(down, i, taken_[i]);
          return static_cast<double>(kbps_) * (upwards ? up.inverse[i] : down.inverse[i]);
        },
        [&](size_t i) { return up.OwnAt(i) + down.OwnAt(i) + 2 * taken_[i] * kbps_; },
        [&](size_t i) { return Fill(up, i, taken_[i]) + Fill(down, i, taken_[i]); });
    if (best == kNoColumn) return;
    chosen_.push_back(network_->SpinesOf(pod)[best]);
    ++taken_[best];
    value_[best] = value(best);
  }
}

// Few pairs between pods have a list, and no list is long: hop by hop.
void WayChooser::ChooseOfferedCores(LeafId from, LeafId to, uint32_t count, std::vector<WayPorts>* ways) {
  hops_.resize(ways->size());
  for (size_t i = 0; i < ways->size(); ++i) {
    const bool leads = network_->HopsOf(from, to, (*ways)[i].way, &hops_[i]) && network_->IsUp(hops_[i]);
    if (!leads) hops_[i].size = 0;
  }
  std::vector<size_t> picked;
  const auto taken = [&](const Hop& hop) {
    int64_t sum = 0;
    for (const size_t pick : picked) {
      sum += std::any_of(hops_[pick].begin(), hops_[pick].end(), [&](const Hop& other) {
        return other.row == hop.row && other.column == hop.column;
      });
    }
    return sum;
  };
  const auto fill = [&](const Hop& hop) { return Fill(ViewOf(hop.row), hop.column, taken(hop)); };
  while (chosen_.size() < count) {
    value_.assign(ways->size(), Network::kFullForEver);
    for (size_t i = 0; i < ways->size(); ++i) {
      if (hops_[i].size == 0 || TakenOf((*ways)[i].way) >= int64_t{(*ways)[i].ports}) continue;
      value_[i] = 0;
      for (const Hop& hop : hops_[i]) value_[i] = Together({value_[i], fill(hop)});
    }
    const size_t best = Pick(
        value_,
        [&](size_t i) {
          double grain = 0;
          for (const Hop& hop : hops_[i]) {
            grain =
                std::max(grain, static_cast<double>(kbps_) * network_->RowAt(hop.row).inverse[hop.column]);
          }
          return grain;
        },
        [&](size_t i) {
          int64_t own = 0;
          for (const Hop& hop : hops_[i]) own += ViewOf(hop.row).OwnAt(hop.column) + taken(hop) * kbps_;
          return own;
        },
        [&](size_t i) {
          double sum = 0;
          for (const Hop& hop : hops_[i]) sum += fill(hop);
          return sum;
        });
    if (best == kNoColumn) return;
    picked.push_back(best);
    chosen_.push_back((*ways)[best].way);
  }
}

void WayChooser::ChooseCores(LeafId from, LeafId to, uint32_t count) {
  const PodId source = network_->PodOf(from);
  const PodId destination = network_->PodOf(to);
  const std::vector<SpineId>& spines = network_->SpinesOf(source);
  const std::vector<Network::Counterpart>& there = network_->Counterparts(source, destination);
  const View up = ViewOf(RowOf(Tier::kLeaf, from, Direction::kUp));
  const View down = ViewOf(RowOf(Tier::kLeaf, to, Direction::kDown));
  taken_.assign(up.columns, 0);
  value_.assign(up.columns, Network::kFullForEver);
  row_sums_.assign(up.columns, 0);
  // A spine's links to the cores count as one, and so do those from the cores to its counterpart.
  const auto look = [&](size_t i) {
    const auto row_fill = [&](RowId row) {
      return static_cast<double>(accounts_->Total(row) + (taken_[i] + 1) * kbps_) * network_->RowInverse(row);
    };
    if (there[i].spine == kNobody || there[i].column >= down.columns) return;
    const double a = row_fill(RowOf(Tier::kSpine, spines[i], Direction::kUp));
    const double b = row_fill(RowOf(Tier::kSpine, there[i].spine, Direction::kDown));
    value_[i] = Together({Fill(up, i, taken_[i]), a, b, Fill(down, there[i].column, taken_[i])});
    row_sums_[i] = a + b;
  };
  for (size_t i = 0; i < up.columns; ++i) look(i);
  while (chosen_.size() < count) {
    const size_t best = Pick(
        value_, [&](size_t i) { return static_cast<double>(kbps_) * up.inverse[i]; },
        [&](size_t i) { return up.OwnAt(i) + down.OwnAt(there[i].column) + 2 * taken_[i] * kbps_; },
        [&](size_t i) {
          return Fill(up, i, taken_[i]) + row_sums_[i] + Fill(down, there[i].column, taken_[i]);
        });
    if (best == kNoColumn) return;
    const Way core = ChooseCoreOf(spines[best], destination, there[best], down);
    if (core == kNoWay) {
      value_[best] = Network::kFullForEver;
      continue;
    }
    chosen_.push_back(core);
    ++taken_[best];
    look(best);
  }
}

Way WayChooser::ChooseCoreOf(SpineId spine, PodId destination, const Network::Counterpart& counterpart,
                             const View& down) {
  const std::vector<CoreId>& cores = network_->CoresOf(spine);
  const View up = ViewOf(RowOf(Tier::kSpine, spine, Direction::kUp));
  SpineId seen = counterpart.spine;
  View there = ViewOf(RowOf(Tier::kSpine, seen, Direction::kDown));
  size_t column = 0;  // of the core's link, in `there`
  const auto look_at = [&](size_t i) {
    column = i;
    if (counterpart.parallel) return network_->ColumnOf(seen) < down.columns;
    const Network::Attachment at = network_->AttachmentOf(cores[i], destination);
    if (at.spine == kNobody) return false;
    if (at.spine != seen) there = ViewOf(RowOf(Tier::kSpine, at.spine, Direction::kDown));
    seen = at.spine;
    column = at.column;
    return network_->ColumnOf(seen) < down.columns;
  };
  core_value_.assign(cores.size(), Network::kFullForEver);
  for (size_t i = 0; i < cores.size(); ++i) {
    if (!look_at(i)) continue;
    const int64_t taken = TakenOf(cores[i]);
    core_value_[i] = Together(
        {Fill(up, i, taken), Fill(there, column, taken), Fill(down, network_->ColumnOf(seen), taken)});
  }
  const size_t best = Pick(
      core_value_, [&](size_t i) { return static_cast<double>(kbps_) * up.inverse[i]; },
      [&](size_t i) {
        (void)look_at(i);
        return up.OwnAt(i) + there.OwnAt(column) + 2 * TakenOf(cores[i]) * kbps_;
      },
      [&](size_t i) {
        (void)look_at(i);
        return Fill(up, i, TakenOf(cores[i])) + Fill(there, column, TakenOf(cores[i]));
      });
  return best == kNoColumn ? kNoWay : cores[best];
}

}  // namespace c4::c4p
