// The connections of the cluster and their paths: what was asked for, what was advised, what is in use. Joins
// the allocator, which thinks in planes and ways, with source ports, as far as the catalogue knows where they
// lead.
//
// An answer never waits: what is not known yet is left to the kernel's choice and corrected once probes have
// told (Improve). What connections say they use is the truth, and what the accounts count.
//
// One thread; the caller's monotonic clock. `view` and `catalogue` outlive it. Pure: what is to be sent or
// probed comes back as values.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "c4/v1/c4p.pb.h"
#include "c4p_master/alloc/allocator.h"
#include "c4p_master/catalogue.h"
#include "c4p_master/network_view.h"
#include "c4p_master/port_pool.h"
#include "c4p_master/state/path_state.pb.h"
#include "c4p_master/tenant_numbers.h"

namespace c4::c4p {

using SessionId = uint64_t;

inline service::IpProtocol ProtocolOf(const v1::PathRequest& request) {
  return request.protocol() == v1::IP_PROTOCOL_TCP ? service::IpProtocol::kTcp : service::IpProtocol::kUdp;
}

// Of one agent: more than the ranks of a host make in any job, and less than would fill a master's memory.
inline constexpr size_t kMostConnections = 65536;

struct BookOptions {
  SourcePorts ports;
  int64_t expiry_ns = 60'000'000'000;
};

// A queue pair is to take another way; links as in PathAnswer, none where they are not known.
struct Shift {
  std::string job;
  std::string connection;
  uint32_t queue_pair = 0;
  std::vector<std::string> from;
  std::vector<std::string> to;
};

// What an agent is to be told: an answer, or a correction of it.
struct Advice {
  SessionId session = 0;
  v1::PathAnswer answer;
  std::vector<Shift> shifts = {};  // that it asks for
};

// A queue pair of a connection.
struct PairRef {
  std::string connection;
  uint32_t index = 0;
  auto operator<=>(const PairRef&) const = default;
};

// What another way has to be like.
struct Diversion {
  std::vector<std::string> avoid;  // cables that it must not take
  std::string through;             // a directed link that it has to take; empty: any
  bool other_plane = false;        // over other NICs of both ends; else over the same
  double most_fill = 1.5;          // no link of it may be promised more of what it carries
};

// A queue pair that lost its path: its tuple, and the uplinks on it as far as they are known.
struct Trouble {
  service::IpTuple tuple;
  std::vector<std::string> links;
  int64_t kbps = 0;  // that it counts for
};

class PathBook {
 public:
  PathBook(const BookOptions& options, const NetworkView* view, Catalogue* catalogue)
      : options_(options),
        view_(view),
        catalogue_(catalogue),
        tcp_ports_(options.ports.tcp),
        udp_ports_(options.ports.udp),
        allocator_(&view->network()) {}

  struct QueuePair {
    uint32_t end = 0;                       // of the request's ends
    uint32_t advised_port = 0;              // 0: the kernel's choice
    Place place;                            // as accounted
    std::optional<service::IpTuple> tuple;  // in use
    v1::QueuePairUse use = v1::QUEUE_PAIR_USE_UNSPECIFIED;
    uint32_t fences = 0;
  };
  struct Connection {
    ConnectionId number = 0;
    TenantId tenant = 0;
    SessionId session = 0;  // 0: its agent is away
    v1::PathRequest request;
    std::vector<service::IpAddress> sources;  // by end
    std::vector<service::IpAddress> destinations;
    uint64_t epoch = 0;
    std::vector<QueuePair> pairs;
    bool kept = false;      // by the allocator
    bool complete = false;  // every queue pair has the best way that there is
    bool expired = false;
    int64_t taken_over_ns = 0;  // from a master before this one
    int64_t renewed_ns = 0;
    std::string why;
  };

  // InvalidArgument: the request is none. Otherwise always an answer, if only that nothing is known.
  absl::StatusOr<v1::PathAnswer> Request(SessionId session, const v1::PathRequest& request, int64_t now_ns);
  // InvalidArgument, NotFound: nothing changes. What it says of lost paths goes to `troubles`.
  // Groups of which a queue pair took a port that was not advised go to `strays`.
  absl::Status Use(SessionId session, const v1::PathUse& use, int64_t now_ns, std::vector<Trouble>* troubles,
                   std::set<FlowGroup>* strays);
  // The newest advice, where one that says what it uses does not follow it yet.
  std::optional<Advice> Missed(const v1::PathUse& use, int64_t now_ns) const;
  void Renew(const std::string& connection, int64_t now_ns);
  void Leave(SessionId session);
  void Expire(int64_t now_ns);

  stored::Connection Stored(const Connection& connection) const;
  // One that a master before this one had, its agent away. What its ports lead over is to be known already.
  // InvalidArgument: it is none.
  absl::Status Restore(const stored::Connection& from, int64_t now_ns);
  // Those of them whose paths are known count as load again.
  void AdoptRestored(int64_t now_ns);
  // Connections of which something that is stored may have changed since this was called last.
  std::set<std::string> TakeChanged() { return std::exchange(changed_, {}); }

  // The groups of flows about which something was learnt: their connections, where that makes them better.
  std::vector<Advice> Improve(const std::set<FlowGroup>& groups, int64_t now_ns);
  struct Carried {
    std::vector<Advice> advice;
    size_t moves = 0;  // queue pairs
    bool all = true;   // there is nothing left to move
  };
  // Queue pairs on links that are not used move, so many at most; but those of a connection together.
  // `held`: at least some of these links carry something: who finds no better way stays.
  Carried Repair(size_t most, bool held, int64_t now_ns);
  // A link is used again: so many queue pairs at most move until its leaf's links are even.
  Carried Even(const Link& link, size_t most, int64_t now_ns);
  // What Repair, or Even of those links, would do if it were to do all; connections without another way go to
  // `stranded`.
  std::vector<Shift> WouldRepair(std::vector<std::string>* stranded, int64_t now_ns);
  std::vector<Shift> WouldEven(const std::vector<Link>& links, int64_t now_ns);
  // Switches send the ports of these groups other ways than before: only these ones' are known now. Where
  // what is in use leads nobody knows; it moves.
  std::vector<Advice> Remap(const std::map<FlowGroup, std::set<uint16_t>>& known, int64_t now_ns);

  // Where a queue pair was before it was diverted.
  struct Former {
    uint32_t end = 0;
    uint32_t port = 0;
    Place place;
  };
  // Of that job, in use; none, or of another job: nothing.
  std::optional<PairRef> FindPair(const std::string& job, const service::IpTuple& tuple) const;
  // Gives the queue pair another way, the least full of those that fit. FailedPrecondition, Unavailable,
  // ResourceExhausted: why it cannot be, and nothing changes. The agent hears of it by Announce.
  absl::StatusOr<Former> Divert(const PairRef& ref, const Diversion& diversion, int64_t now_ns);
  // As if the newest Divert of it had not been.
  void Undo(const PairRef& ref, const Former& former);
  // To a port of the way that it had, if it is still where it was diverted to. NotFound: it is closed;
  // FailedPrecondition: it was moved since; Unavailable: no port leads there.
  absl::Status Return(const PairRef& ref, Place diverted, Place former, int64_t now_ns);
  Advice Announce(const std::string& connection, int64_t now_ns);

  // A port of the group was probed: it may be given out.
  void Learnt(const FlowGroup& group, uint16_t port) { known_[group].insert(port); }
  const std::set<uint16_t>& KnownPorts(const FlowGroup& group) const {
    static const std::set<uint16_t> kNone;
    const auto found = known_.find(group);
    return found == known_.end() ? kNone : found->second;
  }
  // What connections that were taken over use, as long as it is not known where that leads.
  std::vector<service::IpTuple> ToAdopt() const;
  // Groups of connections for which more ports should be known.
  std::set<FlowGroup> Wanting() const;
  // Of all connections, also of those whose agents are away.
  std::set<FlowGroup> InUse() const;
  // Of connections that leave from that leaf, or end there (the allocator's number).
  std::set<FlowGroup> GroupsAt(LeafId leaf) const;
  // Nobody uses its source port.
  bool IsFree(const service::IpTuple& tuple) const {
    return PortsOf(tuple.protocol).IsFree(tuple.source, tuple.source_port);
  }

  const std::map<std::string, Connection>& connections() const { return connections_; }
  // A queue pair that has no path at present; empty: all have. One that stays dead is said once.
  std::string NameOfADeadOne() const;
  size_t incomplete() const { return incomplete_.size(); }
  size_t tenants() const { return tenants_.size(); }
  size_t groups() const { return known_.size(); }  // of which ports are known
  const Allocator& allocator() const { return allocator_; }
  std::vector<std::string> LinksOf(const Connection& connection, const QueuePair& pair, int64_t now_ns) const;
  // Of two addresses under one leaf, in one plane; none otherwise.
  std::vector<std::string> DirectLinks(service::IpAddress from, service::IpAddress to) const;
  // What is to be said of its ports: that they do not steer, that switches are silent; empty: nothing.
  std::string StatementOn(const Connection& connection, size_t end) const;

 private:
  struct Port {
    uint32_t end = 0;
    uint16_t port = 0;
    bool shares_fate = false;  // its acknowledgements come back over the links that its data take
  };
  // Ordered as the connections are: advice goes out in their order.
  struct ByName {
    bool operator()(const Connection* a, const Connection* b) const {
      return a->request.connection() < b->request.connection();
    }
  };
  // Free ports of a connection's ends by where they lead, those that share their fate first.
  using Offer = std::map<std::pair<PlaneId, Way>, std::vector<Port>>;

  absl::Status Read(const v1::PathRequest& request, Connection* connection) const;
  const PortPool& PortsOf(service::IpProtocol protocol) const {
    return protocol == service::IpProtocol::kTcp ? tcp_ports_ : udp_ports_;
  }
  PortPool& PortsOf(service::IpProtocol protocol) {
    return protocol == service::IpProtocol::kTcp ? tcp_ports_ : udp_ports_;
  }
  FlowGroup GroupOfEnd(const Connection& connection, size_t end) const;
  Offer OfferOf(const Connection& connection, int64_t now_ns) const;
  std::vector<PlaneWays> WaysOf(const Connection& connection, const Offer& offer) const;
  // Plane of an end, by where its addresses hang; kNobody: not known.
  PlaneId PlaneOf(const Connection& connection, size_t end) const;
  bool SameLeaf(const Connection& connection, size_t end) const;
  // Gives every queue pair a place and a port; false: nothing is known that would help.
  bool Allot(Connection* connection, int64_t now_ns);
  // The allocator's request for it, for the ways that are offered; none, and why: a NIC is not known.
  std::optional<ConnectionRequest> RequestOf(Connection* connection, const Offer& offer);
  // Keeps a connection that was taken over on the ports of the range that it uses. False: not all of their
  // paths are known yet, and there is time.
  bool Adopt(Connection* connection, int64_t now_ns);
  // The tuple that a queue pair is to be found at; none: nobody has said.
  std::optional<service::IpTuple> TupleToAdopt(const Connection& connection, const QueuePair& pair) const;
  // A connection follows an answer that this master does not remember: what it uses is what it was told.
  void FallBehind(Connection* connection, uint64_t epoch, int64_t now_ns);
  void Changed(const Connection& connection) { changed_.insert(connection.request.connection()); }
  // An agent has no more than kMostConnections; 0: it is away.
  absl::Status SetSession(Connection* connection, SessionId session);
  void SetComplete(Connection* connection, bool complete);
  void SetPort(Connection* connection, size_t pair, uint32_t end, uint32_t port);
  void SetTuple(QueuePair* pair, const std::optional<service::IpTuple>& tuple);
  void DropPorts(Connection* connection);
  void Forget(const std::string& name);
  // Of groups that no connection uses and no probe saw of late.
  void ForgetPorts();
  // Who has left cannot say that it has a path again.
  void ForgetDead(const Connection& connection);
  std::optional<Advice> Better(Connection* connection, int64_t now_ns);
  // Places and ports for those of its queue pairs that have none; the others stay.
  std::optional<Advice> Fill(Connection* connection, int64_t now_ns);
  PlaneWays WaysNow(ConnectionId number, PlaneId plane, int64_t now_ns) const;
  std::optional<Advice> Carry(const Move& move, int64_t now_ns);
  v1::PathAnswer AnswerFor(const Connection& connection, int64_t now_ns) const;
  bool IsComplete(const Connection& connection, const Offer& offer) const;
  Place PlaceOfTuple(const service::IpTuple& tuple, int64_t now_ns) const;
  // The same of a port that may be given out: nowhere, where its acknowledgements are known to be lost.
  Port PortAt(size_t end, const service::IpTuple& tuple, Place* place, int64_t now_ns) const;
  // They are known to take a link that is down.
  bool LosesAcknowledgements(const service::IpTuple& tuple, int64_t now_ns) const;
  bool IsUp(service::IpAddress from, service::IpAddress to, Place place) const;
  // The queue pair is to have another port, and place.
  void LetGo(Connection* connection, size_t pair);
  // Lets go what loses acknowledgements, so many at most, which `left` is less by; its groups. `for_better`:
  // only where there is another way.
  std::set<FlowGroup> LetGoUnacknowledged(size_t* left, bool for_better, int64_t now_ns);
  Carried CarryOut(const Plan& plan, size_t most, int64_t now_ns);
  std::vector<Shift> ShiftsOf(const Plan& plan, int64_t now_ns) const;
  Shift ShiftTo(const Connection& connection, uint32_t queue_pair, Place to, int64_t now_ns) const;
  // Its numbers: its own, and its tenant's.
  void Register(Connection* connection);

  const BookOptions options_;
  const NetworkView* const view_;
  Catalogue* const catalogue_;
  PortPool tcp_ports_;
  PortPool udp_ports_;
  Allocator allocator_;
  std::map<std::string, Connection> connections_;
  std::map<ConnectionId, std::string> names_;
  std::set<Connection*, ByName> incomplete_;
  std::set<std::pair<ConnectionId, uint32_t>> dead_;  // queue pairs
  std::map<SessionId, size_t> held_;                  // connections, by the agent in session
  std::set<std::string> adopting_;                    // taken over, and not yet given to the allocator
  std::vector<ConnectionId> free_numbers_;
  ConnectionId next_number_ = 0;
  TenantNumbers tenants_;
  std::map<FlowGroup, std::set<uint16_t>> known_;
  std::set<std::string> changed_;
};

}  // namespace c4::c4p
