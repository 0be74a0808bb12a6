// The allocator's plans: what ought to move after the network has changed.
#include <algorithm>
#include <tuple>

#include "c4p_master/alloc/allocator.h"

namespace c4::c4p {
namespace {

// A link is worth a look when it carries so much more than the even share of its row.
constexpr double kWorthALook = 1.005;
constexpr double kRounding = 1e-9;

constexpr uint8_t kSends = 1;
constexpr uint8_t kReceives = 2;

// By NIC: whether what it sends, or what it receives, may meet a link of a leaf or port that is down. There
// are far fewer NICs than connections.
std::vector<uint8_t> NicsThatLose(const Network& network) {
  std::vector<uint8_t> lose;
  for (PlaneId plane = 0; plane < network.planes(); ++plane) {
    lose.resize(std::max(lose.size(), network.nics(plane)), 0);
    for (NicId nic = 0; nic < network.nics(plane); ++nic) {
      const Network::Port* const port = network.FindPort(nic, plane);
      if (port == nullptr) continue;
      const auto loses = [&](Direction direction, size_t own) {
        return !port->up[own] || network.RowAt(RowOf(Tier::kLeaf, port->leaf, direction)).down != 0;
      };
      if (loses(Direction::kUp, 0)) lose[nic] |= kSends;
      if (loses(Direction::kDown, 1)) lose[nic] |= kReceives;
    }
  }
  return lose;
}

}  // namespace

size_t Plan::steps() const {
  size_t sum = 0;
  for (const Move& move : moves) sum += move.steps.size();
  return sum;
}

std::vector<PlaneWays> Allocator::OfferedTo(ConnectionId connection, const Draft& draft) const {
  std::vector<PlaneWays> offered(network_->planes());
  if (draft.ways_of == nullptr) return offered;
  for (PlaneId plane = 0; plane < network_->planes(); ++plane) {
    offered[plane] = draft.ways_of(connection, plane);
  }
  if (const auto taken = draft.taken.find(connection); taken != draft.taken.end()) {
    for (const Place& place : taken->second) TakePort(place.way, &offered[place.plane]);
  }
  return offered;
}

void Allocator::Shift(Flow flow, Place to, Draft* draft) {
  Connection& connection = connections_[flow.connection];
  draft->undo.emplace_back(flow, PlaceAt(connection, flow.queue_pair));
  SetPlace(&connection, flow.queue_pair, to);
}

// The accounts as they were before, and the difference as moves.
Plan Allocator::TakeBack(Draft* draft) {
  std::vector<std::tuple<ConnectionId, uint32_t, Place>> steps;
  for (auto undo = draft->undo.rbegin(); undo != draft->undo.rend(); ++undo) {
    const auto& [flow, from] = *undo;
    Connection& connection = connections_[flow.connection];
    steps.emplace_back(flow.connection, flow.queue_pair, PlaceAt(connection, flow.queue_pair));
    SetPlace(&connection, flow.queue_pair, from);
  }
  // Of several steps of a queue pair the last one counts, which came first here.
  const auto name = [](const auto& step) { return std::pair(std::get<0>(step), std::get<1>(step)); };
  std::stable_sort(steps.begin(), steps.end(),
                   [&](const auto& a, const auto& b) { return name(a) < name(b); });
  steps.erase(std::unique(steps.begin(), steps.end(),
                          [&](const auto& a, const auto& b) { return name(a) == name(b); }),
              steps.end());
  Plan plan;
  for (const auto& [number, queue_pair, to] : steps) {
    const Connection& connection = connections_[number];
    if (PlaceAt(connection, queue_pair) == to) continue;
    if (plan.moves.empty() || plan.moves.back().connection != number) {
      plan.moves.push_back({number, connection.epoch, {}});
    }
    plan.moves.back().steps.push_back({queue_pair, to});
  }
  plan.stranded = std::move(draft->stranded);
  return plan;
}

// Says no where nothing of it can be on a link that is down, at the price of a few looks.
bool Allocator::MightBeDown(const Connection& connection) const {
  for (PlaneId plane = 0; plane < network_->planes(); ++plane) {
    const Network::Port* const from = network_->FindPort(connection.from, plane);
    const Network::Port* const to = network_->FindPort(connection.to, plane);
    if (from == nullptr || to == nullptr) continue;
    if (!from->up[0] || !to->up[1] ||
        network_->RowAt(RowOf(Tier::kLeaf, from->leaf, Direction::kUp)).down != 0 ||
        network_->RowAt(RowOf(Tier::kLeaf, to->leaf, Direction::kDown)).down != 0) {
      return true;
    }
    if (network_->spine_links_down() != 0 && network_->PodOf(from->leaf) != network_->PodOf(to->leaf)) {
      return true;
    }
  }
  return false;
}

std::vector<Allocator::Flow> Allocator::Concerned(ConnectionId number, bool unplaced_too) const {
  std::vector<Flow> flows;
  const Connection& connection = connections_[number];
  for (uint32_t i = 0; i < connection.queue_pairs; ++i) {
    const Place place = PlaceAt(connection, i);
    if (place.way == kNoWay ? unplaced_too : !IsUp(connection, place)) flows.push_back({number, i});
  }
  return flows;
}

// All of them off first, so that each finds what is truly left. Each stays in its plane if it can.
void Allocator::Repair(const std::vector<Flow>& flows, Draft* draft) {
  std::vector<Place> before;
  for (const Flow& flow : flows) {
    before.push_back(PlaceAt(connections_[flow.connection], flow.queue_pair));
    Shift(flow, Place(), draft);
  }
  for (size_t i = 0; i < flows.size(); ++i) {
    const Connection& connection = connections_[flows[i].connection];
    std::vector<PlaneWays> offered = OfferedTo(flows[i].connection, *draft);
    Place to{before[i].plane, kNoWay};
    if (before[i].way != kNoWay) {
      const std::vector<Way>& ways = ChooseIn(connection, to.plane, 1, &offered[to.plane]);
      if (!ways.empty()) to.way = ways[0];
    }
    if (to.way == kNoWay) {
      std::array<uint32_t, kMostPlanes> here{};
      for (uint32_t k = 0; k < connection.queue_pairs; ++k) {
        if (const Place place = PlaceAt(connection, k); place.way != kNoWay) ++here[place.plane];
      }
      const std::vector<Place> places = Choose(connection, 1, &offered, here);
      if (!places.empty()) to = places[0];
    }
    if (to.way != kNoWay) {
      draft->taken[flows[i].connection].push_back(to);
      Shift(flows[i], to, draft);
      continue;
    }
    Shift(flows[i], before[i], draft);
    if (draft->stranded.empty() || draft->stranded.back() != flows[i].connection) {
      draft->stranded.push_back(flows[i].connection);
    }
  }
}

// By number. A link of a leaf concerns the leaf's own NICs, and few connections beside all that there are;
// one of a spine concerns pods, and all connections are looked at.
std::vector<ConnectionId> Allocator::ThatMayLose(bool acknowledgements) const {
  std::vector<ConnectionId> numbers;
  if (network_->spine_links_down() != 0) {
    for (ConnectionId number = 0; number < connections_.size(); ++number) {
      const Connection& connection = connections_[number];
      if (connection.from == kNobody || !connection.counted) continue;
      if (acknowledgements || MightBeDown(connection)) numbers.push_back(number);
    }
    return numbers;
  }
  const std::vector<uint8_t> lose = NicsThatLose(*network_);
  for (NicId nic = 0; nic < std::min(lose.size(), nics_.size()); ++nic) {
    for (const size_t end : {size_t{0}, size_t{1}}) {
      const int loses = acknowledgements ? kSends | kReceives : end == 0 ? kSends : kReceives;
      if ((lose[nic] & loses) == 0) continue;
      for (ConnectionId at = nics_[nic].first[end]; at != kNobody; at = connections_[at].next[end]) {
        numbers.push_back(at);
      }
    }
  }
  std::sort(numbers.begin(), numbers.end());
  numbers.erase(std::unique(numbers.begin(), numbers.end()), numbers.end());
  return numbers;
}

Plan Allocator::PlanRepair(const WaysOf& ways_of) {
  Draft draft{.ways_of = ways_of, .undo = {}, .taken = {}, .stranded = {}};
  std::vector<Flow> flows;
  for (const ConnectionId number : ThatMayLose(false)) {
    const std::vector<Flow> concerned = Concerned(number, false);
    flows.insert(flows.end(), concerned.begin(), concerned.end());
  }
  Repair(flows, &draft);
  return TakeBack(&draft);
}

absl::StatusOr<Plan> Allocator::PlanConnection(ConnectionId connection, const WaysOf& ways_of) {
  if (absl::Status fault = CheckConnection(connection); !fault.ok()) return fault;
  Draft draft{.ways_of = ways_of, .undo = {}, .taken = {}, .stranded = {}};
  Repair(Concerned(connection, true), &draft);
  return TakeBack(&draft);
}

// Whether paths of it can be in the rows of that link.
bool Allocator::MayTake(const Connection& connection, const Link& link) const {
  for (PlaneId plane = 0; plane < network_->planes(); ++plane) {
    const Network::Port* const from = network_->FindPort(connection.from, plane);
    const Network::Port* const to = network_->FindPort(connection.to, plane);
    if (from == nullptr || to == nullptr) continue;
    if (link.tier == Tier::kLeaf && (from->leaf == link.lower || to->leaf == link.lower)) return true;
    if (link.tier == Tier::kSpine) {
      const PodId pod = network_->PodOfSpine(link.lower);
      if ((network_->PodOf(from->leaf) == pod) != (network_->PodOf(to->leaf) == pod)) return true;
    }
  }
  return false;
}

// Queue pairs on links above their rows' even fill, the fullest links first.
std::vector<Allocator::Excess> Allocator::Overloaded(const Link* link) {
  // By tier, row and column: how much too full; 0: no matter.
  std::array<std::vector<std::vector<double>>, 2> excess;
  const auto look_at = [&](RowId row) {
    const Network::Row& links = network_->RowAt(row);
    if (links.up_kbps == 0) return;
    const std::vector<int64_t>& loads = accounts_.Loads(row);
    int64_t sum = 0;
    for (size_t i = 0; i < loads.size(); ++i) {
      if (links.inverse[i] != Network::kFullForEver) sum += loads[i];
    }
    const double even = static_cast<double>(sum) / static_cast<double>(links.up_kbps);
    std::vector<double>& of_row = excess[row.tier == Tier::kSpine ? 1 : 0][row.number];
    of_row.assign(loads.size(), 0);
    for (size_t i = 0; i < loads.size(); ++i) {
      if (links.inverse[i] == Network::kFullForEver) continue;
      const double fill = static_cast<double>(loads[i]) * links.inverse[i];
      if (fill > even * kWorthALook) of_row[i] = fill - even;
    }
  };
  for (const Tier tier : {Tier::kLeaf, Tier::kSpine}) {
    excess[tier == Tier::kSpine ? 1 : 0].resize(network_->rows(tier));
    for (uint32_t number = 0; number < network_->rows(tier); ++number) {
      if (link == nullptr || (link->tier == tier && link->lower == number / 2)) look_at({tier, number});
    }
  }
  std::vector<Excess> flows;
  for (ConnectionId number = 0; number < connections_.size(); ++number) {
    const Connection& connection = connections_[number];
    if (connection.from == kNobody || !connection.counted) continue;
    if (link != nullptr && !MayTake(connection, *link)) continue;
    for (uint32_t i = 0; i < connection.queue_pairs; ++i) {
      Excess worst{0, {}, {number, i}};
      Hops hops;
      const Place place = PlaceAt(connection, i);
      if (place.way == kNoWay || !HopsOf(connection, place, &hops)) continue;
      for (const Hop& hop : hops) {
        const std::vector<double>& of_row = excess[hop.row.tier == Tier::kSpine ? 1 : 0][hop.row.number];
        if (hop.column < of_row.size() && of_row[hop.column] > worst.fill) {
          worst.fill = of_row[hop.column];
          worst.hop = hop;
        }
      }
      if (worst.fill > 0 && IsUp(connection, place)) flows.push_back(worst);
    }
  }
  std::stable_sort(flows.begin(), flows.end(),
                   [](const Excess& a, const Excess& b) { return a.fill > b.fill; });
  return flows;
}

// To where it is better by half of what the queue pair fills: there, after the move, than here, before it.
// With kSum that lowers the sum of the squares of all links' fills, so that it ends.
bool Allocator::MoveOff(Flow flow, WayChooser::Aim aim, Draft* draft) {
  Connection& connection = connections_[flow.connection];
  const Place from = PlaceAt(connection, flow.queue_pair);
  Hops here;
  (void)HopsOf(connection, from, &here);
  const double with = chooser_.Fill(here, aim);
  std::vector<PlaneWays> offered = OfferedTo(flow.connection, *draft);
  SetPlace(&connection, flow.queue_pair, Place());
  const double grain = with - chooser_.Fill(here, aim);
  const std::vector<Way>& ways = ChooseIn(connection, from.plane, 1, &offered[from.plane], aim);
  SetPlace(&connection, flow.queue_pair, from);
  if (ways.empty() || ways[0] == from.way) return false;
  const Place to{from.plane, ways[0]};
  const size_t mark = draft->undo.size();
  Shift(flow, to, draft);
  Hops there;
  (void)HopsOf(connection, to, &there);
  if (chooser_.Fill(there, aim) <= with - grain / 2 && grain > with * kRounding) {
    draft->taken[flow.connection].push_back(to);
    return true;
  }
  SetPlace(&connection, flow.queue_pair, from);
  draft->undo.resize(mark);
  return false;
}

Plan Allocator::PlanEven(size_t most_steps, const Link* link, const WaysOf& ways_of) {
  Draft draft{.ways_of = ways_of, .undo = {}, .taken = {}, .stranded = {}};
  if (link != nullptr && !network_->Find(*link).ok()) return {};
  if (link != nullptr && link->tier == Tier::kPort) {
    EvenPlanes(link->lower, most_steps, &draft);
    return TakeBack(&draft);
  }
  // A leaf whose link has come back is rarely the fullest one, and shall use it nevertheless. Where the whole
  // network is meant, only the fullest links are worth a move.
  const WayChooser::Aim aim = link == nullptr ? WayChooser::Aim::kFullest : WayChooser::Aim::kSum;
  while (draft.undo.size() < most_steps && EvenOnce(most_steps, link, aim, &draft)) {
  }
  return TakeBack(&draft);
}

bool Allocator::EvenOnce(size_t most_steps, const Link* link, WayChooser::Aim aim, Draft* draft) {
  bool any = false;
  for (const Excess& over : Overloaded(link)) {
    if (draft->undo.size() >= most_steps) break;
    // Others may have left the link since.
    const Network::Row& row = network_->RowAt(over.hop.row);
    const double even = static_cast<double>(accounts_.Total(over.hop.row)) / static_cast<double>(row.up_kbps);
    const double fill = static_cast<double>(accounts_.Load(over.hop)) * row.inverse[over.hop.column];
    if (fill > even * kWorthALook && MoveOff(over.flow, aim, draft)) any = true;
  }
  return any;
}

void Allocator::EvenPlanes(NicId nic, size_t most_steps, Draft* draft) {
  for (ConnectionId number = 0; number < connections_.size(); ++number) {
    const Connection& connection = connections_[number];
    if ((connection.from != nic && connection.to != nic) || connection.from == kNobody ||
        !connection.counted) {
      continue;
    }
    for (uint32_t i = 0; i < connection.queue_pairs && draft->undo.size() < most_steps; ++i) {
      const Place from = PlaceAt(connection, i);
      if (from.way == kNoWay) continue;
      std::array<uint32_t, kMostPlanes> here{};
      for (uint32_t k = 0; k < connection.queue_pairs; ++k) {
        if (const Place place = PlaceAt(connection, k); place.way != kNoWay) ++here[place.plane];
      }
      --here[from.plane];
      std::vector<PlaneWays> offered = OfferedTo(number, *draft);
      const std::vector<Place> places = Choose(connection, 1, &offered, here);
      if (places.empty()) continue;
      const Place to = places[0];
      // Only where it evens out: not an odd one to and fro.
      if (to.plane == from.plane || here[to.plane] + 1 > here[from.plane]) continue;
      draft->taken[number].push_back(to);
      Shift({number, i}, to, draft);
    }
  }
}

}  // namespace c4::c4p
