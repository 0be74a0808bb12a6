// What the path master shows: to C4D, and to people by the command line.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "c4p_master/c4p_handler.h"
#include "c4p_master/tuple_messages.h"

namespace c4::c4p {
namespace {

using service::IpAddress;

constexpr double kMbps = 1e-3;  // of kbit/s

const char* OriginText(PathOrigin origin) {
  switch (origin) {
    case PathOrigin::kProbed:
      return "probed";
    case PathOrigin::kPredicted:
      return "predicted from the hash that was learnt";
    case PathOrigin::kConfigured:
      return "configured";
  }
  return "";
}

}  // namespace

std::string C4pHandler::HostOf(IpAddress address) const {
  for (const auto& [host, id] : by_host_) {
    const auto session = sessions_.find(id);
    if (session != sessions_.end() && session->second.addresses.contains(address)) return host;
  }
  const int nic = view_.topology().NicAt(address);
  if (nic < 0) return "";
  return view_.topology()
      .servers()[static_cast<size_t>(view_.topology().nics()[static_cast<size_t>(nic)].server)]
      .name;
}

void C4pHandler::FillLinks(int64_t now_ns, google::protobuf::RepeatedPtrField<v1::LinkLoad>* links) const {
  const Topology& topology = view_.topology();
  std::map<std::string, uint32_t> pairs;
  for (const auto& [name, connection] : book_.connections()) {
    for (const PathBook::QueuePair& pair : connection.pairs) {
      if (pair.place.way == kNoWay) continue;
      for (const std::string& link :
           view_.NamesOf(connection.sources[pair.end], connection.destinations[pair.end], pair.place.plane,
                         pair.place.way)) {
        ++pairs[link];
      }
    }
  }
  for (size_t i = 0; i < topology.uplinks().size(); ++i) {
    const Uplink& uplink = topology.uplinks()[i];
    for (const bool up : {true, false}) {
      v1::LinkLoad* const load = links->Add();
      load->set_name(topology.LinkName(topology.UplinkLink(static_cast<int>(i), up)));
      const Link link = view_.LinkOf(uplink);
      const Hop hop = view_.network().HopOf(link, up ? Direction::kUp : Direction::kDown);
      load->set_capacity_mbps(static_cast<double>(view_.network().RowAt(hop.row).kbps[hop.column]) * kMbps);
      load->set_load_mbps(
          static_cast<double>(book_.allocator().LoadOf(link, up ? Direction::kUp : Direction::kDown)) *
          kMbps);
      load->set_queue_pairs(pairs[load->name()]);
      load->set_held(view_.WhyHeld(uplink));
      load->set_up(!uplink.faulty && load->held().empty());
      load->set_fault(uplink.faulty ? uplink.why : load->held());
      load->set_flaps(holds_.Flaps(view_.CableOf(uplink), now_ns));
    }
  }
}

void C4pHandler::FillConnection(const std::string& name, const PathBook::Connection& connection,
                                int64_t now_ns, v1::ConnectionStatus* status) const {
  status->set_connection(name);
  status->set_job(connection.request.job());
  status->set_from_host(HostOf(connection.sources.front()));
  status->set_to_host(HostOf(connection.destinations.front()));
  status->set_from_rank(connection.request.from_rank());
  status->set_to_rank(connection.request.to_rank());
  status->set_communicator_id(connection.request.communicator_id());
  status->set_channel(connection.request.channel());
  status->set_epoch(connection.epoch);
  status->set_demand_mbps(connection.request.demand_mbps());
  status->set_why(connection.why);
  status->set_renewed_age_ns(now_ns - connection.renewed_ns);
  for (size_t i = 0; i < connection.pairs.size(); ++i) {
    const PathBook::QueuePair& pair = connection.pairs[i];
    v1::QueuePairStatus* const to = status->add_queue_pairs();
    to->set_index(static_cast<uint32_t>(i));
    to->set_plane(pair.end);
    to->set_advised_port(pair.advised_port);
    to->set_use(pair.use);
    to->set_fences(pair.fences);
    if (pair.tuple) {
      SetTuple(*pair.tuple, to->mutable_tuple());
    }
    to->set_moved(moves_.TextOf({name, static_cast<uint32_t>(i)}));
    for (std::string& link : book_.LinksOf(connection, pair, now_ns)) to->add_links(std::move(link));
  }
}

v1::ResolvePathsReply C4pHandler::ResolvePaths(const v1::ResolvePathsRequest& request, int64_t now_ns) {
  v1::ResolvePathsReply reply;
  reply.set_master_epoch(options_.master_epoch);
  for (const v1::FiveTuple& asked : request.tuples()) {
    v1::ResolvedPath* const path = reply.add_paths();
    *path->mutable_tuple() = asked;
    const std::optional<service::IpTuple> parsed = TupleOf(asked);
    if (!parsed) continue;
    const service::IpTuple& tuple = *parsed;
    const auto found = catalogue_.Links(view_.topology(), tuple, now_ns);
    if (found.ok() && found->has_value() && (*found)->complete) {
      path->set_known(true);
      for (std::string& link : view_.NamesOf(**found)) path->add_links(std::move(link));
      continue;
    }
    // Within a leaf every port takes the one way.
    const std::vector<std::string> direct = book_.DirectLinks(tuple.source, tuple.destination);
    path->set_known(!direct.empty());
    for (const std::string& link : direct) path->add_links(link);
    if (direct.empty()) Wonder(tuple, now_ns);
  }
  return reply;
}

v1::ListPathsReply C4pHandler::ListPaths(const v1::ListPathsRequest& request, int64_t now_ns) const {
  v1::ListPathsReply reply;
  reply.set_master_epoch(options_.master_epoch);
  for (const auto& [name, connection] : book_.connections()) {
    if (!request.job().empty() && connection.request.job() != request.job()) continue;
    if (!request.connection().empty() && !name.ends_with(request.connection())) continue;
    FillConnection(name, connection, now_ns, reply.add_connections());
  }
  FillLinks(now_ns, reply.mutable_links());
  if (request.connection().empty()) FillMoves(request.job(), now_ns, &reply);
  return reply;
}

v1::GetTopologyReply C4pHandler::GetTopology(int64_t now_ns) const {
  const Topology& topology = view_.topology();
  v1::GetTopologyReply reply;
  reply.set_master_epoch(options_.master_epoch);
  reply.set_source(view_.from_file() ? "the file, checked by probing" : "probing");
  for (const bool is_leaf : {true, false}) {
    for (const Switch& one : is_leaf ? topology.leaves() : topology.spines()) {
      v1::SwitchStatus* const status = reply.add_switches();
      status->set_name(one.name);
      status->set_kind(is_leaf ? "leaf" : "spine");
      for (const IpAddress address : one.addresses) status->add_addresses(service::IpText(address));
    }
  }
  FillLinks(now_ns, reply.mutable_links());
  std::map<IpAddress, v1::NicStatus> nics;
  for (const auto& [id, session] : sessions_) {
    if (!session.hello) continue;
    for (const v1::NicInfo& nic : session.hello->nics()) {
      const auto address = service::ParseIp(nic.address());
      if (!address) continue;
      v1::NicStatus& status = nics[*address];
      status.set_address(nic.address());
      status.set_host(session.hello->host());
      status.set_name(nic.name());
      status.set_plane(nic.plane());
      status.set_rate_mbps(static_cast<double>(nic.rate_mbps()));
      status.set_carrier(nic.carrier());
      status.set_agent(true);
    }
  }
  for (const Nic& nic : topology.nics()) {
    v1::NicStatus& status = nics[nic.address];
    if (!status.agent()) {
      status.set_address(service::IpText(nic.address));
      status.set_host(topology.servers()[static_cast<size_t>(nic.server)].name);
      status.set_name(nic.name);
      status.set_carrier(true);
    }
    std::vector<std::string> leaves;
    for (const int port : nic.ports) {
      const Port& at = topology.ports()[static_cast<size_t>(port)];
      leaves.push_back(topology.leaves()[static_cast<size_t>(at.leaf)].name);
      status.set_plane(static_cast<uint32_t>(at.plane));
    }
    status.set_leaf(absl::StrJoin(leaves, "+"));
  }
  for (auto& [address, status] : nics) *reply.add_nics() = std::move(status);
  for (const PairCoverage& pair : plan_.pairs()) {
    v1::CoverageStatus* const status = reply.add_coverage();
    status->set_from_leaf(pair.from_leaf);
    status->set_to_leaf(pair.to_leaf);
    status->set_ways_seen(static_cast<uint32_t>(pair.coverage.seen));
    status->set_ways_possible(static_cast<uint32_t>(pair.coverage.possible));
  }
  reply.set_probes_ordered(tuples_ordered_);
  reply.set_probes_answered(tuples_answered_);
  for (const std::string& note : view_.Notes()) reply.add_notes(note);
  std::set<std::string> statements;
  for (const auto& [name, connection] : book_.connections()) {
    for (size_t end = 0; end < connection.sources.size(); ++end) {
      std::string statement = book_.StatementOn(connection, end);
      if (!statement.empty()) statements.insert(std::move(statement));
    }
  }
  for (const std::string& statement : statements) reply.add_notes(statement);
  return reply;
}

absl::StatusOr<v1::ExplainReply> C4pHandler::Explain(const std::string& wanted, int64_t now_ns) const {
  const PathBook::Connection* found = nullptr;
  std::string full_name;
  std::vector<std::string> names;
  for (const auto& [name, connection] : book_.connections()) {
    if (!name.ends_with(wanted)) continue;
    names.push_back(name);
    found = &connection;
    full_name = name;
  }
  if (names.empty() || wanted.empty()) {
    return absl::NotFoundError(
        absl::StrCat("no connection is called, or ends in, '", wanted, "'; `c4 paths --json` lists them"));
  }
  if (names.size() > 1) {
    names.resize(std::min<size_t>(names.size(), 5));
    return absl::NotFoundError(absl::StrCat("several connections end in '", wanted,
                                            "': ", absl::StrJoin(names, ", "), "; give more of the name"));
  }
  v1::ExplainReply reply;
  FillConnection(full_name, *found, now_ns, reply.mutable_connection());
  const auto say = [&](std::string sentence) { reply.add_sentences(std::move(sentence)); };
  say(absl::StrFormat("asked for %d queue pairs with %s", found->pairs.size(),
                      found->request.demand_mbps() > 0
                          ? absl::StrFormat("%.0f Mbit/s together", found->request.demand_mbps())
                          : "all that its NIC gives"));
  for (size_t i = 0; i < found->pairs.size(); ++i) {
    const PathBook::QueuePair& pair = found->pairs[i];
    const std::vector<std::string> links = book_.LinksOf(*found, pair, now_ns);
    std::string sentence = absl::StrCat("queue pair ", i, ": ");
    if (links.empty()) {
      absl::StrAppend(&sentence, pair.tuple ? absl::StrCat("port ", pair.tuple->source_port) : "any port",
                      ", the kernel's choice; where it leads is not known");
      say(std::move(sentence));
      continue;
    }
    absl::StrAppend(&sentence, "port ",
                    pair.advised_port != 0 ? pair.advised_port
                    : pair.tuple           ? pair.tuple->source_port
                                           : 0,
                    " leads over ", absl::StrJoin(links, ", "));
    if (pair.tuple) {
      if (const auto known = catalogue_.Find(*pair.tuple, now_ns)) {
        absl::StrAppend(&sentence, " (", OriginText(known->origin));
        if (known->seen_ns > 0)
          absl::StrAppendFormat(&sentence, " %.0f s ago",
                                1e-9 * static_cast<double>(now_ns - known->seen_ns));
        absl::StrAppend(&sentence, known->doubtful ? ", doubtful)" : ")");
      }
    }
    say(std::move(sentence));
  }
  std::string loads;
  v1::ListPathsReply all;
  FillLinks(now_ns, all.mutable_links());
  std::set<std::string> own;
  for (const PathBook::QueuePair& pair : found->pairs) {
    for (std::string& link : book_.LinksOf(*found, pair, now_ns)) own.insert(std::move(link));
  }
  for (const v1::LinkLoad& link : all.links()) {
    if (!own.contains(link.name())) continue;
    absl::StrAppendFormat(&loads, "%s%s %.0f of %.0f", loads.empty() ? "" : ", ", link.name(),
                          link.load_mbps(), link.capacity_mbps());
  }
  if (!loads.empty()) say("Mbit/s promised on its links: " + loads);
  for (size_t end = 0; end < found->sources.size(); ++end) {
    std::string statement = book_.StatementOn(*found, end);
    if (!statement.empty()) say(std::move(statement));
  }
  if (!found->why.empty()) say(found->why);
  if (found->expired) say("its agent has not renewed it for a while: it counts as no load");
  return reply;
}

}  // namespace c4::c4p
