// The book's changes after an answer: what was learnt makes connections better, and what changed in the
// network moves them.
#include <algorithm>
#include <utility>

#include "c4p_master/path_book.h"
#include "service/text.h"

namespace c4::c4p {
namespace {

// By then the ports that a connection brought from another master have been probed, or cannot be.
constexpr int64_t kAdoptNs = 10'000'000'000;

}  // namespace

std::vector<service::IpTuple> PathBook::ToAdopt() const {
  std::vector<service::IpTuple> tuples;
  for (const std::string& name : adopting_) {
    const Connection& connection = connections_.at(name);
    for (const QueuePair& pair : connection.pairs) {
      if (const auto tuple = TupleToAdopt(connection, pair)) tuples.push_back(*tuple);
    }
  }
  return tuples;
}

bool PathBook::Adopt(Connection* connection, int64_t now_ns) {
  const bool time_is_up = now_ns - connection->taken_over_ns >= kAdoptNs;
  std::vector<Place> places(connection->pairs.size());
  for (size_t i = 0; i < places.size(); ++i) {
    const std::optional<service::IpTuple> tuple = TupleToAdopt(*connection, connection->pairs[i]);
    if (!tuple || !options_.ports.Of(tuple->protocol).Holds(tuple->source_port)) continue;
    places[i] = PlaceOfTuple(*tuple, now_ns);
    if (places[i].way == kNoWay && !time_is_up) return false;
  }
  const std::optional<ConnectionRequest> request = RequestOf(connection, OfferOf(*connection, now_ns));
  if (!request && !time_is_up) return false;
  adopting_.erase(connection->request.connection());
  connection->kept = request && allocator_.Admit(*request).ok();
  if (!connection->kept) return true;
  for (size_t i = 0; i < places.size(); ++i) {
    if (places[i].way == kNoWay) continue;
    QueuePair& pair = connection->pairs[i];
    const service::IpTuple tuple = *TupleToAdopt(*connection, pair);
    const auto end = std::find(connection->sources.begin(), connection->sources.end(), tuple.source);
    if (end == connection->sources.end()) continue;
    SetPort(connection, i, static_cast<uint32_t>(end - connection->sources.begin()), tuple.source_port);
    pair.place = places[i];
    (void)allocator_.Account(connection->number, static_cast<uint32_t>(i), pair.place);
  }
  SetComplete(connection, IsComplete(*connection, OfferOf(*connection, now_ns)));
  return true;
}

std::optional<Advice> PathBook::Better(Connection* connection, int64_t now_ns) {
  if (connection->complete || connection->session == 0) return std::nullopt;
  if (adopting_.contains(connection->request.connection()) &&
      (!Adopt(connection, now_ns) || connection->complete))
    return std::nullopt;
  const bool any = std::any_of(connection->pairs.begin(), connection->pairs.end(),
                               [](const QueuePair& pair) { return pair.advised_port != 0; });
  if (connection->kept && any) return Fill(connection, now_ns);
  std::vector<std::pair<uint32_t, uint32_t>> before;
  std::vector<std::vector<std::string>> from;
  for (const QueuePair& pair : connection->pairs) {
    before.emplace_back(pair.end, pair.advised_port);
    from.push_back(LinksOf(*connection, pair, now_ns));
  }
  (void)Allot(connection, now_ns);
  std::vector<std::pair<uint32_t, uint32_t>> after;
  bool ports = false;
  for (const QueuePair& pair : connection->pairs) {
    after.emplace_back(pair.end, pair.advised_port);
    ports = ports || pair.advised_port != 0;
  }
  if (!ports || before == after) return std::nullopt;
  ++connection->epoch;
  Changed(*connection);
  Advice advice{connection->session, AnswerFor(*connection, now_ns)};
  for (uint32_t i = 0; i < connection->pairs.size(); ++i) {
    if (before[i] == after[i]) continue;
    Shift shift = ShiftTo(*connection, i, connection->pairs[i].place, now_ns);
    shift.from = std::move(from[i]);
    advice.shifts.push_back(std::move(shift));
  }
  return advice;
}

PlaneWays PathBook::WaysNow(ConnectionId number, PlaneId plane, int64_t now_ns) const {
  const Connection& connection = connections_.at(names_.at(number));
  const std::vector<PlaneWays> ways = WaysOf(connection, OfferOf(connection, now_ns));
  return plane < ways.size() ? ways[plane] : PlaneWays{.all = false, .ways = {}};
}

std::optional<Advice> PathBook::Fill(Connection* connection, int64_t now_ns) {
  // One that is where the kernel's choice led it may move as well.
  for (size_t i = 0; i < connection->pairs.size(); ++i) {
    if (connection->pairs[i].advised_port != 0) continue;
    connection->pairs[i].place = Place();
    (void)allocator_.Account(connection->number, static_cast<uint32_t>(i), Place());
  }
  const absl::StatusOr<Plan> plan = allocator_.PlanConnection(
      connection->number, [&](ConnectionId number, PlaneId plane) { return WaysNow(number, plane, now_ns); });
  std::optional<Advice> advice;
  if (plan.ok()) {
    for (const Move& move : plan->moves) advice = Carry(move, now_ns);
  }
  SetComplete(connection, IsComplete(*connection, OfferOf(*connection, now_ns)));
  return advice;
}

std::vector<Advice> PathBook::Improve(const std::set<FlowGroup>& groups, int64_t now_ns) {
  std::vector<Advice> advice;
  const std::vector<Connection*> incomplete(incomplete_.begin(),
                                            incomplete_.end());  // some will not be any more
  for (Connection* const connection : incomplete) {
    bool concerned = false;
    for (size_t end = 0; end < connection->sources.size(); ++end) {
      concerned = concerned || groups.contains(GroupOfEnd(*connection, end));
    }
    if (!concerned) continue;
    if (std::optional<Advice> better = Better(connection, now_ns)) advice.push_back(*std::move(better));
  }
  return advice;
}

// From where it is.
Shift PathBook::ShiftTo(const Connection& connection, uint32_t queue_pair, Place to, int64_t now_ns) const {
  const QueuePair& pair = connection.pairs[queue_pair];
  uint32_t end = pair.end;
  for (uint32_t other = 0; other < connection.sources.size(); ++other) {
    if (PlaneOf(connection, end) != to.plane && PlaneOf(connection, other) == to.plane) end = other;
  }
  return {connection.request.job(), connection.request.connection(), queue_pair,
          LinksOf(connection, pair, now_ns),
          view_->NamesOf(connection.sources[end], connection.destinations[end], to.plane, to.way)};
}

std::vector<Shift> PathBook::ShiftsOf(const Plan& plan, int64_t now_ns) const {
  std::vector<Shift> shifts;
  for (const Move& move : plan.moves) {
    const Connection& connection = connections_.at(names_.at(move.connection));
    for (const Step& step : move.steps)
      shifts.push_back(ShiftTo(connection, step.queue_pair, step.to, now_ns));
  }
  return shifts;
}

std::optional<Advice> PathBook::Carry(const Move& move, int64_t now_ns) {
  Connection& connection = connections_.at(names_.at(move.connection));
  if (connection.session == 0 || !allocator_.Apply(move).ok()) return std::nullopt;
  Offer offer = OfferOf(connection, now_ns);
  std::vector<Shift> shifts;
  for (const Step& step : move.steps) {
    shifts.push_back(ShiftTo(connection, step.queue_pair, step.to, now_ns));
    connection.pairs[step.queue_pair].place = step.to;
    std::vector<Port>& ports = offer[{step.to.plane, step.to.way}];
    if (ports.empty()) continue;
    SetPort(&connection, step.queue_pair, ports.front().end, ports.front().port);
    ports.erase(ports.begin());
  }
  ++connection.epoch;
  Changed(connection);
  return Advice{connection.session, AnswerFor(connection, now_ns), std::move(shifts)};
}

PathBook::Carried PathBook::CarryOut(const Plan& plan, size_t most, int64_t now_ns) {
  Carried carried;
  for (const Move& move : plan.moves) {
    if (carried.moves >= most) {
      carried.all = false;
      break;
    }
    std::optional<Advice> moved = Carry(move, now_ns);
    if (!moved) continue;
    carried.moves += moved->shifts.size();
    carried.advice.push_back(*std::move(moved));
  }
  return carried;
}

PathBook::Carried PathBook::Repair(size_t most, bool held, int64_t now_ns) {
  // Whose acknowledgements alone take such a link is on a link that is used.
  size_t left = most;
  const std::set<FlowGroup> unacknowledged = LetGoUnacknowledged(&left, held, now_ns);
  const Plan plan = allocator_.PlanRepair(
      [&](ConnectionId number, PlaneId plane) { return WaysNow(number, plane, now_ns); });
  Carried carried = CarryOut(plan, most, now_ns);
  for (const ConnectionId number : plan.stranded) {
    connections_.at(names_.at(number)).why =
        held ? "no other path is known: it stays on a link that is held back"
             : "no path is left: all that are known are down";
  }
  for (Advice& better : Improve(unacknowledged, now_ns)) {
    carried.moves += better.shifts.size();
    carried.advice.push_back(std::move(better));
  }
  if (left == 0) carried.all = false;
  return carried;
}

PathBook::Carried PathBook::Even(const Link& link, size_t most, int64_t now_ns) {
  const Plan plan = allocator_.PlanEven(
      most, &link, [&](ConnectionId number, PlaneId plane) { return WaysNow(number, plane, now_ns); });
  Carried carried = CarryOut(plan, SIZE_MAX, now_ns);
  carried.all = plan.steps() < most;
  return carried;
}

std::vector<Shift> PathBook::WouldRepair(std::vector<std::string>* stranded, int64_t now_ns) {
  const Plan plan = allocator_.PlanRepair(
      [&](ConnectionId number, PlaneId plane) { return WaysNow(number, plane, now_ns); });
  for (const ConnectionId number : plan.stranded) stranded->push_back(names_.at(number));
  return ShiftsOf(plan, now_ns);
}

std::vector<Shift> PathBook::WouldEven(const std::vector<Link>& links, int64_t now_ns) {
  std::vector<Shift> shifts;
  for (const Link& link : links) {
    const Plan plan = allocator_.PlanEven(
        SIZE_MAX, &link, [&](ConnectionId number, PlaneId plane) { return WaysNow(number, plane, now_ns); });
    for (Shift& shift : ShiftsOf(plan, now_ns)) shifts.push_back(std::move(shift));
  }
  return shifts;
}

std::vector<Advice> PathBook::Remap(const std::map<FlowGroup, std::set<uint16_t>>& known, int64_t now_ns) {
  std::set<FlowGroup> groups;
  for (const auto& [group, ports] : known) {
    groups.insert(group);
    known_[group] = ports;
  }
  for (auto& [name, connection] : connections_) {
    for (size_t i = 0; i < connection.pairs.size(); ++i) {
      const QueuePair& pair = connection.pairs[i];
      const auto found = known.find(GroupOfEnd(connection, pair.end));
      if (found == known.end() || found->second.contains(static_cast<uint16_t>(pair.advised_port))) continue;
      LetGo(&connection, i);
    }
  }
  return Improve(groups, now_ns);
}

std::set<FlowGroup> PathBook::Wanting() const {
  std::set<FlowGroup> groups;
  for (const Connection* const connection : incomplete_) {
    if (connection->session == 0) continue;
    for (size_t end = 0; end < connection->sources.size(); ++end) {
      if (!SameLeaf(*connection, end)) groups.insert(GroupOfEnd(*connection, end));
    }
  }
  return groups;
}

std::set<FlowGroup> PathBook::GroupsAt(LeafId leaf) const {
  const auto hangs = [&](service::IpAddress address) {
    const AddressPlace* const place = view_->Find(address);
    const Network::Port* const port =
        place == nullptr ? nullptr : view_->network().FindPort(place->nic, place->plane);
    return port != nullptr && port->leaf == leaf;
  };
  std::set<FlowGroup> groups;
  for (const auto& [name, connection] : connections_) {
    for (size_t end = 0; end < connection.sources.size(); ++end) {
      if (SameLeaf(connection, end)) continue;
      if (hangs(connection.sources[end]) || hangs(connection.destinations[end])) {
        groups.insert(GroupOfEnd(connection, end));
      }
    }
  }
  return groups;
}

std::set<FlowGroup> PathBook::InUse() const {
  std::set<FlowGroup> groups;
  for (const auto& [name, connection] : connections_) {
    for (size_t end = 0; end < connection.sources.size(); ++end) groups.insert(GroupOfEnd(connection, end));
  }
  return groups;
}

void PathBook::ForgetPorts() {
  const std::set<FlowGroup> used = InUse();
  std::erase_if(known_, [&](const auto& entry) {
    const FlowGroup& group = entry.first;
    const auto seen = [&](uint16_t port) { return catalogue_->probed().SeenNs(WithPort(group, port)) != 0; };
    return !used.contains(group) && std::none_of(entry.second.begin(), entry.second.end(), seen);
  });
}

void PathBook::ForgetDead(const Connection& connection) {
  for (uint32_t i = 0; i < connection.pairs.size(); ++i) dead_.erase({connection.number, i});
}

std::string PathBook::NameOfADeadOne() const {
  return dead_.empty()
             ? ""
             : service::Concat(names_.at(dead_.begin()->first), ", queue pair ", dead_.begin()->second);
}

}  // namespace c4::c4p
