// The book's changes after an answer: what was learnt makes connections better, and what changed in the
// network moves them.
#include <algorithm>
#include <utility>

#include "c4p_master/path_book.h"
#include "service/text.h"

namespace c4::c4p {
namespace {

// Queue pairs that move at a time when a link has come back.
constexpr size_t kMostEvenSteps = 1024;
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
  for (const QueuePair& pair : connection->pairs) before.emplace_back(pair.end, pair.advised_port);
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
  return Advice{connection->session, AnswerFor(*connection, now_ns)};
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

std::optional<Advice> PathBook::Carry(const Move& move, int64_t now_ns) {
  Connection& connection = connections_.at(names_.at(move.connection));
  if (connection.session == 0 || !allocator_.Apply(move).ok()) return std::nullopt;
  Offer offer = OfferOf(connection, now_ns);
  for (const Step& step : move.steps) {
    connection.pairs[step.queue_pair].place = step.to;
    std::vector<Port>& ports = offer[{step.to.plane, step.to.way}];
    if (ports.empty()) continue;
    SetPort(&connection, step.queue_pair, ports.front().end, ports.front().port);
    ports.erase(ports.begin());
  }
  ++connection.epoch;
  Changed(connection);
  return Advice{connection.session, AnswerFor(connection, now_ns)};
}

std::vector<Advice> PathBook::Repair(const std::vector<LinkChange>& changes, int64_t now_ns) {
  const c4p::WaysOf ways_of = [&](ConnectionId number, PlaneId plane) {
    return WaysNow(number, plane, now_ns);
  };
  std::vector<Plan> plans;
  std::vector<Advice> advice;
  const auto carry = [&](const Plan& plan) {
    for (const Move& move : plan.moves) {
      if (std::optional<Advice> moved = Carry(move, now_ns)) advice.push_back(*std::move(moved));
    }
    for (const ConnectionId number : plan.stranded) {
      connections_.at(names_.at(number)).why = "no path is left: all that are known are down";
    }
  };
  const bool down =
      std::any_of(changes.begin(), changes.end(), [](const LinkChange& change) { return !change.up; });
  if (down) {
    // Whose acknowledgements alone are lost is on a link that is up.
    const std::set<FlowGroup> unacknowledged = LetGoUnacknowledged(now_ns);
    carry(allocator_.PlanRepair(ways_of));
    for (Advice& better : Improve(unacknowledged, now_ns)) advice.push_back(std::move(better));
  }
  for (const LinkChange& change : changes) {
    if (change.up) carry(allocator_.PlanEven(kMostEvenSteps, &change.link, ways_of));
  }
  return advice;
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
