// The book's source ports: which of them lead where, and whose they are.
#include <algorithm>
#include <utility>

#include "c4p_master/path_book.h"

namespace c4::c4p {
namespace {

// Of a hash whose model is known, so many ports that nobody probed are looked at.
constexpr size_t kPredictedPorts = 256;

}  // namespace

PathBook::Offer PathBook::OfferOf(const Connection& connection, int64_t now_ns) const {
  Offer offer;
  for (size_t end = 0; end < connection.sources.size(); ++end) {
    const FlowGroup group = GroupOfEnd(connection, end);
    const auto known = known_.find(group);
    std::vector<uint16_t> ports;
    if (known != known_.end()) ports.assign(known->second.begin(), known->second.end());
    // A model, or the operator, may know ports that nobody has probed.
    const PortRange& range = options_.ports.Of(group.tuple.protocol);
    for (uint32_t port = range.low; port <= range.high && ports.size() < kPredictedPorts; port += 31) {
      const auto found = catalogue_->Find(WithPort(group, static_cast<uint16_t>(port)), now_ns);
      if (!found || found->origin == PathOrigin::kProbed) break;
      ports.push_back(static_cast<uint16_t>(port));
    }
    for (const uint16_t port : ports) {
      if (!PortsOf(group.tuple.protocol).IsFree(connection.sources[end], port)) continue;
      Place place;
      const Port one = PortAt(end, WithPort(group, port), &place, now_ns);
      if (place.way != kNoWay) offer[{place.plane, place.way}].push_back(one);
    }
  }
  for (auto& [place, ports] : offer) {
    std::stable_partition(ports.begin(), ports.end(), [](const Port& port) { return port.shares_fate; });
  }
  return offer;
}

Place PathBook::PlaceOfTuple(const service::IpTuple& tuple, int64_t now_ns) const {
  if (!DirectLinks(tuple.source, tuple.destination).empty())
    return {view_->Find(tuple.source)->plane, kDirect};
  if (catalogue_->HealthOf(tuple) == Health::kDead) return {};
  const auto path = catalogue_->Links(view_->topology(), tuple, now_ns);
  if (!path.ok() || !path->has_value()) return {};
  const auto [plane, way] = view_->PlaceOf(**path);
  return {plane, way};
}

PathBook::Port PathBook::PortAt(size_t end, const service::IpTuple& tuple, Place* place,
                                int64_t now_ns) const {
  *place = LosesAcknowledgements(tuple, now_ns) ? Place() : PlaceOfTuple(tuple, now_ns);
  const auto acknowledgements = AcknowledgementsOf(tuple);
  return {static_cast<uint32_t>(end), tuple.source_port,
          acknowledgements && place->way != kNoWay && PlaceOfTuple(*acknowledgements, now_ns) == *place};
}

bool PathBook::LosesAcknowledgements(const service::IpTuple& tuple, int64_t now_ns) const {
  const auto acknowledgements = AcknowledgementsOf(tuple);
  if (!acknowledgements) return false;
  const Place place = PlaceOfTuple(*acknowledgements, now_ns);
  return place.way != kNoWay && !IsUp(acknowledgements->source, acknowledgements->destination, place);
}

bool PathBook::IsUp(service::IpAddress from, service::IpAddress to, Place place) const {
  const auto leaf_of = [&](service::IpAddress address) {
    const AddressPlace* const at = view_->Find(address);
    const Network::Port* const port =
        at == nullptr ? nullptr : view_->network().FindPort(at->nic, place.plane);
    return port == nullptr ? kNobody : port->leaf;
  };
  const LeafId source = leaf_of(from);
  const LeafId destination = leaf_of(to);
  if (place.way == kDirect || source == kNobody || destination == kNobody) return true;
  Hops hops;
  return !view_->network().HopsOf(source, destination, place.way, &hops) || view_->network().IsUp(hops);
}

void PathBook::LetGo(Connection* connection, size_t index) {
  QueuePair& pair = connection->pairs[index];
  SetComplete(connection, false);
  SetPort(connection, index, pair.end, 0);
  pair.place = Place();
  if (connection->kept) (void)allocator_.Account(connection->number, static_cast<uint32_t>(index), Place());
}

std::set<FlowGroup> PathBook::LetGoUnacknowledged(size_t* left, bool for_better, int64_t now_ns) {
  std::set<FlowGroup> groups;
  for (const ConnectionId number : allocator_.ThatMayLose(true)) {
    Connection& connection = connections_.at(names_.at(number));
    for (size_t i = 0; i < connection.pairs.size() && *left > 0; ++i) {
      const QueuePair& pair = connection.pairs[i];
      if (pair.advised_port == 0) continue;
      const FlowGroup group = GroupOfEnd(connection, pair.end);
      if (!LosesAcknowledgements(WithPort(group, static_cast<uint16_t>(pair.advised_port)), now_ns)) continue;
      if (for_better && OfferOf(connection, now_ns).empty()) {
        SetComplete(&connection, false);  // more ports are asked for
        continue;
      }
      LetGo(&connection, i);
      --*left;
      groups.insert(group);
    }
  }
  return groups;
}

std::vector<PlaneWays> PathBook::WaysOf(const Connection& connection, const Offer& offer) const {
  std::vector<PlaneWays> ways(view_->network().planes());
  for (PlaneWays& plane : ways) plane.all = false;
  for (const auto& [place, ports] : offer) {
    if (place.first >= ways.size()) continue;
    ways[place.first].ways.push_back({place.second, static_cast<uint32_t>(ports.size())});
  }
  for (size_t end = 0; end < connection.sources.size(); ++end) {
    const PlaneId plane = PlaneOf(connection, end);
    if (plane < ways.size() && SameLeaf(connection, end)) ways[plane] = PlaneWays();
  }
  return ways;
}

void PathBook::SetPort(Connection* connection, size_t index, uint32_t end, uint32_t port) {
  QueuePair& pair = connection->pairs[index];
  PortPool& ports = PortsOf(ProtocolOf(connection->request));
  Changed(*connection);
  if (pair.advised_port != 0) ports.Release(connection->sources[pair.end], pair.advised_port);
  pair.end = end;
  pair.advised_port = port;
  if (port != 0) ports.Take(connection->sources[end], port);
}

// A port that is in use is not given to another queue pair, even if this one is advised to leave it: both
// would want it for a moment, and one of them would have to take any.
void PathBook::SetTuple(QueuePair* pair, const std::optional<service::IpTuple>& tuple) {
  if (pair->tuple) PortsOf(pair->tuple->protocol).Release(pair->tuple->source, pair->tuple->source_port);
  pair->tuple = tuple;
  if (tuple) PortsOf(tuple->protocol).Take(tuple->source, tuple->source_port);
}

void PathBook::DropPorts(Connection* connection) {
  for (size_t i = 0; i < connection->pairs.size(); ++i) {
    SetPort(connection, i, connection->pairs[i].end, 0);
    SetTuple(&connection->pairs[i], std::nullopt);
  }
}

// Whether more ports could make it better: a queue pair has none, or a way is lacking.
bool PathBook::IsComplete(const Connection& connection, const Offer& offer) const {
  for (const QueuePair& pair : connection.pairs) {
    if (pair.place.way == kNoWay) return false;
  }
  for (size_t end = 0; end < connection.sources.size(); ++end) {
    if (SameLeaf(connection, end)) continue;
    const int from = view_->topology().NicAt(connection.sources[end]);
    const int to = view_->topology().NicAt(connection.destinations[end]);
    std::set<std::pair<PlaneId, Way>> ways;
    for (const auto& [place, ports] : offer) ways.insert(place);
    for (const QueuePair& pair : connection.pairs) ways.insert({pair.place.plane, pair.place.way});
    const int possible = from < 0 || to < 0 ? 0 : view_->topology().PossiblePaths(from, to);
    const Steering steering = catalogue_->SteeringOf(GroupOfEnd(connection, end), possible);
    const bool steers = steering == Steering::kNotKnown || steering == Steering::kByPort;
    if (steers && static_cast<int>(ways.size()) < possible) return false;
  }
  return true;
}

}  // namespace c4::c4p
