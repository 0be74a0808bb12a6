#include "cli/text/path_text.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <vector>

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

namespace c4::cli {
namespace {

using nlohmann::json;

constexpr int kMostMoves = 12;
constexpr double kFull = 1.005;  // a link with more has more promised than it carries

std::string End(const std::string& host, int rank) {
  return host.empty() ? absl::StrCat("rank", rank) : absl::StrCat(host, "/", rank);
}

std::string UseWord(v1::QueuePairUse use) {
  if (use == v1::QUEUE_PAIR_USE_LIVE) return "live";
  return use == v1::QUEUE_PAIR_USE_DEAD ? "DEAD" : "planned";
}

// The switches between; host links say nothing that the ends do not.
std::string Between(const v1::QueuePairStatus& pair) {
  if (pair.links().empty()) return "not known";
  std::vector<std::string> links;
  for (const std::string& link : pair.links()) {
    if (link.find("spine") != std::string::npos || pair.links_size() <= 2) links.push_back(link);
  }
  return absl::StrJoin(
      links.empty() ? std::vector<std::string>(pair.links().begin(), pair.links().end()) : links, " ");
}

// Lower and upper end of a link's name, and whether it goes up.
struct LinkEnds {
  std::string lower;
  std::string upper;
  bool up = false;
};
LinkEnds EndsOf(const std::string& name) {
  const size_t at = name.find_first_of("<>");
  if (at == std::string::npos) return {name, "", true};
  std::string upper = name.substr(at + 1);
  return {name.substr(0, at), upper.substr(0, upper.find('#')), name[at] == '>'};
}

// "leaf2" before "leaf10".
bool Before(const std::string& a, const std::string& b) {
  return a.size() != b.size() ? a.size() < b.size() : a < b;
}

struct Cell {
  double load[2] = {0, 0};  // up, down
  double capacity[2] = {0, 0};
  bool down = false;
  bool held = false;
  bool there = false;
};

std::string Share(double load, double capacity) {
  if (capacity <= 0) return "  -";
  return absl::StrFormat("%3.0f", 100 * load / capacity);
}

std::string Bar(double share) {
  static constexpr const char* kBlocks[] = {" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  return kBlocks[static_cast<size_t>(std::lround(8 * std::clamp(share, 0.0, 1.0)))];
}

json TupleJson(const v1::FiveTuple& tuple) {
  return {{"protocol", tuple.protocol() == v1::IP_PROTOCOL_UDP ? "udp" : "tcp"},
          {"source", tuple.source()},
          {"source_port", tuple.source_port()},
          {"destination", tuple.destination()},
          {"destination_port", tuple.destination_port()}};
}

json ConnectionJson(const v1::ConnectionStatus& connection) {
  json pairs = json::array();
  for (const v1::QueuePairStatus& pair : connection.queue_pairs()) {
    json entry = {{"index", pair.index()},
                  {"plane", pair.plane()},
                  {"advised_port", pair.advised_port()},
                  {"use", UseWord(pair.use())},
                  {"fences", pair.fences()},
                  {"moved", pair.moved()},
                  {"links", std::vector<std::string>(pair.links().begin(), pair.links().end())}};
    if (pair.has_tuple()) entry["tuple"] = TupleJson(pair.tuple());
    pairs.push_back(std::move(entry));
  }
  return {{"connection", connection.connection()},
          {"job", connection.job()},
          {"from_host", connection.from_host()},
          {"to_host", connection.to_host()},
          {"from_rank", connection.from_rank()},
          {"to_rank", connection.to_rank()},
          {"communicator_id", absl::StrFormat("%016x", connection.communicator_id())},
          {"channel", connection.channel()},
          {"epoch", connection.epoch()},
          {"demand_mbps", connection.demand_mbps()},
          {"renewed_age_s", static_cast<double>(connection.renewed_age_ns()) * 1e-9},
          {"why", connection.why()},
          {"queue_pairs", std::move(pairs)}};
}

json LinksJson(const google::protobuf::RepeatedPtrField<v1::LinkLoad>& links) {
  json result = json::array();
  for (const v1::LinkLoad& link : links) {
    result.push_back({{"name", link.name()},
                      {"capacity_mbps", link.capacity_mbps()},
                      {"load_mbps", link.load_mbps()},
                      {"queue_pairs", link.queue_pairs()},
                      {"up", link.up()},
                      {"fault", link.fault()},
                      {"held", link.held()},
                      {"flaps", link.flaps()}});
  }
  return result;
}

// What C4D had moved to settle verdicts, the newest last.
std::string MovesText(const google::protobuf::RepeatedPtrField<v1::MoveEntry>& moves) {
  if (moves.empty()) return "";
  std::string text = "\nmoved to settle verdicts (docs/paths.md)\n";
  const int first = std::max(0, moves.size() - kMostMoves);
  if (first > 0) absl::StrAppend(&text, "  ", first, " earlier ones: --json\n");
  for (int i = first; i < moves.size(); ++i) {
    const v1::MoveEntry& entry = moves[i];
    absl::StrAppendFormat(&text, "  %.0f s ago, %s of job %s: %s\n",
                          1e-9 * static_cast<double>(entry.age_ns()), entry.experiment(), entry.job(),
                          entry.text());
  }
  return text;
}

}  // namespace

std::string LinkPicture(const google::protobuf::RepeatedPtrField<v1::LinkLoad>& links) {
  std::map<std::pair<std::string, std::string>, Cell> cells;
  std::vector<std::string> rows;
  std::vector<std::string> columns;
  for (const v1::LinkLoad& link : links) {
    const LinkEnds ends = EndsOf(link.name());
    Cell& cell = cells[{ends.lower, ends.upper}];
    cell.there = true;
    cell.load[ends.up ? 0 : 1] += link.load_mbps();
    cell.capacity[ends.up ? 0 : 1] += link.up() ? link.capacity_mbps() : 0;
    cell.down = cell.down || !link.up();
    cell.held = cell.held || !link.held().empty();
    rows.push_back(ends.lower);
    columns.push_back(ends.upper);
  }
  for (std::vector<std::string>* names : {&rows, &columns}) {
    std::sort(names->begin(), names->end(), Before);
    names->erase(std::unique(names->begin(), names->end()), names->end());
  }
  if (rows.empty()) return "no links between switches are known yet\n";
  std::string text = "promised load of the links, up / down, in % of each\n";
  absl::StrAppendFormat(&text, "%10s", "");
  for (const std::string& column : columns) absl::StrAppendFormat(&text, " %14s", column);
  text += '\n';
  bool over = false;
  for (const std::string& row : rows) {
    absl::StrAppendFormat(&text, "%10s", row);
    for (const std::string& column : columns) {
      const auto found = cells.find({row, column});
      if (found == cells.end()) {
        absl::StrAppendFormat(&text, " %14s", "");
        continue;
      }
      const Cell& cell = found->second;
      if (cell.down) {
        absl::StrAppendFormat(&text, " %14s", cell.held ? "HELD" : "DOWN");
        continue;
      }
      const double up = cell.capacity[0] > 0 ? cell.load[0] / cell.capacity[0] : 0;
      const double down = cell.capacity[1] > 0 ? cell.load[1] / cell.capacity[1] : 0;
      over = over || up > kFull || down > kFull;
      absl::StrAppend(&text, "   ", Bar(up), " ", Share(cell.load[0], cell.capacity[0]), " / ", Bar(down),
                      " ", Share(cell.load[1], cell.capacity[1]));
    }
    text += '\n';
  }
  if (over) text += "over 100: more is promised than the link carries; its flows share it\n";
  return text;
}

std::string PathsText(const v1::ListPathsReply& paths) {
  if (paths.connections().empty()) {
    return "no connection has asked for paths yet\n\n" + LinkPicture(paths.links());
  }
  std::string text = absl::StrFormat("%-14s %-10s %-10s %2s %2s %-6s %5s %-8s %6s  %s\n", "job", "from", "to",
                                     "ch", "qp", "port", "plane", "state", "fences", "path");
  for (const v1::ConnectionStatus& connection : paths.connections()) {
    for (const v1::QueuePairStatus& pair : connection.queue_pairs()) {
      const uint32_t port = pair.has_tuple() ? pair.tuple().source_port() : pair.advised_port();
      absl::StrAppendFormat(&text, "%-14.14s %-10s %-10s %2d %2d %-6s %5d %-8s %6d  %s\n", connection.job(),
                            End(connection.from_host(), connection.from_rank()),
                            End(connection.to_host(), connection.to_rank()), connection.channel(),
                            pair.index(), port == 0 ? "any" : absl::StrCat(port), pair.plane(),
                            UseWord(pair.use()), pair.fences(), Between(pair));
      if (!pair.moved().empty()) absl::StrAppend(&text, "    ", pair.moved(), "\n");
    }
    if (!connection.why().empty()) absl::StrAppend(&text, "    ", connection.why(), "\n");
  }
  return text + "\n" + LinkPicture(paths.links()) + MovesText(paths.moves());
}

std::string PathsJson(const v1::ListPathsReply& paths) {
  json connections = json::array();
  for (const v1::ConnectionStatus& connection : paths.connections()) {
    connections.push_back(ConnectionJson(connection));
  }
  json moves = json::array();
  for (const v1::MoveEntry& entry : paths.moves()) {
    moves.push_back({{"age_s", static_cast<double>(entry.age_ns()) * 1e-9},
                     {"job", entry.job()},
                     {"experiment", entry.experiment()},
                     {"text", entry.text()}});
  }
  return json({{"connections", std::move(connections)},
               {"links", LinksJson(paths.links())},
               {"moves", std::move(moves)}})
      .dump(2);
}

std::string TopologyText(const v1::GetTopologyReply& topology) {
  std::map<std::string, int> kinds;
  for (const v1::SwitchStatus& one : topology.switches()) ++kinds[one.kind()];
  std::set<std::string> hosts;
  for (const v1::NicStatus& nic : topology.nics()) hosts.insert(nic.host());
  std::string text = absl::StrFormat(
      "%d leaves, %d spines, %d hosts with %d NICs; known from %s; %d probes answered of %d sent\n",
      kinds["leaf"], kinds["spine"], hosts.size(), topology.nics_size(), topology.source(),
      topology.probes_answered(), topology.probes_ordered());
  std::map<std::string, std::vector<std::string>> by_leaf;
  for (const v1::NicStatus& nic : topology.nics()) {
    std::string word = absl::StrCat(nic.host(), " ", nic.address());
    if (!nic.carrier()) word += " (no carrier)";
    if (!nic.agent()) word += " (no agent)";
    by_leaf[nic.leaf().empty() ? "leaf not known" : nic.leaf()].push_back(std::move(word));
  }
  for (const auto& [leaf, nics] : by_leaf) {
    absl::StrAppendFormat(&text, "%-8s %s\n", leaf, absl::StrJoin(nics, ", "));
  }
  text += "\n" + LinkPicture(topology.links());
  for (const v1::LinkLoad& link : topology.links()) {
    if (!link.up()) absl::StrAppend(&text, link.name(), " is not used: ", link.fault(), "\n");
  }
  uint32_t seen = 0;
  uint32_t possible = 0;
  std::vector<std::string> lacking;
  for (const v1::CoverageStatus& pair : topology.coverage()) {
    seen += pair.ways_seen();
    possible += pair.ways_possible();
    if (pair.ways_seen() < pair.ways_possible()) {
      lacking.push_back(absl::StrFormat("%s to %s %d of %d", pair.from_leaf(), pair.to_leaf(),
                                        pair.ways_seen(), pair.ways_possible()));
    }
  }
  if (possible > 0) {
    absl::StrAppendFormat(&text, "probing has seen %d of %d paths between leaves%s\n", seen, possible,
                          lacking.empty() ? "" : ": missing " + absl::StrJoin(lacking, ", "));
  }
  for (const std::string& note : topology.notes()) absl::StrAppend(&text, "note: ", note, "\n");
  return text;
}

std::string TopologyReplyJson(const v1::GetTopologyReply& topology) {
  json switches = json::array();
  for (const v1::SwitchStatus& one : topology.switches()) {
    switches.push_back(
        {{"name", one.name()},
         {"kind", one.kind()},
         {"addresses", std::vector<std::string>(one.addresses().begin(), one.addresses().end())}});
  }
  json nics = json::array();
  for (const v1::NicStatus& nic : topology.nics()) {
    nics.push_back({{"address", nic.address()},
                    {"host", nic.host()},
                    {"name", nic.name()},
                    {"plane", nic.plane()},
                    {"leaf", nic.leaf()},
                    {"rate_mbps", nic.rate_mbps()},
                    {"carrier", nic.carrier()},
                    {"agent", nic.agent()}});
  }
  json coverage = json::array();
  for (const v1::CoverageStatus& pair : topology.coverage()) {
    coverage.push_back({{"from_leaf", pair.from_leaf()},
                        {"to_leaf", pair.to_leaf()},
                        {"ways_seen", pair.ways_seen()},
                        {"ways_possible", pair.ways_possible()}});
  }
  return json({{"source", topology.source()},
               {"switches", std::move(switches)},
               {"links", LinksJson(topology.links())},
               {"nics", std::move(nics)},
               {"coverage", std::move(coverage)},
               {"probes_ordered", topology.probes_ordered()},
               {"probes_answered", topology.probes_answered()},
               {"notes", std::vector<std::string>(topology.notes().begin(), topology.notes().end())}})
      .dump(2);
}

std::string ExplainText(const v1::ExplainReply& reply) {
  v1::ListPathsReply one;
  *one.add_connections() = reply.connection();
  std::string text = PathsText(one);
  text.resize(text.find("\n\n") + 2);  // without the picture
  for (const std::string& sentence : reply.sentences()) absl::StrAppend(&text, sentence, "\n");
  return text;
}

std::string ExplainJson(const v1::ExplainReply& reply) {
  return json({{"connection", ConnectionJson(reply.connection())},
               {"sentences", std::vector<std::string>(reply.sentences().begin(), reply.sentences().end())}})
      .dump(2);
}

}  // namespace c4::cli
