#include "c4p_master/c4p_handler.h"

#include <algorithm>
#include <utility>

#include "c4p_master/tuple_messages.h"
#include "service/log.h"
#include "service/text.h"

namespace c4::c4p {
namespace {

using service::Concat;
using service::IpAddress;

constexpr int64_t kMs = 1'000'000;
constexpr int64_t kSecondNs = 1000 * kMs;
constexpr int64_t kHousekeepingNs = 1000 * kMs;
constexpr int64_t kRefreshEveryNs = 50 * kMs;
// Enough probes from every leaf that a link over which none came is known to be dead
// (TopologyLearner::MarkFaults).
constexpr double kMissChance = 2e-5;
// The transport goes around what is lost at once; when it has settled, its queue pairs get paths again.
constexpr int64_t kStrayNs = 1000 * kMs;
// An agent says something every ten seconds (its lease). One that has said nothing for so long may be dead
// without its connection having ended, and its host is free for the agent that was started in its place.
constexpr int64_t kSilentNs = 15'000 * kMs;

PathObservation ObservationOf(const v1::ProbeResult& result, const service::IpTuple& tuple) {
  std::vector<SeenHop> hops;
  for (const v1::Hop& hop : result.hops()) {
    SeenHop seen;
    seen.ttl = static_cast<int>(hop.ttl());
    if (const auto address = service::ParseIp(hop.address())) seen.address = *address;
    switch (hop.status()) {
      case v1::HOP_STATUS_ANSWERED:
        seen.state = HopState::kAnswered;
        break;
      case v1::HOP_STATUS_REACHED:
        seen.state = HopState::kReached;
        break;
      case v1::HOP_STATUS_UNREACHABLE:
        seen.state = HopState::kUnreachable;
        break;
      default:
        seen.state = HopState::kSilent;
    }
    hops.push_back(seen);
  }
  return Observe(tuple, hops);
}

PlanOptions PlanOptionsOf(const HandlerOptions& options) {
  PlanOptions plan;
  plan.seed = options.seed;
  plan.ports = options.ports;
  plan.miss_chance = kMissChance;
  return plan;
}

}  // namespace

C4pHandler::C4pHandler(const HandlerOptions& options, std::optional<Topology> file, service::Metrics* metrics,
                       StateStore* store)
    : options_(options),
      holds_(options.flaps),
      view_(std::move(file), options.default_rate_mbps, &holds_),
      catalogue_(ProbedOptions{.fresh_ns = 2 * options.refresh_ns, .keep_ns = 20 * options.refresh_ns}),
      book_({options.ports, options.expiry_ns}, &view_, &catalogue_),
      plan_(PlanOptionsOf(options)),
      moves_(options.moves),
      budget_(options.moves_per_second),
      keeper_(store) {
  catalogue_.SetTopology(&view_.topology());
  metrics_.requests = metrics->Counter("c4p_requests_total", "Connections that asked for paths");
  metrics_.corrections = metrics->Counter("c4p_corrections_total", "Answers that were corrected later");
  metrics_.refused =
      metrics->Counter("c4p_messages_refused_total", "Messages of agents that were not taken in");
  metrics_.troubles = metrics->Counter("c4p_paths_lost_total", "Queue pairs that said they lost their path");
  metrics_.moves = metrics->Counter("c4p_moves_total", "Queue pairs moved for C4D's experiments");
  metrics_.moves_back = metrics->Counter("c4p_moves_back_total", "Of these, moved back");
  metrics_.moves_refused =
      metrics->Counter("c4p_moves_refused_total", "Steps of experiments that were refused");
  metrics_.moves_held = metrics->Gauge("c4p_moves_held", "Queue pairs that are moved for an experiment now");
  metrics_.link_changes = metrics->Counter("c4p_link_changes_total", "Links found to be down, or up again");
  metrics_.shifts = metrics->Counter("c4p_queue_pairs_moved_total",
                                     "Queue pairs that were told to take another way than they had");
  metrics_.links_held = metrics->Gauge(
      "c4p_links_held", "Cables between switches that are drained, or held back as they come and go");
  metrics_.tuples_ordered =
      metrics->Counter("c4p_probes_ordered_total", "Tuples that agents were asked to probe");
  metrics_.tuples_answered = metrics->Counter("c4p_probes_answered_total", "Of these, reported by agents");
  metrics_.agents = metrics->Gauge("c4p_agents", "Agents in session");
  metrics_.connections = metrics->Gauge("c4p_connections", "Connections that are");
  metrics_.groups = metrics->Gauge("c4p_address_pairs", "Pairs of addresses of which ports are known");
  metrics_.tenants = metrics->Gauge("c4p_tenants", "Tenants with connections, live or held for their agents");
  metrics_.incomplete =
      metrics->Gauge("c4p_connections_incomplete", "Of these, with ports to come once more is known");
  metrics_.coverage =
      metrics->Gauge("c4p_coverage_ratio", "Share of the paths between leaves that probing has seen");
}

SessionId C4pHandler::Connect(Send send) {
  const SessionId id = next_session_++;
  sessions_[id].send = std::move(send);
  return id;
}

void C4pHandler::Disconnect(SessionId id, int64_t) {
  const auto found = sessions_.find(id);
  if (found == sessions_.end()) return;
  if (found->second.hello) {
    service::LogInfo("the agent of ", found->second.hello->host(), " has left");
    GiveUpHost(id, &found->second);
  }
  sessions_.erase(found);
  SetPlanNetwork();
}

void C4pHandler::GiveUpHost(SessionId id, Session* session) {
  const std::string& host = session->hello->host();
  by_host_.erase(host);
  plan_.Lost(host);
  for (auto at = asked_.begin(); at != asked_.end();) {
    Asked& asked = at->second;
    std::erase_if(asked.waiting,
                  [&](const auto& tuple) { return session->addresses.contains(tuple.source); });
    if (asked.waiting.empty()) Complete(at->first, asked);
    at = asked.waiting.empty() ? asked_.erase(at) : std::next(at);
  }
  for (const uint64_t order : session->orders) orders_.erase(order);
  session->orders.clear();
  session->addresses.clear();
  session->hello.reset();
  book_.Leave(id);
}

void C4pHandler::Take(SessionId id, const v1::AgentToC4p& message, int64_t now_ns) {
  const auto found = sessions_.find(id);
  if (found == sessions_.end()) return;
  const absl::Status status = TakeIn(id, &found->second, message, now_ns);
  if (!status.ok()) {
    metrics_.refused.Add();
    v1::C4pToAgent reply;
    reply.set_refused(std::string(status.message()));
    Say(id, std::move(reply));
  }
  Deliver();
}

absl::Status C4pHandler::TakeIn(SessionId id, Session* session, const v1::AgentToC4p& message,
                                int64_t now_ns) {
  // What was recorded elsewhere and is played again, or comes out of order, is not taken.
  if (message.sequence() != session->last_sequence + 1) {
    return absl::InvalidArgumentError(Concat("message ", message.sequence(), " follows message ",
                                             session->last_sequence, ": repeated, or one was lost"));
  }
  session->last_sequence = message.sequence();
  session->heard_ns = now_ns;
  if (!session->hello && !message.has_hello()) return absl::InvalidArgumentError("say hello first");
  switch (message.message_case()) {
    case v1::AgentToC4p::kHello:
      return TakeHello(id, session, message.hello(), now_ns);
    case v1::AgentToC4p::kRequest:
      return TakeRequest(id, *session, message.request(), now_ns);
    case v1::AgentToC4p::kUse:
      return TakeUse(id, *session, message.use(), now_ns);
    case v1::AgentToC4p::kProbes:
      return TakeProbes(id, message.probes(), now_ns);
    case v1::AgentToC4p::kLease:
      for (const std::string& connection : message.lease().connections()) {
        const auto found = book_.connections().find(connection);
        if (found != book_.connections().end() && found->second.session == id)
          book_.Renew(connection, now_ns);
      }
      return absl::OkStatus();
    case v1::AgentToC4p::MESSAGE_NOT_SET:
      return absl::OkStatus();  // of a later version
  }
  return absl::OkStatus();
}

absl::Status C4pHandler::TakeHello(SessionId id, Session* session, const v1::AgentHello& hello,
                                   int64_t now_ns) {
  if (session->hello) {
    return absl::InvalidArgumentError(
        Concat("this agent has said hello already, as ", session->hello->host(), ": make a new session"));
  }
  if (const absl::Status name = CheckName(hello.host()); !name.ok()) {
    return absl::InvalidArgumentError(Concat("host '", hello.host(), "': ", name.message()));
  }
  // An agent that was started anew may come before its former session is known to be dead: it tries again.
  // One that speaks is not put out by whoever says its name.
  const auto former = by_host_.find(hello.host());
  if (former != by_host_.end()) {
    const auto there = sessions_.find(former->second);
    if (there != sessions_.end() && now_ns - there->second.heard_ns < kSilentNs) {
      return absl::InvalidArgumentError(Concat("host ", hello.host(),
                                               " has an agent in session; if that one is gone, try again in ",
                                               kSilentNs / kSecondNs, " s"));
    }
  }
  std::set<IpAddress> addresses;
  std::set<std::string> names;
  for (const v1::NicInfo& nic : hello.nics()) {
    if (const absl::Status name = CheckName(nic.name()); !name.ok()) {
      return absl::InvalidArgumentError(
          Concat("NIC '", nic.name(), "': ", name.message(), "; leave it out with the agent's --nics"));
    }
    if (!names.insert(nic.name()).second) {
      return absl::InvalidArgumentError(Concat("there are two NICs ", nic.name()));
    }
    const std::optional<IpAddress> address = service::ParseIp(nic.address());
    if (!address) {
      return absl::InvalidArgumentError(Concat("NIC ", nic.name(), ": ", nic.address(), " is no IP address"));
    }
    if (nic.plane() >= kMostPlanes) {
      return absl::InvalidArgumentError(
          Concat("NIC ", nic.name(), ": plane ", nic.plane(), "; there are ", kMostPlanes, " at most"));
    }
    for (const auto& [other, there] : sessions_) {
      if (other == id || !there.hello || there.hello->host() == hello.host()) continue;
      if (there.addresses.contains(*address)) {
        return absl::InvalidArgumentError(Concat("NIC ", nic.name(), " has address ", nic.address(),
                                                 ", which is host ", there.hello->host(),
                                                 "'s, whose agent is in session"));
      }
    }
    addresses.insert(*address);
  }
  if (former != by_host_.end()) {
    service::LogWarning("the agent of ", hello.host(), " has come again, and its former session is silent");
    if (const auto there = sessions_.find(former->second); there != sessions_.end())
      GiveUpHost(there->first, &there->second);
  }
  by_host_[hello.host()] = id;
  session->hello = hello;
  session->addresses = std::move(addresses);
  view_.SetNics(hello);
  v1::C4pToAgent reply;
  reply.mutable_welcome()->set_master_epoch(options_.master_epoch);
  Say(id, std::move(reply));
  KeepHost(hello);
  service::LogInfo("the agent of ", hello.host(), " is in session, with ", hello.nics_size(), " NICs");
  return absl::OkStatus();
}

absl::Status C4pHandler::CheckSources(const Session& session, const std::string& connection,
                                      const v1::PathRequest& request) const {
  const auto refuse = [&](const std::string& source) {
    return absl::InvalidArgumentError(Concat("connection ", connection, " is to leave from ", source,
                                             ", which is no NIC that this agent has told of"));
  };
  for (const v1::PathEnds& ends : request.ends()) {
    const std::optional<IpAddress> source = service::ParseIp(ends.source());
    if (source && !session.addresses.contains(*source)) return refuse(ends.source());
  }
  // One whose agent is away is not for the next who knows its name. Of the others the book knows the agent.
  const auto found = book_.connections().find(connection);
  if (found == book_.connections().end() || found->second.session != 0) return absl::OkStatus();
  for (const IpAddress source : found->second.sources) {
    if (!session.addresses.contains(source)) return refuse(service::IpText(source));
  }
  return absl::OkStatus();
}

absl::Status C4pHandler::TakeUse(SessionId id, const Session& session, const v1::PathUse& use,
                                 int64_t now_ns) {
  C4_RETURN_IF_NOT_OK(CheckSources(session, use.connection(), use.request()));
  for (const v1::QueuePairInUse& pair : use.queue_pairs()) {
    const std::optional<IpAddress> source = service::ParseIp(pair.tuple().source());
    if (pair.tuple().source_port() == 0 || !source || session.addresses.contains(*source)) continue;
    return absl::InvalidArgumentError(Concat("connection ", use.connection(), ": queue pair ", pair.index(),
                                             " leaves from ", pair.tuple().source(),
                                             ", which is no NIC that this agent has told of"));
  }
  std::vector<Trouble> troubles;
  std::set<FlowGroup> strays;
  C4_RETURN_IF_NOT_OK(book_.Use(id, use, now_ns, &troubles, &strays));
  TakeTroubles(troubles, now_ns);
  for (const FlowGroup& group : strays) strays_[group] = now_ns;
  if (use.has_request()) {
    // Said again to a new session: what was advised meanwhile may never have come.
    if (std::optional<Advice> missed = book_.Missed(use, now_ns))
      SendAdvice({*std::move(missed)}, "", now_ns);
  }
  // Where the kernel chose the port, nobody has probed it.
  const auto connection = book_.connections().find(use.connection());
  if (connection == book_.connections().end()) return absl::OkStatus();
  for (const v1::QueuePairInUse& pair : use.queue_pairs()) {
    v1::FiveTuple said = pair.tuple();
    said.set_protocol(connection->second.request.protocol());
    if (const auto tuple = TupleOf(said); tuple && IsUnknown(*tuple, now_ns)) Wonder(*tuple, now_ns);
  }
  return absl::OkStatus();
}

absl::Status C4pHandler::TakeRequest(SessionId id, const Session& session, const v1::PathRequest& request,
                                     int64_t now_ns) {
  C4_RETURN_IF_NOT_OK(CheckSources(session, request.connection(), request));
  absl::StatusOr<v1::PathAnswer> answer = book_.Request(id, request, now_ns);
  if (!answer.ok()) return answer.status();
  metrics_.requests.Add();
  v1::C4pToAgent reply;
  *reply.mutable_answer() = *std::move(answer);
  Say(id, std::move(reply));
  return absl::OkStatus();
}

absl::Status C4pHandler::TakeProbes(SessionId id, const v1::ProbeReport& report, int64_t now_ns) {
  const auto found = orders_.find(report.order());
  if (found == orders_.end() || found->second.session != id) {
    return absl::InvalidArgumentError(Concat("there is no order ", report.order(), " of this agent's"));
  }
  Order& order = found->second;
  for (const v1::ProbeResult& result : report.results()) {
    const std::optional<service::IpTuple> tuple = TupleOf(result.tuple());
    const auto asked = tuple ? order.tuples.find(*tuple) : order.tuples.end();
    if (asked == order.tuples.end()) continue;  // nobody asked for it
    order.tuples.erase(asked);
    ++tuples_answered_;
    metrics_.tuples_answered.Add();
    TakeResult(result, *tuple, now_ns);
  }
  if (!report.last()) return absl::OkStatus();
  // What an agent leaves out it could not probe.
  const std::multiset<service::IpTuple> rest = std::move(order.tuples);
  if (const auto session = sessions_.find(id); session != sessions_.end())
    session->second.orders.erase(report.order());
  orders_.erase(found);
  for (const service::IpTuple& tuple : rest) {
    v1::ProbeResult result;
    result.set_fault(v1::PROBE_FAULT_OTHER);
    TakeResult(result, tuple, now_ns);
  }
  return absl::OkStatus();
}

void C4pHandler::TakeResult(const v1::ProbeResult& result, const service::IpTuple& tuple, int64_t now_ns) {
  const bool failed = result.fault() != v1::PROBE_FAULT_UNSPECIFIED;
  const PathObservation seen = ObservationOf(result, tuple);
  plan_.Reported(seen, failed);
  const FlowGroup group = GroupOf(tuple);
  if (!failed) {
    view_.Add(seen, now_ns);
    catalogue_.Record(seen, now_ns);
    const bool ours = options_.ports.Of(tuple.protocol).Holds(tuple.source_port);
    if (seen.names_path() && ours) LearnPort(tuple, now_ns);
    if (seen.hops.remote.known()) catalogue_.RecordEndToEnd(tuple, true, now_ns);
    learnt_.insert(group);
  }
  if (const auto recheck = rechecks_.find(group); recheck != rechecks_.end()) {
    const auto before = recheck->second.before.find(tuple.source_port);
    if (recheck->second.outstanding.erase(tuple.source_port) > 0 && before != recheck->second.before.end()) {
      const IpAddress then = before->second.spine;
      if (seen.hops.spine.known() && then.known() && seen.hops.spine != then) recheck->second.changed = true;
      // Where it leads now, if anywhere, nobody knows.
      if (!seen.hops.spine.known() && then.known()) recheck->second.before.erase(before);
    }
  }
  Answered(group, tuple);
  if (const auto data = AcknowledgementsOf(tuple)) Answered(GroupOf(*data), tuple);
}

void C4pHandler::SetPlanNetwork() {
  std::vector<PlanAgent> agents;
  for (const auto& [host, id] : by_host_) {
    const auto found = sessions_.find(id);
    if (found == sessions_.end() || !found->second.hello) continue;
    const Session& session = found->second;
    agents.push_back(
        {host, {session.addresses.begin(), session.addresses.end()}, session.hello->probes_per_second()});
  }
  plan_.SetNetwork(std::move(agents), view_.topology(), view_.from_file());
}

void C4pHandler::RefreshView(int64_t now_ns) {
  if (!view_.stale(now_ns) || (refreshed_ns_ != 0 && now_ns - refreshed_ns_ < kRefreshEveryNs)) return;
  refreshed_ns_ = now_ns;
  const size_t switches = view_.topology().leaves().size() + view_.topology().spines().size();
  const size_t ports = view_.topology().ports().size();
  const std::vector<LinkChange> changes = view_.Refresh(now_ns);
  SetPlanNetwork();
  const bool grown = view_.topology().leaves().size() + view_.topology().spines().size() != switches ||
                     view_.topology().ports().size() != ports;
  if (grown) {
    rounds_.clear();
    for (const FlowGroup& group : book_.Wanting()) learnt_.insert(group);
  }
  if (!changes.empty()) LinksChanged(changes, now_ns);
}

void C4pHandler::SendOrders(int64_t now_ns) {
  for (PlannedOrder& planned : plan_.Next(now_ns)) {
    const auto host = by_host_.find(planned.server);
    if (host == by_host_.end()) continue;
    const auto found = sessions_.find(host->second);
    if (found == sessions_.end()) continue;
    Session& session = found->second;
    const uint64_t number = next_order_++;
    Order& order = orders_[number];
    order.session = host->second;
    session.orders.insert(number);
    v1::C4pToAgent message;
    v1::ProbeOrder* const probe = message.mutable_probe();
    probe->set_order(number);
    probe->set_first_ttl(static_cast<uint32_t>(planned.first_ttl));
    probe->set_last_ttl(static_cast<uint32_t>(planned.last_ttl));
    for (const service::IpTuple& tuple : planned.tuples) {
      order.tuples.insert(tuple);
      SetTuple(tuple, probe->add_tuples());
    }
    tuples_ordered_ += planned.tuples.size();
    metrics_.tuples_ordered.Add(static_cast<double>(planned.tuples.size()));
    Say(host->second, std::move(message));
  }
}

void C4pHandler::SendAdvice(const std::vector<Advice>& advice, const std::string& why, int64_t now_ns) {
  for (const Advice& one : advice) {
    for (const Shift& shift : one.shifts) {
      // Who was nowhere that is known has found its place, which is no news.
      if (why.empty() || shift.from.empty() || shift.from == shift.to) continue;
      metrics_.shifts.Add();
      const std::string reason = WhyLeft(shift.from);
      history_.Add({now_ns, v1::PATH_EVENT_KIND_MOVE, "", shift.job, shift.connection, shift.queue_pair,
                    shift.from, shift.to, reason.empty() ? why : reason});
    }
    if (!sessions_.contains(one.session)) continue;
    metrics_.corrections.Add();
    v1::C4pToAgent message;
    *message.mutable_answer() = one.answer;
    Say(one.session, std::move(message));
  }
}

void C4pHandler::Tick(int64_t now_ns) {
  LookForDeadLinks(now_ns);
  RefreshView(now_ns);
  MoveInTime(now_ns);
  LookAtDeadLinks(now_ns);
  BeginRechecks(now_ns);
  FinishRechecks(now_ns);
  for (auto at = strays_.begin(); at != strays_.end();) {
    // While links are looked at, those that are dead look as good as any.
    const bool due = now_ns - at->second >= kStrayNs && !InRound(now_ns);
    if (due) learnt_.insert(at->first);
    at = due ? strays_.erase(at) : std::next(at);
  }
  std::set<FlowGroup> ready;
  for (auto at = learnt_.begin(); at != learnt_.end();) {
    if (asked_.contains(*at) || view_.stale(now_ns)) {
      ++at;  // more is on its way
      continue;
    }
    ready.insert(*at);
    at = learnt_.erase(at);
  }
  if (!ready.empty()) SendAdvice(book_.Improve(ready, now_ns), "a better way is known now", now_ns);
  // What looks at all connections and all that was probed has time.
  const bool housekeeping = now_ns - housekept_ns_ >= kHousekeepingNs;
  if (housekeeping) {
    housekept_ns_ = now_ns;
    catalogue_.Expire(now_ns);
    book_.Expire(now_ns);
    TendMoves(now_ns);
    TendHolds(now_ns);
    for (const service::IpTuple& tuple : book_.ToAdopt()) {
      if (IsUnknown(tuple, now_ns)) Wonder(tuple, now_ns);
      learnt_.insert(GroupOf(tuple));
    }
    ForgetWondered(now_ns);
    ForgetRounds();
    KeepNetwork(now_ns);
  }
  if (mesh_ns_ == 0) mesh_ns_ = now_ns;
  if (now_ns - mesh_ns_ >= options_.refresh_ns) {
    mesh_ns_ = now_ns;
    BeginRound(now_ns);
    RefreshDoubtful(now_ns);
  }
  AskForPorts(now_ns);
  SendOrders(now_ns);
  Deliver();
  if (housekeeping) UpdateMetrics();
}

void C4pHandler::UpdateMetrics() {
  metrics_.agents.Set(static_cast<double>(by_host_.size()));
  metrics_.connections.Set(static_cast<double>(book_.connections().size()));
  metrics_.groups.Set(static_cast<double>(book_.groups()));
  metrics_.tenants.Set(static_cast<double>(book_.tenants()));
  metrics_.incomplete.Set(static_cast<double>(book_.incomplete()));
  metrics_.moves_held.Set(static_cast<double>(moves_.held()));
  metrics_.links_held.Set(static_cast<double>(view_.HeldCables()));
  metrics_.coverage.Set(plan_.coverage().share());
}

}  // namespace c4::c4p
