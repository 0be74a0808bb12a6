#include "c4p_master/alloc/allocator.h"

#include <algorithm>
#include <cmath>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace c4::c4p {
namespace {

constexpr uint32_t kWayBits = 29;
constexpr uint32_t kWayMask = (1u << kWayBits) - 1;
constexpr int kScaleBits = 16;
constexpr int64_t kMostKbps = UINT32_MAX;  // of a queue pair

uint32_t Pack(Place place) {
  return place.plane << kWayBits | place.way;
}

// A copy: ports are taken off it.
std::vector<PlaneWays> Offers(const std::vector<PlaneWays>& available, PlaneId planes) {
  std::vector<PlaneWays> offers = available;
  if (available.empty()) return std::vector<PlaneWays>(planes);
  offers.resize(planes, PlaneWays{.all = false, .ways = {}});
  return offers;
}

}  // namespace

absl::Status Allocator::CheckConnection(ConnectionId connection) const {
  if (Has(connection)) return absl::OkStatus();
  return absl::NotFoundError(absl::StrCat("there is no connection ", connection));
}

bool Allocator::Has(ConnectionId connection) const {
  return connection < connections_.size() && connections_[connection].from != kNobody;
}

absl::Status Allocator::CheckRequest(const ConnectionRequest& request) const {
  const auto refuse = [&](const auto&... words) {
    return absl::InvalidArgumentError(absl::StrCat("connection ", request.connection, ": ", words...));
  };
  if (request.connection >= kMostNumbers) return refuse("number connections from 0, below ", kMostNumbers);
  if (request.queue_pairs < 1 || request.queue_pairs > kMostQueuePairs) {
    return refuse(request.queue_pairs, " queue pairs: ask for 1 to ", kMostQueuePairs);
  }
  if (!(request.demand_mbps >= 0) || std::isinf(request.demand_mbps)) {
    return refuse("a demand of ", request.demand_mbps, " Mbit/s: give one of 0 (all) or above");
  }
  if (request.from == request.to) return refuse("NIC ", request.from, " needs no path to itself");
  for (const NicId nic : {request.from, request.to}) {
    if (!network_->HasNic(nic)) {
      return absl::NotFoundError(absl::StrCat("connection ", request.connection, ": NIC ", nic,
                                              " is not known: add its ports first"));
    }
  }
  if (Has(request.connection)) {
    return absl::AlreadyExistsError(
        absl::StrCat("connection ", request.connection, " has its paths: release it before it asks again"));
  }
  return absl::OkStatus();
}

void Allocator::Remember(const ConnectionRequest& request) {
  if (request.connection >= connections_.size()) connections_.resize(request.connection + 1);
  if (const NicId last = std::max(request.from, request.to); last >= nics_.size()) nics_.resize(last + 1);
  Connection& connection = connections_[request.connection];
  const uint32_t epoch = connection.epoch + 1;
  connection = Connection();
  connection.epoch = epoch;
  connection.from = request.from;
  connection.to = request.to;
  connection.tenant = request.tenant;
  connection.queue_pairs = static_cast<uint16_t>(request.queue_pairs);
  const int64_t nic_kbps = network_->NicKbps(request.from);
  const double asked = request.demand_mbps == 0 ? static_cast<double>(nic_kbps) : request.demand_mbps * 1000;
  const auto kbps = static_cast<int64_t>(std::ceil(std::min(asked, static_cast<double>(nic_kbps))));
  const int64_t share = (kbps + request.queue_pairs - 1) / request.queue_pairs;
  connection.asked_kbps = static_cast<uint32_t>(std::clamp<int64_t>(share, 1, kMostKbps));
  if (request.queue_pairs < holes_.size() && !holes_[request.queue_pairs].empty()) {
    connection.pool_at = holes_[request.queue_pairs].back();
    holes_[request.queue_pairs].pop_back();
  } else {
    connection.pool_at = static_cast<uint32_t>(pool_.size());
    pool_.resize(pool_.size() + request.queue_pairs);
  }
  std::fill_n(pool_.begin() + connection.pool_at, request.queue_pairs, Pack(Place()));
  ++count_;
  Count(request.connection);
}

void Allocator::Forget(ConnectionId number) {
  Connection& connection = connections_[number];
  if (connection.counted) Uncount(number);
  if (holes_.size() <= connection.queue_pairs) holes_.resize(connection.queue_pairs + 1);
  holes_[connection.queue_pairs].push_back(connection.pool_at);
  connection.from = kNobody;
  --count_;
}

Place Allocator::PlaceAt(const Connection& connection, uint32_t queue_pair) const {
  const uint32_t packed = pool_[connection.pool_at + queue_pair];
  return {packed >> kWayBits, packed & kWayMask};
}

void Allocator::SetPlace(Connection* connection, uint32_t queue_pair, Place place) {
  if (connection->counted) {
    const int64_t kbps = Kbps(*connection);
    AddLoad(*connection, PlaceAt(*connection, queue_pair), -kbps);
    AddLoad(*connection, place, kbps);
  }
  pool_[connection->pool_at + queue_pair] = Pack(place);
}

int64_t Allocator::Kbps(const Connection& connection) const {
  return std::max<int64_t>(1, int64_t{connection.asked_kbps} * nics_[connection.from].scale >> kScaleBits);
}

bool Allocator::HopsOf(const Connection& connection, Place place, Hops* hops) const {
  const Network::Port* const from = network_->FindPort(connection.from, place.plane);
  const Network::Port* const to = network_->FindPort(connection.to, place.plane);
  return from != nullptr && to != nullptr && network_->HopsOf(from->leaf, to->leaf, place.way, hops);
}

bool Allocator::PlaneIsUp(const Connection& connection, PlaneId plane) const {
  const Network::Port* const from = network_->FindPort(connection.from, plane);
  const Network::Port* const to = network_->FindPort(connection.to, plane);
  return from != nullptr && to != nullptr && from->up[0] && to->up[1];
}

bool Allocator::IsUp(const Connection& connection, Place place) const {
  Hops hops;
  return PlaneIsUp(connection, place.plane) && HopsOf(connection, place, &hops) && network_->IsUp(hops);
}

void Allocator::AddLoad(const Connection& connection, Place place, int64_t kbps) {
  if (place.way == kNoWay) return;
  Hops hops;
  network_->KnownHopsOf(network_->FindPort(connection.from, place.plane)->leaf,
                        network_->FindPort(connection.to, place.plane)->leaf, place.way, &hops);
  accounts_.AddToPort(connection.from, place.plane, Direction::kUp, kbps);
  accounts_.AddToPort(connection.to, place.plane, Direction::kDown, kbps);
  for (const Hop& hop : hops) accounts_.Add(connection.tenant, hop, kbps);
}

void Allocator::Count(ConnectionId number) {
  Connection& connection = connections_[number];
  Nic& nic = nics_[connection.from];
  for (size_t end = 0; end < 2; ++end) {
    ConnectionId& first = nics_[EndOf(connection, end)].first[end];
    connection.previous[end] = kNobody;
    connection.next[end] = first;
    if (first != kNobody) connections_[first].previous[end] = number;
    first = number;
  }
  nic.asked_kbps += int64_t{connection.asked_kbps} * connection.queue_pairs;
  connection.counted = true;
  for (uint32_t i = 0; i < connection.queue_pairs; ++i) {
    AddLoad(connection, PlaceAt(connection, i), Kbps(connection));
  }
  Rescale(connection.from);
}

void Allocator::Uncount(ConnectionId number) {
  Connection& connection = connections_[number];
  Nic& nic = nics_[connection.from];
  for (uint32_t i = 0; i < connection.queue_pairs; ++i) {
    AddLoad(connection, PlaceAt(connection, i), -Kbps(connection));
  }
  for (size_t end = 0; end < 2; ++end) {
    const ConnectionId previous = connection.previous[end];
    const ConnectionId next = connection.next[end];
    (previous == kNobody ? nics_[EndOf(connection, end)].first[end] : connections_[previous].next[end]) =
        next;
    if (next != kNobody) connections_[next].previous[end] = previous;
  }
  nic.asked_kbps -= int64_t{connection.asked_kbps} * connection.queue_pairs;
  connection.counted = false;
  Rescale(connection.from);
}

// Only when what is asked for has changed by half, so that many connections cost little each.
void Allocator::Rescale(NicId number) {
  Nic& nic = nics_[number];
  const int64_t gives = network_->NicKbps(number);
  const int64_t change = std::abs(nic.asked_kbps - nic.scaled_at_kbps);
  const bool fits = nic.asked_kbps <= gives;
  if (fits ? nic.scale == 1u << kScaleBits : change * 2 <= nic.scaled_at_kbps) return;
  const int64_t scale = fits ? int64_t{1} << kScaleBits : (gives << kScaleBits) / nic.asked_kbps;
  const uint32_t before = nic.scale;
  nic.scaled_at_kbps = nic.asked_kbps;
  for (ConnectionId at = nic.first[0]; at != kNobody; at = connections_[at].next[0]) {
    const Connection& connection = connections_[at];
    nic.scale = before;
    const int64_t old = Kbps(connection);
    nic.scale = static_cast<uint32_t>(scale);
    const int64_t difference = Kbps(connection) - old;
    for (uint32_t i = 0; i < connection.queue_pairs && difference != 0; ++i) {
      AddLoad(connection, PlaceAt(connection, i), difference);
    }
  }
  nic.scale = static_cast<uint32_t>(scale);
}

// Evenly over the planes by the rate that both ends have there; the odd one where the ports carry less. What
// a plane has no ways for goes to the others.
std::vector<Place> Allocator::Choose(const Connection& connection, uint32_t count,
                                     std::vector<PlaneWays>* offered,
                                     std::array<uint32_t, kMostPlanes> here) {
  struct Option {
    PlaneId plane;
    double rate_from;
    double rate_to;
    uint32_t wanted;
  };
  std::array<Option, kMostPlanes> options{};
  size_t planes = 0;
  const int64_t kbps = Kbps(connection);
  for (PlaneId plane = 0; plane < network_->planes(); ++plane) {
    if (!PlaneIsUp(connection, plane)) continue;
    options[planes++] = {plane, static_cast<double>(network_->FindPort(connection.from, plane)->kbps[0]),
                         static_cast<double>(network_->FindPort(connection.to, plane)->kbps[1]), 0};
  }
  const auto rank = [&](const Option& option) {
    const int64_t more = (option.wanted + 1) * kbps;
    const auto fill = [&](NicId nic, Direction direction, double rate) {
      return static_cast<double>(accounts_.PortLoad(nic, option.plane, direction) + more) / rate;
    };
    return std::pair((here[option.plane] + option.wanted + 1) / std::min(option.rate_from, option.rate_to),
                     std::max(fill(connection.from, Direction::kUp, option.rate_from),
                              fill(connection.to, Direction::kDown, option.rate_to)));
  };
  std::vector<Place> places;
  places.reserve(count);
  while (places.size() < count && planes > 0) {
    for (size_t left = count - places.size(); left > 0; --left) {
      Option* best = options.data();
      for (size_t i = 1; i < planes; ++i) {
        if (rank(options[i]) < rank(*best)) best = &options[i];
      }
      ++best->wanted;
    }
    for (size_t i = planes; i-- > 0;) {
      Option& option = options[i];
      const std::vector<Way>& ways =
          ChooseIn(connection, option.plane, option.wanted, &(*offered)[option.plane]);
      for (const Way way : ways) places.push_back({option.plane, way});
      here[option.plane] += static_cast<uint32_t>(ways.size());
      const bool exhausted = ways.size() < option.wanted;
      option.wanted = 0;
      if (exhausted) options[i] = options[--planes];
    }
  }
  return places;
}

const std::vector<Way>& Allocator::ChooseIn(const Connection& connection, PlaneId plane, uint32_t count,
                                            PlaneWays* offered, WayChooser::Aim aim) {
  static const std::vector<Way>* const none = new std::vector<Way>;
  if (!PlaneIsUp(connection, plane)) return *none;
  return chooser_.Choose(connection.tenant, Kbps(connection),
                         network_->FindPort(connection.from, plane)->leaf,
                         network_->FindPort(connection.to, plane)->leaf, count, offered, aim);
}

absl::StatusOr<Allocation> Allocator::Allocate(const ConnectionRequest& request) {
  if (absl::Status fault = CheckRequest(request); !fault.ok()) return fault;
  Remember(request);
  Connection& connection = connections_[request.connection];
  Allocation result{.epoch = connection.epoch, .queue_pairs = {}, .why = {}};
  std::vector<PlaneWays> offered = Offers(request.available, network_->planes());
  result.queue_pairs = Choose(connection, request.queue_pairs, &offered, {});
  for (uint32_t i = 0; i < result.queue_pairs.size(); ++i) SetPlace(&connection, i, result.queue_pairs[i]);
  if (result.queue_pairs.empty()) {
    Forget(request.connection);
    return absl::UnavailableError(WhyNone(request));
  }
  if (const size_t placed = result.queue_pairs.size(); placed < request.queue_pairs) {
    result.why = absl::StrCat("only ", placed, " of ", request.queue_pairs,
                              " queue pairs have a way: no more source ports are known for ways that are up");
    result.queue_pairs.resize(request.queue_pairs);
  }
  return result;
}

std::string Allocator::WhyNone(const ConnectionRequest& request) {
  std::vector<std::string> reasons;
  for (PlaneId plane = 0; plane < network_->planes(); ++plane) {
    const Network::Port* const from = network_->FindPort(request.from, plane);
    const Network::Port* const to = network_->FindPort(request.to, plane);
    if (from == nullptr || to == nullptr) {
      reasons.push_back(absl::StrCat("in plane ", plane, " NIC ", from == nullptr ? request.from : request.to,
                                     " has no port"));
    } else if (!from->up[0] || !to->up[1]) {
      reasons.push_back(absl::StrCat("in plane ", plane, " the link of NIC ",
                                     !from->up[0] ? request.from : request.to, " is down"));
    } else {
      PlaneWays all;
      const bool any = !chooser_.Choose(request.tenant, 1, from->leaf, to->leaf, 1, &all).empty();
      reasons.push_back(
          any ? absl::StrCat("in plane ", plane, " no source port is known for a way that is up")
              : absl::StrCat("in plane ", plane, " every way from leaf ", from->leaf, " to leaf ", to->leaf,
                             " has a link that is down"));
    }
  }
  return absl::StrCat("no path from NIC ", request.from, " to NIC ", request.to, ": ",
                      absl::StrJoin(reasons, "; "));
}

absl::Status Allocator::Admit(const ConnectionRequest& request) {
  if (absl::Status fault = CheckRequest(request); !fault.ok()) return fault;
  Remember(request);
  return absl::OkStatus();
}

absl::Status Allocator::Release(ConnectionId connection) {
  if (absl::Status fault = CheckConnection(connection); !fault.ok()) return fault;
  Forget(connection);
  return absl::OkStatus();
}

absl::Status Allocator::CheckPlace(const Connection& connection, Place place) const {
  Hops hops;
  if (place.way == kNoWay || HopsOf(connection, place, &hops)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("way ", place.way, " of plane ", place.plane,
                                                 " does not lead from NIC ", connection.from, " to NIC ",
                                                 connection.to));
}

absl::Status Allocator::Account(ConnectionId number, uint32_t queue_pair, Place place) {
  if (absl::Status fault = CheckConnection(number); !fault.ok()) return fault;
  Connection& connection = connections_[number];
  if (queue_pair >= connection.queue_pairs) {
    return absl::InvalidArgumentError(absl::StrCat("connection ", number, " has ", connection.queue_pairs,
                                                   " queue pairs, no number ", queue_pair));
  }
  if (place.way == kNoWay) place = Place();
  if (absl::Status fault = CheckPlace(connection, place); !fault.ok()) return fault;
  if (PlaceAt(connection, queue_pair) == place) return absl::OkStatus();
  SetPlace(&connection, queue_pair, place);
  ++connection.epoch;
  return absl::OkStatus();
}

absl::Status Allocator::Expire(ConnectionId connection) {
  if (absl::Status fault = CheckConnection(connection); !fault.ok()) return fault;
  if (connections_[connection].counted) Uncount(connection);
  return absl::OkStatus();
}

absl::Status Allocator::Renew(ConnectionId connection) {
  if (absl::Status fault = CheckConnection(connection); !fault.ok()) return fault;
  if (!connections_[connection].counted) Count(connection);
  return absl::OkStatus();
}

absl::Status Allocator::Apply(const Move& move) {
  if (absl::Status fault = CheckConnection(move.connection); !fault.ok()) return fault;
  Connection& connection = connections_[move.connection];
  if (connection.epoch != move.epoch) {
    return absl::FailedPreconditionError(absl::StrCat("connection ", move.connection, " is at epoch ",
                                                      connection.epoch, ", its move was planned at ",
                                                      move.epoch, ": plan again"));
  }
  for (const Step& step : move.steps) {
    if (step.queue_pair >= connection.queue_pairs) {
      return absl::InvalidArgumentError(absl::StrCat("connection ", move.connection, " has ",
                                                     connection.queue_pairs, " queue pairs, no number ",
                                                     step.queue_pair));
    }
    if (absl::Status fault = CheckPlace(connection, step.to); !fault.ok()) return fault;
  }
  for (const Step& step : move.steps) SetPlace(&connection, step.queue_pair, step.to);
  ++connection.epoch;
  return absl::OkStatus();
}

absl::StatusOr<Allocation> Allocator::Get(ConnectionId number) const {
  if (absl::Status fault = CheckConnection(number); !fault.ok()) return fault;
  const Connection& connection = connections_[number];
  Allocation result{.epoch = connection.epoch, .queue_pairs = {}, .why = {}};
  for (uint32_t i = 0; i < connection.queue_pairs; ++i) result.queue_pairs.push_back(PlaceAt(connection, i));
  return result;
}

int64_t Allocator::LoadOf(const Link& link, Direction direction) const {
  if (!network_->Find(link).ok()) return 0;
  if (link.tier == Tier::kPort) return accounts_.PortLoad(link.lower, link.upper, direction);
  return accounts_.Load(network_->HopOf(link, direction));
}

std::optional<double> Allocator::FillWith(ConnectionId number, uint32_t queue_pair, Place place) const {
  if (!Has(number) || queue_pair >= connections_[number].queue_pairs) return std::nullopt;
  const Connection& connection = connections_[number];
  Hops hops;
  if (!IsUp(connection, place) || !HopsOf(connection, place, &hops)) return std::nullopt;
  const Place here = PlaceAt(connection, queue_pair);
  Hops own;
  if (here.way == kNoWay || !HopsOf(connection, here, &own)) own = Hops();
  const auto kbps = static_cast<double>(Kbps(connection));
  const bool counted = connection.counted;
  double fill = 0;
  for (const Hop& hop : hops) {
    const bool there = counted && std::any_of(own.begin(), own.end(), [&](const Hop& other) {
                         return other.row == hop.row && other.column == hop.column;
                       });
    const double load = static_cast<double>(accounts_.Load(hop)) + (there ? 0 : kbps);
    fill = std::max(fill, load * network_->RowAt(hop.row).inverse[hop.column]);
  }
  for (const auto& [nic, direction] :
       {std::pair(connection.from, Direction::kUp), std::pair(connection.to, Direction::kDown)}) {
    const int64_t carries = network_->FindPort(nic, place.plane)->kbps[static_cast<size_t>(direction)];
    const bool there = counted && here.way != kNoWay && here.plane == place.plane;
    const double load =
        static_cast<double>(accounts_.PortLoad(nic, place.plane, direction)) + (there ? 0 : kbps);
    // A NIC's own connections may ask for more than it gives; that is no worse on another way.
    if (!there && carries > 0) fill = std::max(fill, load / static_cast<double>(carries));
  }
  return fill;
}

int64_t Allocator::CountedKbps(ConnectionId connection) const {
  return Has(connection) && connections_[connection].counted ? Kbps(connections_[connection]) : 0;
}

}  // namespace c4::c4p
