// The path master without any transport: agents' messages in, answers and orders of probes out. gRPC's
// servicer is a skin over it; tests call it directly, in simulated time.
//
// Owned and called by one thread (service/state_thread.h). `metrics` belongs to the caller and outlives it.
// Errors of single messages are given to their sender. Times are one monotonic clock's. Deterministic: the
// same topology, messages and times give the same paths.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "c4/v1/c4p.pb.h"
#include "c4p_master/catalogue.h"
#include "c4p_master/link_holds.h"
#include "c4p_master/move_budget.h"
#include "c4p_master/move_ledger.h"
#include "c4p_master/network_view.h"
#include "c4p_master/path_book.h"
#include "c4p_master/path_history.h"
#include "c4p_master/probe_plan.h"
#include "c4p_master/state/state_keeper.h"
#include "service/metrics.h"
#include "service/status.h"

namespace c4::c4p {

struct HandlerOptions {
  uint64_t master_epoch = 0;
  SourcePorts ports;
  uint32_t ports_per_pair = 64;
  int64_t expiry_ns = 60'000'000'000;
  int64_t refresh_ns = 300'000'000'000;
  double default_rate_mbps = 0;
  uint64_t seed = 1;
  MoveLimits moves;
  FlapOptions flaps;
  // Queue pairs that move where it has time: off links that are held back, and onto links that are used
  // again. Who loses its path moves at once.
  double moves_per_second = 1000;
};

class C4pHandler {
 public:
  // Must not call back into the handler.
  using Send = std::function<void(const v1::C4pToAgent&)>;

  // `file`: the operator's topology; none: all is learnt. `store`: where what another master would need to go
  // on is written down before agents hear of it; none: nowhere. It outlives this.
  C4pHandler(const HandlerOptions& options, std::optional<Topology> file, service::Metrics* metrics,
             StateStore* store = nullptr);

  // Goes on from what a master before this one has written down. First of all, once. DataLoss: what is wrong
  // with it.
  absl::Status Restore(const StateRecords& records, int64_t now_ns);
  // OK, or why what is decided cannot be written down any more: agents hear nothing from this master.
  const absl::Status& keeping() const { return keeper_.failure(); }

  SessionId Connect(Send send);
  void Take(SessionId session, const v1::AgentToC4p& message, int64_t now_ns);
  void Disconnect(SessionId session, int64_t now_ns);
  // Takes in what was learnt, orders probes, forgets what expired. To be called some tens of times a second.
  void Tick(int64_t now_ns);

  v1::ResolvePathsReply ResolvePaths(const v1::ResolvePathsRequest& request, int64_t now_ns);
  v1::ListPathsReply ListPaths(const v1::ListPathsRequest& request, int64_t now_ns) const;
  v1::GetTopologyReply GetTopology(int64_t now_ns) const;
  absl::StatusOr<v1::ExplainReply> Explain(const std::string& connection, int64_t now_ns) const;
  // Exactly these moves, or none and why. InvalidArgument: it is no request.
  absl::StatusOr<v1::MovePathsReply> MovePaths(const v1::MovePathsRequest& request, int64_t now_ns);
  absl::StatusOr<v1::EndMovesReply> EndMoves(const v1::EndMovesRequest& request, int64_t now_ns);
  // Links out of use, and back. InvalidArgument, NotFound: the target is none.
  absl::StatusOr<v1::DrainPathsReply> DrainPaths(const v1::DrainPathsRequest& request, int64_t now_ns);
  v1::ListPathHistoryReply ListPathHistory(const v1::ListPathHistoryRequest& request, int64_t now_ns) const {
    return history_.List(request, now_ns);
  }

  const PathBook& book() const { return book_; }
  const NetworkView& view() const { return view_; }

 private:
  struct Session {
    Send send;
    std::optional<v1::AgentHello> hello;
    uint64_t last_sequence = 0;
    int64_t heard_ns = 0;
    std::set<service::IpAddress> addresses;
    std::set<uint64_t> orders;  // outstanding
  };
  struct Order {
    SessionId session = 0;
    std::multiset<service::IpTuple> tuples;  // not reported yet
  };
  // Ports of a group that are being learnt: what is not reported yet, and those whose way was named.
  struct Asked {
    std::multiset<service::IpTuple> waiting;
    std::set<uint16_t> named;
  };
  // Ports that are probed again to see whether switches send them other ways than before.
  struct Recheck {
    std::map<uint16_t, HopPath> before;
    std::set<uint16_t> outstanding;
    bool changed = false;
  };
  // A path that was lost.
  struct Lost {
    int64_t at_ns = 0;
    int64_t kbps = 0;
  };
  // Until something is done again: twice as long each time.
  struct Pause {
    int64_t until_ns = 0;
    int64_t length_ns = 0;
    void Double(int64_t now_ns, int64_t first_ns, int64_t last_ns);
  };
  // Is looked at again and again, over paths that it had.
  struct DeadLink {
    std::vector<service::IpTuple> tuples;
    Pause pause;
  };

  // InvalidArgument: a message that this agent may not send.
  absl::Status TakeIn(SessionId id, Session* session, const v1::AgentToC4p& message, int64_t now_ns);
  absl::Status TakeHello(SessionId id, Session* session, const v1::AgentHello& hello, int64_t now_ns);
  // The session is no host's any more; nothing is expected of it.
  void GiveUpHost(SessionId id, Session* session);
  // Nobody asks, takes over or releases for NICs that are another agent's.
  absl::Status CheckSources(const Session& session, const std::string& connection,
                            const v1::PathRequest& request) const;
  absl::Status TakeUse(SessionId id, const Session& session, const v1::PathUse& use, int64_t now_ns);
  absl::Status TakeRequest(SessionId id, const Session& session, const v1::PathRequest& request,
                           int64_t now_ns);
  absl::Status TakeProbes(SessionId id, const v1::ProbeReport& report, int64_t now_ns);
  void TakeResult(const v1::ProbeResult& result, const service::IpTuple& tuple, int64_t now_ns);
  void TakeTroubles(const std::vector<Trouble>& troubles, int64_t now_ns);
  void LookForDeadLinks(int64_t now_ns);
  std::string WhyToLook(int64_t now_ns);
  bool IsSuspect(const std::string& link, int64_t load_kbps, int64_t now_ns) const;
  void BeginRound(int64_t now_ns);
  bool InRound(int64_t now_ns) const;
  void LookAtDeadLinks(int64_t now_ns);
  bool IsUnknown(const service::IpTuple& tuple, int64_t now_ns) const;
  // Somebody uses a tuple, or asks for it, whose path is not known: it is probed.
  void Wonder(const service::IpTuple& tuple, int64_t now_ns);
  void ForgetWondered(int64_t now_ns);
  // Of groups that nobody asks about any more: one that comes back is asked for anew.
  void ForgetRounds();
  // Probes again what connections could use and nobody has seen for a while. What nobody uses grows old and
  // is forgotten.
  void RefreshDoubtful(int64_t now_ns);
  void SetPlanNetwork();
  void RefreshView(int64_t now_ns);
  void LinksChanged(const std::vector<LinkChange>& changes, int64_t now_ns);
  // It carries nothing any more, or something again.
  void CableChanged(const LinkChange& change, int64_t now_ns);
  // What is used no more, or again: who lost its path moves at once, others as there is time for it.
  void UseChanged(const std::vector<LinkChange>& changes, int64_t now_ns);
  // What has time: off links that are held back, and onto links that are used again.
  void MoveInTime(int64_t now_ns);
  // Links that have been quiet for long enough are used again; what came back to a drained link leaves it.
  void TendHolds(int64_t now_ns);
  absl::Status CheckTarget(const std::string& target) const;
  // A leaf whose last link in use is among these that were used until now; empty: there is none.
  std::string CutOff(const std::vector<LinkChange>& changes) const;
  // Why a queue pair leaves these links; empty: none of them is a reason.
  std::string WhyLeft(const std::vector<std::string>& links) const;
  void NoteCable(v1::PathEventKind kind, const std::string& cable, const std::string& why, int64_t now_ns);
  // It is looked at again and again until it is back.
  void WatchDeadLink(const LinkChange& change, int64_t now_ns);
  void BeginRechecks(int64_t now_ns);
  void BeginRecheck(const FlowGroup& group, int64_t now_ns);
  void FinishRechecks(int64_t now_ns);
  void AskForPorts(int64_t now_ns);
  // One of what was asked for the group is answered, or will not be.
  void Answered(const FlowGroup& group, const service::IpTuple& tuple);
  void Complete(const FlowGroup& group, const Asked& asked);
  void LearnPort(const service::IpTuple& tuple, int64_t now_ns);
  // To that agent, once what it rests on is written down (Deliver).
  void Say(SessionId session, v1::C4pToAgent message);
  // The end of whatever came in: what has changed is written down, then what is to be said is sent.
  void Deliver();
  void KeepHost(const v1::AgentHello& hello);
  void KeepNetwork(int64_t now_ns);
  void SendOrders(int64_t now_ns);
  // `why`: its queue pairs move, where their links are no reason by themselves; empty: nobody need know.
  void SendAdvice(const std::vector<Advice>& advice, const std::string& why, int64_t now_ns);
  void Announce(const std::set<std::string>& connections, int64_t now_ns);
  void FillMoved(const PairRef& ref, v1::PathMoved* to) const;
  void NoteMove(const std::string& job, const std::string& experiment, std::string text, int64_t now_ns);
  void TakeBack(const std::map<uint64_t, MoveLedger::Held>& released, const std::string& why,
                v1::EndMovesReply* reply, int64_t now_ns);
  // What was moved for an experiment and nobody has ended in time goes back.
  void TendMoves(int64_t now_ns);
  void FillMoves(const std::string& job, int64_t now_ns, v1::ListPathsReply* reply) const;
  void UpdateMetrics();
  void FillLinks(int64_t now_ns, google::protobuf::RepeatedPtrField<v1::LinkLoad>* links) const;
  void FillConnection(const std::string& name, const PathBook::Connection& connection, int64_t now_ns,
                      v1::ConnectionStatus* status) const;
  std::string HostOf(service::IpAddress address) const;

  const HandlerOptions options_;
  LinkHolds holds_;
  NetworkView view_;
  Catalogue catalogue_;
  PathBook book_;
  ProbePlan plan_;
  MoveLedger moves_;
  PathHistory history_;
  MoveBudget budget_;
  bool leaving_ = false;                               // links that are held back
  std::vector<std::pair<Link, std::string>> evening_;  // links that are used again, and their cables
  int64_t moved_ns_ = 0;
  int64_t drains_seen_ns_ = 0;
  StateKeeper keeper_;
  std::vector<std::pair<SessionId, v1::C4pToAgent>> outgoing_;
  std::map<std::string, int64_t> absent_hosts_;  // restored, and not in session yet: since when
  int64_t kept_view_ns_ = -1;                    // refreshed_ns_ of the network that was written down
  std::map<SessionId, Session> sessions_;
  SessionId next_session_ = 1;
  std::map<uint64_t, Order> orders_;
  uint64_t next_order_ = 1;
  std::map<std::string, SessionId> by_host_;
  std::map<FlowGroup, Asked> asked_;
  std::map<FlowGroup, int> rounds_;               // how often ports were asked for
  std::set<FlowGroup> learnt_;                    // since the last improvement
  std::map<FlowGroup, int64_t> strays_;           // of queue pairs on ports that were not advised: since when
  std::map<service::IpTuple, int64_t> wondered_;  // when it was asked for
  std::map<FlowGroup, Recheck> rechecks_;
  std::map<LeafId, std::pair<int64_t, size_t>> recheck_leaves_;       // since when, how often already
  std::map<std::string, std::map<service::IpTuple, Lost>> troubled_;  // by directed uplink: lately
  std::map<std::string, Pause> looked_;                               // at suspects: when again
  std::map<std::string, DeadLink> dead_links_;                        // as LinkChange names them
  int64_t refreshed_ns_ = 0;
  int64_t mesh_ns_ = 0;
  int64_t housekept_ns_ = 0;
  int64_t round_ns_ = 0;
  int64_t suspected_ns_ = 0;  // when suspects were looked for
  Pause dead_pause_;          // between rounds for queue pairs without a path
  uint64_t tuples_ordered_ = 0;
  uint64_t tuples_answered_ = 0;

  struct {
    service::MetricCounter requests;
    service::MetricCounter corrections;
    service::MetricCounter refused;
    service::MetricCounter troubles;
    service::MetricCounter moves;
    service::MetricCounter moves_back;
    service::MetricCounter moves_refused;
    service::MetricCounter link_changes;
    service::MetricCounter shifts;
    service::MetricGauge links_held;
    service::MetricCounter tuples_ordered;
    service::MetricCounter tuples_answered;
    service::MetricGauge moves_held;
    service::MetricGauge agents;
    service::MetricGauge connections;
    service::MetricGauge groups;
    service::MetricGauge tenants;
    service::MetricGauge incomplete;
    service::MetricGauge coverage;
  } metrics_;
};

}  // namespace c4::c4p
