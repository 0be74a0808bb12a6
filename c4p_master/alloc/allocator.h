// Which plane and way each queue pair of each connection takes: the heart of the path master.
//
// A connection asks for all its queue pairs at once. They are spread evenly over the planes that both of its
// NICs have ("left to left and right to right"), and in each plane each takes the way whose fullest link is
// the least full, of all jobs' traffic together (choose.h; there stands, too, what fairness between tenants
// means). Traffic is counted by what connections ask for, in whole kbit/s; but a NIC's connections together
// count for what the NIC can send at most (give or take a half, so that counting stays cheap): a tenant
// does not spoil links for others by asking often, or for much.
//
// What is promised here is an account, not a lock: Account says which way a queue pair takes in truth. Expire
// takes a connection's load off the accounts and forgets nothing; Renew puts it back.
//
// A change of the network moves nothing by itself. PlanRepair and PlanEven say what ought to move, on a copy
// of the accounts; Apply carries a move out if the connection is still at the epoch at which it was planned.
// An epoch rises with each change of the connection's ways.
//
// Pure and deterministic: the same calls in the same order give the same answers. One thread. Connections
// and tenants have numbers that the caller gives them; those of connections are to be dense. Errors are
// sentences that name the numbers. (C4 paper, section 3.2.)
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "c4p_master/alloc/accounts.h"
#include "c4p_master/alloc/choose.h"
#include "c4p_master/alloc/network.h"

namespace c4::c4p {

using ConnectionId = uint32_t;

inline constexpr uint32_t kMostQueuePairs = 256;  // of a connection

struct ConnectionRequest {
  ConnectionId connection = 0;
  TenantId tenant = 0;
  NicId from = 0;
  NicId to = 0;
  uint32_t queue_pairs = 0;
  double demand_mbps = 0;            // of the connection; 0: what its NIC gives
  std::vector<PlaneWays> available;  // by plane; none: all ways of every plane; planes beyond: nothing
};

// Where a queue pair is. way kNoWay: not known, or none could be given; it counts nowhere.
struct Place {
  PlaneId plane = 0;
  Way way = kNoWay;
  bool operator==(const Place&) const = default;
};

struct Allocation {
  uint32_t epoch = 0;
  std::vector<Place> queue_pairs;
  std::string why;  // a sentence where not every queue pair has a way
};

struct Step {
  uint32_t queue_pair = 0;
  Place to;
  bool operator==(const Step&) const = default;
};
// All that is to change of one connection.
struct Move {
  ConnectionId connection = 0;
  uint32_t epoch = 0;  // at which it was planned
  std::vector<Step> steps;
  bool operator==(const Move&) const = default;
};
struct Plan {
  std::vector<Move> moves;  // by connection
  // Connections with a queue pair on a way that is down, for which there is no other.
  std::vector<ConnectionId> stranded;
  size_t steps() const;
};

// What a connection can have in a plane, beside what it has. Asked while planning; none: all ways.
using WaysOf = std::function<PlaneWays(ConnectionId, PlaneId)>;

class Allocator {
 public:
  // `network` outlives it, and grows and changes as it likes between calls.
  explicit Allocator(const Network* network)
      : network_(network), accounts_(network), chooser_(network, &accounts_) {}
  Allocator(const Allocator&) = delete;
  Allocator& operator=(const Allocator&) = delete;

  // Some queue pairs may come back without a way, for want of ports. InvalidArgument, NotFound: the request;
  // AlreadyExists: release it first; Unavailable: not one has a way, and why: the connection is not kept.
  absl::StatusOr<Allocation> Allocate(const ConnectionRequest& request);
  // Takes note of it without giving it ways: for what Account will tell. InvalidArgument, NotFound,
  // AlreadyExists.
  absl::Status Admit(const ConnectionRequest& request);
  absl::Status Release(ConnectionId connection);
  // A queue pair takes this way, whatever was advised; kNoWay: nobody knows which.
  absl::Status Account(ConnectionId connection, uint32_t queue_pair, Place place);
  absl::Status Expire(ConnectionId connection);
  absl::Status Renew(ConnectionId connection);

  // New ways for exactly those queue pairs that are on a link that is down. Accounts that have expired are
  // left alone.
  Plan PlanRepair(const WaysOf& ways_of = nullptr);
  // Connections with accounts whose data, or (`acknowledgements`) what comes back, may meet a link that is
  // down; by number. Those that are left out do not.
  std::vector<ConnectionId> ThatMayLose(bool acknowledgements) const;
  // For those of one connection that are on a link that is down, or without a way.
  absl::StatusOr<Plan> PlanConnection(ConnectionId connection, const WaysOf& ways_of = nullptr);
  // At most so many queue pairs from links that carry more than their even share to where there is room, the
  // fullest first: of the rows that `link` is in (after it has come back), or of all. Where it is a NIC's
  // port, those of the NIC go back to an even number in each plane.
  Plan PlanEven(size_t most_steps, const Link* link = nullptr, const WaysOf& ways_of = nullptr);
  // FailedPrecondition: the connection has changed since; plan again. All steps, or none.
  absl::Status Apply(const Move& move);

  bool Has(ConnectionId connection) const;
  absl::StatusOr<Allocation> Get(ConnectionId connection) const;
  size_t connections() const { return count_; }
  // Of one direction of a link, in kbit/s.
  int64_t LoadOf(const Link& link, Direction direction) const;
  // How full the fullest link of that place would be with this queue pair on it, as a share of what it
  // carries. None: there is no such way, or it is down.
  std::optional<double> FillWith(ConnectionId connection, uint32_t queue_pair, Place place) const;
  // kbit/s that each queue pair of it counts for.
  int64_t CountedKbps(ConnectionId connection) const;
  const Accounts& accounts() const { return accounts_; }

 private:
  // A NIC's connections count for `scale` / 2^16 of what they ask for.
  struct Nic {
    int64_t asked_kbps = 0;
    int64_t scaled_at_kbps = 0;  // what was asked for when the scale was set
    uint32_t scale = 1u << 16;
    // Of those with accounts, which it sends and which it receives.
    std::array<ConnectionId, 2> first = {kNobody, kNobody};
  };
  struct Connection {
    NicId from = kNobody;  // kNobody: no such connection
    NicId to = 0;
    TenantId tenant = 0;
    // Of the same source, and of the same destination.
    std::array<ConnectionId, 2> next = {kNobody, kNobody};
    std::array<ConnectionId, 2> previous = {kNobody, kNobody};
    uint32_t epoch = 0;
    uint32_t pool_at = 0;     // of its queue pairs
    uint32_t asked_kbps = 0;  // a queue pair
    uint16_t queue_pairs = 0;
    bool counted = false;
  };
  struct Flow {
    ConnectionId connection;
    uint32_t queue_pair;
  };
  // A plan while it is made: the accounts are as if it had been carried out.
  struct Draft {
    const WaysOf& ways_of;
    std::vector<std::pair<Flow, Place>> undo;
    std::unordered_map<ConnectionId, std::vector<Place>> taken;  // ports that the plan takes
    std::vector<ConnectionId> stranded;
  };
  struct Excess {
    double fill;  // of the link, above the even one
    Hop hop;
    Flow flow;
  };

  absl::Status CheckConnection(ConnectionId connection) const;
  absl::Status CheckRequest(const ConnectionRequest& request) const;
  absl::Status CheckPlace(const Connection& connection, Place place) const;
  void Remember(const ConnectionRequest& request);
  void Forget(ConnectionId connection);
  std::string WhyNone(const ConnectionRequest& request);

  Place PlaceAt(const Connection& connection, uint32_t queue_pair) const;
  void SetPlace(Connection* connection, uint32_t queue_pair, Place place);  // with its load
  int64_t Kbps(const Connection& connection) const;
  bool HopsOf(const Connection& connection, Place place, Hops* hops) const;
  bool IsUp(const Connection& connection, Place place) const;
  bool PlaneIsUp(const Connection& connection, PlaneId plane) const;
  void AddLoad(const Connection& connection, Place place, int64_t kbps);
  NicId EndOf(const Connection& connection, size_t end) const {
    return end == 0 ? connection.from : connection.to;
  }
  void Count(ConnectionId connection);
  void Uncount(ConnectionId connection);
  void Rescale(NicId nic);

  // The best places for so many queue pairs of the connection, or for fewer; `here` is how many it has in
  // each plane.
  std::vector<Place> Choose(const Connection& connection, uint32_t count, std::vector<PlaneWays>* offered,
                            std::array<uint32_t, kMostPlanes> here);
  const std::vector<Way>& ChooseIn(const Connection& connection, PlaneId plane, uint32_t count,
                                   PlaneWays* offered, WayChooser::Aim aim = WayChooser::Aim::kFullest);

  std::vector<PlaneWays> OfferedTo(ConnectionId connection, const Draft& draft) const;
  void Shift(Flow flow, Place to, Draft* draft);
  bool MightBeDown(const Connection& connection) const;
  bool MayTake(const Connection& connection, const Link& link) const;
  std::vector<Flow> Concerned(ConnectionId connection, bool unplaced_too) const;
  void Repair(const std::vector<Flow>& flows, Draft* draft);
  Plan TakeBack(Draft* draft);
  std::vector<Excess> Overloaded(const Link* link);
  bool EvenOnce(size_t most_steps, const Link* link, WayChooser::Aim aim, Draft* draft);
  bool MoveOff(Flow flow, WayChooser::Aim aim, Draft* draft);
  void EvenPlanes(NicId nic, size_t most_steps, Draft* draft);

  const Network* network_;
  Accounts accounts_;
  WayChooser chooser_;
  std::vector<Nic> nics_;
  std::vector<Connection> connections_;
  size_t count_ = 0;
  std::vector<uint32_t> pool_;                // plane << 29 | way, by queue pair
  std::vector<std::vector<uint32_t>> holes_;  // of the pool, by size
};

}  // namespace c4::c4p
