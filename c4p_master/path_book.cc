#include "c4p_master/path_book.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "service/status.h"
#include "service/text.h"

namespace c4::c4p {
namespace {

using service::Concat;
using service::IpAddress;

constexpr size_t kMostEnds = 4;

const std::string& TenantOf(const v1::PathRequest& request) {
  return request.tenant().empty() ? request.job() : request.tenant();
}

}  // namespace

absl::Status PathBook::Read(const v1::PathRequest& request, Connection* connection) const {
  const auto refuse = [&](const auto&... words) {
    return absl::InvalidArgumentError(Concat("connection ", request.connection(), ": ", words...));
  };
  if (request.connection().empty()) return refuse("it has no name");
  if (request.queue_pairs() < 1 || request.queue_pairs() > kMostQueuePairs) {
    return refuse(request.queue_pairs(), " queue pairs: ask for 1 to ", kMostQueuePairs);
  }
  if (request.ends_size() < 1 || static_cast<size_t>(request.ends_size()) > kMostEnds) {
    return refuse(request.ends_size(), " planes: give the two ends of 1 to ", kMostEnds);
  }
  if (request.destination_port() < 1 || request.destination_port() > UINT16_MAX) {
    return refuse("the destination port is ", request.destination_port());
  }
  if (request.protocol() != v1::IP_PROTOCOL_TCP && request.protocol() != v1::IP_PROTOCOL_UDP) {
    return refuse("its protocol is neither TCP nor UDP");
  }
  if (!(request.demand_mbps() >= 0) || std::isinf(request.demand_mbps())) {
    return refuse("a demand of ", request.demand_mbps(), " Mbit/s");
  }
  connection->sources.clear();
  connection->destinations.clear();
  for (const v1::PathEnds& ends : request.ends()) {
    const std::optional<IpAddress> source = service::ParseIp(ends.source());
    const std::optional<IpAddress> destination = service::ParseIp(ends.destination());
    if (!source || !destination || source->is_v4() != destination->is_v4()) {
      return refuse(ends.source(), " to ", ends.destination(), " are no two addresses of one IP version");
    }
    connection->sources.push_back(*source);
    connection->destinations.push_back(*destination);
  }
  connection->request = request;
  return absl::OkStatus();
}

absl::StatusOr<v1::PathAnswer> PathBook::Request(SessionId session, const v1::PathRequest& request,
                                                 int64_t now_ns) {
  Connection read;
  C4_RETURN_IF_NOT_OK(Read(request, &read));
  const auto [at, added] = connections_.try_emplace(request.connection());
  Connection& connection = at->second;
  if (!added && connection.session != 0 && connection.session != session) {
    return absl::InvalidArgumentError(
        Concat("connection ", request.connection(), " is another agent's, which is in session"));
  }
  if (added) connection.request = std::move(read.request);
  if (absl::Status full = SetSession(&connection, session); !full.ok()) {
    if (added) connections_.erase(at);
    return full;
  }
  connection.renewed_ns = now_ns;
  if (added) {
    Register(&connection);
    connection.sources = std::move(read.sources);
    connection.destinations = std::move(read.destinations);
    connection.pairs.resize(request.queue_pairs());
    SetComplete(&connection, false);
  }
  // Asked again: its agent or this master came back. What was answered still holds.
  if (added || connection.epoch == 0) {
    (void)Allot(&connection, now_ns);
    ++connection.epoch;
    Changed(connection);
  }
  return AnswerFor(connection, now_ns);
}

absl::Status PathBook::SetSession(Connection* connection, SessionId session) {
  if (connection->session == session) return absl::OkStatus();
  if (session != 0) {
    size_t& held = held_[session];
    if (held >= kMostConnections) {
      return absl::ResourceExhaustedError(
          Concat("connection ", connection->request.connection(), ": this agent has ", held,
                 " connections, which is the most; those that are over are to "
                 "be said to be closed"));
    }
    ++held;
  }
  if (connection->session != 0 && --held_[connection->session] == 0) held_.erase(connection->session);
  connection->session = session;
  return absl::OkStatus();
}

void PathBook::SetComplete(Connection* connection, bool complete) {
  connection->complete = complete;
  if (complete) {
    incomplete_.erase(connection);
  } else {
    incomplete_.insert(connection);
  }
}

void PathBook::Register(Connection* connection) {
  if (free_numbers_.empty()) {
    connection->number = next_number_++;
  } else {
    connection->number = free_numbers_.back();
    free_numbers_.pop_back();
  }
  names_[connection->number] = connection->request.connection();
  connection->tenant = tenants_.Take(TenantOf(connection->request));
}

FlowGroup PathBook::GroupOfEnd(const Connection& connection, size_t end) const {
  service::IpTuple tuple;
  tuple.protocol = ProtocolOf(connection.request);
  tuple.source = connection.sources[end];
  tuple.destination = connection.destinations[end];
  tuple.destination_port = static_cast<uint16_t>(connection.request.destination_port());
  return GroupOf(tuple);
}

PlaneId PathBook::PlaneOf(const Connection& connection, size_t end) const {
  const AddressPlace* const from = view_->Find(connection.sources[end]);
  const AddressPlace* const to = view_->Find(connection.destinations[end]);
  if (from == nullptr || to == nullptr || from->plane != to->plane) return kNobody;
  return from->plane;
}

bool PathBook::SameLeaf(const Connection& connection, size_t end) const {
  const PlaneId plane = PlaneOf(connection, end);
  if (plane == kNobody) return false;
  const Network::Port* const from =
      view_->network().FindPort(view_->Find(connection.sources[end])->nic, plane);
  const Network::Port* const to =
      view_->network().FindPort(view_->Find(connection.destinations[end])->nic, plane);
  return from != nullptr && to != nullptr && from->leaf == to->leaf;
}

std::optional<ConnectionRequest> PathBook::RequestOf(Connection* connection, const Offer& offer) {
  const AddressPlace* const from = view_->Find(connection->sources.front());
  const AddressPlace* const to = view_->Find(connection->destinations.front());
  for (const auto& [place, address] :
       {std::pair(from, connection->sources.front()), std::pair(to, connection->destinations.front())}) {
    if (place != nullptr) continue;
    connection->why =
        Concat(service::IpText(address), view_->Knows(address)
                                             ? " hangs on a leaf that probing has not found yet"
                                             : " is no NIC that an agent or the topology file has told of");
    return std::nullopt;
  }
  ConnectionRequest request;
  request.connection = connection->number;
  request.tenant = connection->tenant;
  request.from = from->nic;
  request.to = to->nic;
  request.queue_pairs = static_cast<uint32_t>(connection->pairs.size());
  request.demand_mbps = connection->request.demand_mbps();
  request.available = WaysOf(*connection, offer);
  return request;
}

bool PathBook::Allot(Connection* connection, int64_t now_ns) {
  if (connection->kept) (void)allocator_.Release(connection->number);
  connection->kept = false;
  SetComplete(connection, false);
  for (size_t i = 0; i < connection->pairs.size(); ++i) {
    QueuePair& pair = connection->pairs[i];
    pair.place = Place();
    if (pair.advised_port == 0) pair.end = static_cast<uint32_t>(i % connection->sources.size());
  }
  Offer offer = OfferOf(*connection, now_ns);
  Offer with_own = offer;
  std::vector<Place> own(connection->pairs.size());  // where the ports that it has lead
  for (size_t i = 0; i < connection->pairs.size(); ++i) {
    const QueuePair& pair = connection->pairs[i];
    const FlowGroup group = GroupOfEnd(*connection, pair.end);
    const auto known = known_.find(group);
    const auto port = static_cast<uint16_t>(pair.advised_port);
    if (port == 0 || known == known_.end() || !known->second.contains(port)) continue;
    const Port own_port = PortAt(pair.end, WithPort(group, port), &own[i], now_ns);
    if (own[i].way != kNoWay) with_own[{own[i].plane, own[i].way}].push_back(own_port);
  }
  const std::optional<ConnectionRequest> request = RequestOf(connection, with_own);
  if (!request) return false;
  const absl::StatusOr<Allocation> given = allocator_.Allocate(*request);
  if (!given.ok()) {
    connection->why = std::string(given.status().message());
    if (offer.empty())
      connection->why = "no port's path is known yet: the kernel chooses, and probing has been asked for";
    connection->kept = allocator_.Admit(*request).ok();
    return false;
  }
  connection->kept = true;
  connection->why = given->why;
  for (size_t i = 0; i < connection->pairs.size(); ++i) {
    const Place place = given->queue_pairs[i];
    connection->pairs[i].place = place;
    if (own[i].way != kNoWay && own[i] == place) continue;
    std::vector<Port>& ports = offer[{place.plane, place.way}];
    if (!ports.empty()) {
      SetPort(connection, i, ports.front().end, ports.front().port);
      ports.erase(ports.begin());
      continue;
    }
    uint32_t end = connection->pairs[i].end;
    for (size_t other = 0; other < connection->sources.size(); ++other) {
      if (PlaneOf(*connection, other) == place.plane) end = static_cast<uint32_t>(other);
    }
    SetPort(connection, i, end, 0);
  }
  SetComplete(connection, IsComplete(*connection, with_own));
  return true;
}

v1::PathAnswer PathBook::AnswerFor(const Connection& connection, int64_t now_ns) const {
  v1::PathAnswer answer;
  answer.set_connection(connection.request.connection());
  answer.set_epoch(connection.epoch);
  answer.set_why(connection.why);
  for (size_t i = 0; i < connection.pairs.size(); ++i) {
    const QueuePair& pair = connection.pairs[i];
    v1::QueuePairPath* const path = answer.add_paths();
    path->set_index(static_cast<uint32_t>(i));
    path->set_plane(pair.end);
    path->set_source_port(pair.advised_port);
    for (std::string& link : LinksOf(connection, pair, now_ns)) path->add_links(std::move(link));
  }
  return answer;
}

std::vector<std::string> PathBook::LinksOf(const Connection& connection, const QueuePair& pair,
                                           int64_t now_ns) const {
  const bool advised = !pair.tuple || pair.tuple->source_port == pair.advised_port;
  if (advised && pair.place.way != kNoWay) {
    return view_->NamesOf(connection.sources[pair.end], connection.destinations[pair.end], pair.place.plane,
                          pair.place.way);
  }
  if (!pair.tuple) return {};
  std::vector<std::string> direct = DirectLinks(pair.tuple->source, pair.tuple->destination);
  if (!direct.empty()) return direct;
  const auto path = catalogue_->Links(view_->topology(), *pair.tuple, now_ns);
  return path.ok() && path->has_value() ? view_->NamesOf(**path) : std::vector<std::string>();
}

std::vector<std::string> PathBook::DirectLinks(IpAddress from, IpAddress to) const {
  const AddressPlace* const source = view_->Find(from);
  const AddressPlace* const destination = view_->Find(to);
  if (source == nullptr || destination == nullptr || source->plane != destination->plane) return {};
  const Network::Port* const out = view_->network().FindPort(source->nic, source->plane);
  const Network::Port* const in = view_->network().FindPort(destination->nic, destination->plane);
  if (out == nullptr || in == nullptr || out->leaf != in->leaf) return {};
  return view_->NamesOf(from, to, source->plane, kDirect);
}

std::string PathBook::StatementOn(const Connection& connection, size_t end) const {
  if (SameLeaf(connection, end)) return "";
  const int from = view_->topology().NicAt(connection.sources[end]);
  const int to = view_->topology().NicAt(connection.destinations[end]);
  return catalogue_->Statement(GroupOfEnd(connection, end),
                               from < 0 || to < 0 ? 0 : view_->topology().PossiblePaths(from, to));
}

absl::Status PathBook::Use(SessionId session, const v1::PathUse& use, int64_t now_ns,
                           std::vector<Trouble>* troubles, std::set<FlowGroup>* strays) {
  auto found = connections_.find(use.connection());
  const bool is_new = found == connections_.end() && use.has_request() && use.queue_pairs_size() > 0;
  if (is_new) {
    // This master is new: what is in use stays.
    Connection connection;
    C4_RETURN_IF_NOT_OK(Read(use.request(), &connection));
    if (use.request().connection() != use.connection()) {
      return absl::InvalidArgumentError(
          Concat("connection ", use.connection(), " asked as ", use.request().connection()));
    }
    Register(&connection);
    connection.pairs.resize(use.request().queue_pairs());
    connection.epoch = std::max<uint64_t>(1, use.epoch());
    adopting_.insert(use.connection());
    connection.taken_over_ns = now_ns;
    connection.why = "taken over as it was";
    found = connections_.emplace(use.connection(), std::move(connection)).first;
    SetComplete(&found->second, false);
    Changed(found->second);
  }
  if (found == connections_.end()) {
    return absl::NotFoundError(Concat("connection ", use.connection(), " never asked for paths"));
  }
  Connection& connection = found->second;
  if (connection.session != 0 && connection.session != session) {
    return absl::InvalidArgumentError(
        Concat("connection ", use.connection(), " is another agent's, which is in session"));
  }
  if (use.queue_pairs_size() == 0) {
    Forget(use.connection());
    return absl::OkStatus();
  }
  if (connection.session == 0) connection.taken_over_ns = now_ns;
  if (absl::Status full = SetSession(&connection, session); !full.ok()) {
    if (is_new) Forget(use.connection());
    return full;
  }
  Renew(use.connection(), now_ns);
  if (use.epoch() > connection.epoch) FallBehind(&connection, use.epoch(), now_ns);
  for (const v1::QueuePairInUse& said : use.queue_pairs()) {
    if (said.index() >= connection.pairs.size()) continue;
    QueuePair& pair = connection.pairs[said.index()];
    const std::optional<IpAddress> source = service::ParseIp(said.tuple().source());
    const std::optional<IpAddress> destination = service::ParseIp(said.tuple().destination());
    // Of a queue pair that is being connected an end, or both, may not be known yet.
    const bool whole = source && destination && source->known() && destination->known();
    if (!source || !destination || (whole && source->is_v4() != destination->is_v4()) ||
        said.tuple().source_port() > UINT16_MAX || said.tuple().destination_port() > UINT16_MAX) {
      return absl::InvalidArgumentError(Concat("connection ", use.connection(), ": queue pair ", said.index(),
                                               " says that it uses no tuple of one IP version"));
    }
    const service::IpTuple tuple = {ProtocolOf(connection.request), *source,
                                    static_cast<uint16_t>(said.tuple().source_port()), *destination,
                                    static_cast<uint16_t>(said.tuple().destination_port())};
    // Fences of before this master's time are no news.
    const bool lost = (said.fences() > pair.fences && !is_new) ||
                      (said.use() == v1::QUEUE_PAIR_USE_DEAD && pair.use != v1::QUEUE_PAIR_USE_DEAD);
    if (lost) {
      troubles->push_back({pair.tuple.value_or(tuple), LinksOf(connection, pair, now_ns),
                           connection.kept ? allocator_.CountedKbps(connection.number) : 0});
    }
    if (said.fences() > pair.fences) Changed(connection);
    pair.fences = std::max(pair.fences, said.fences());
    pair.use = said.use();
    if (pair.use == v1::QUEUE_PAIR_USE_DEAD) {
      dead_.insert({connection.number, said.index()});
    } else {
      dead_.erase({connection.number, said.index()});
    }
    if (pair.tuple == tuple || !whole || tuple.source_port == 0) continue;  // 0: it is still being connected
    SetTuple(&pair, tuple);
    Changed(connection);
    if (tuple.source_port == pair.advised_port || use.epoch() < connection.epoch) continue;
    // It could not, or no longer, be as advised.
    const auto end = std::find(connection.sources.begin(), connection.sources.end(), *source);
    if (end == connection.sources.end()) continue;
    SetPort(&connection, said.index(), static_cast<uint32_t>(end - connection.sources.begin()), 0);
    pair.place = PlaceOfTuple(tuple, now_ns);
    if (connection.kept) (void)allocator_.Account(connection.number, said.index(), pair.place);
    if (pair.place.way != kNoWay && SameLeaf(connection, pair.end)) continue;  // every port is as good
    SetComplete(&connection, false);
    strays->insert(GroupOfEnd(connection, pair.end));
  }
  return absl::OkStatus();
}

void PathBook::Renew(const std::string& name, int64_t now_ns) {
  const auto found = connections_.find(name);
  if (found == connections_.end()) return;
  found->second.renewed_ns = now_ns;
  if (std::exchange(found->second.expired, false) && found->second.kept) {
    (void)allocator_.Renew(found->second.number);
  }
}

// The account stays until it expires: the agent may be back in a moment.
void PathBook::Leave(SessionId session) {
  for (auto& [name, connection] : connections_) {
    if (connection.session != session) continue;
    (void)SetSession(&connection, 0);
    ForgetDead(connection);
  }
}

void PathBook::Expire(int64_t now_ns) {
  std::vector<std::string> gone;
  for (auto& [name, connection] : connections_) {
    const int64_t age_ns = now_ns - connection.renewed_ns;
    if (age_ns > options_.expiry_ns && !std::exchange(connection.expired, true) && connection.kept) {
      (void)allocator_.Expire(connection.number);
    }
    // Ports are held a while longer: whoever comes back has them.
    if (age_ns > 10 * options_.expiry_ns) gone.push_back(name);
  }
  for (const std::string& name : gone) Forget(name);
  ForgetPorts();
}

void PathBook::Forget(const std::string& name) {
  const auto found = connections_.find(name);
  if (found == connections_.end()) return;
  Changed(found->second);
  DropPorts(&found->second);
  (void)SetSession(&found->second, 0);
  SetComplete(&found->second, true);
  if (found->second.kept) (void)allocator_.Release(found->second.number);
  names_.erase(found->second.number);
  tenants_.GiveBack(TenantOf(found->second.request));
  adopting_.erase(name);
  ForgetDead(found->second);
  free_numbers_.push_back(found->second.number);
  connections_.erase(found);
}

}  // namespace c4::c4p
