#include "c4p_master/topology_file.h"

#include <cerrno>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "c4p_master/json_lines.h"

namespace c4::c4p {
namespace {

using service::IpAddress;

#define C4_TRY(expr)                                                     \
  do {                                                                   \
    if (absl::Status c4_fault = (expr); !c4_fault.ok()) return c4_fault; \
  } while (0)

constexpr double kMaxRateMbps = 1e7;

// What the topology says of a part, with the part's line.
template <typename Value>
absl::Status Located(const JsonLine& part, const absl::StatusOr<Value>& added) {
  return added.ok() ? absl::OkStatus() : AtLine(part.line, std::string(added.status().message()));
}

absl::Status ToAddress(const JsonLine& part, std::string_view key, const std::string& text, IpAddress* out) {
  const std::optional<IpAddress> address = service::ParseIp(text);
  if (!address.has_value() || !address->is_of_network()) {
    return AtLine(part.line, absl::StrCat("'", std::string(key), "' is an IP address of a network, not '",
                                          text.substr(0, 40), "'"));
  }
  *out = *address;
  return absl::OkStatus();
}

absl::Status GetAddress(const JsonLine& object, std::string_view key, IpAddress* out) {
  const JsonLine* part = object.Find(key);
  if (part == nullptr) return absl::OkStatus();
  std::string text;
  C4_TRY(GetText(object, key, &text));
  return ToAddress(*part, key, text, out);
}

absl::Status ParseSwitch(const JsonLine& part, bool leaf, Topology* topology) {
  C4_TRY(CheckKeys(part, leaf ? "a leaf" : "a spine", {"name"}, {"addresses"}));
  Switch parsed;
  C4_TRY(GetText(part, "name", &parsed.name));
  const JsonLine* addresses = nullptr;
  C4_TRY(GetList(part, "addresses", &addresses));
  for (size_t i = 0; addresses != nullptr && i < addresses->list.size(); ++i) {
    const JsonLine& entry = addresses->list[i];
    if (entry.kind != JsonLine::Kind::kText) {
      return AtLine(entry.line, absl::StrCat("an address is a text, not ", KindName(entry.kind)));
    }
    IpAddress address;
    C4_TRY(ToAddress(entry, "addresses", entry.text, &address));
    parsed.addresses.push_back(address);
  }
  return Located(part, leaf ? topology->AddLeaf(std::move(parsed)) : topology->AddSpine(std::move(parsed)));
}

// The leaf (or spine) that `object` names under `key`.
absl::Status GetSwitch(const JsonLine& object, bool leaf, std::string_view what, const Topology& topology,
                       int* out) {
  const char* key = leaf ? "leaf" : "spine";
  std::string name;
  C4_TRY(GetText(object, key, &name));
  *out = leaf ? topology.FindLeaf(name) : topology.FindSpine(name);
  if (*out >= 0) return absl::OkStatus();
  const int line = object.Find(key)->line;
  name = name.substr(0, 80);
  if ((leaf ? topology.FindSpine(name) : topology.FindLeaf(name)) >= 0) {
    return AtLine(line, absl::StrCat("'", name, "' is a ", leaf ? "spine" : "leaf", ": ", std::string(what)));
  }
  return AtLine(line, absl::StrCat("there is no ", key, " '", name, "'"));
}

absl::Status ParsePort(const JsonLine& part, int nic, Topology* topology) {
  C4_TRY(
      CheckKeys(part, "a port", {"leaf"}, {"plane", "gateway", "leaf_port", "rate_mbps", "faulty", "why"}));
  Port port;
  port.nic = nic;
  C4_TRY(GetSwitch(part, true, "servers hang on leaves", *topology, &port.leaf));
  C4_TRY(GetWhole(part, "plane", 0, 7, &port.plane));
  C4_TRY(GetAddress(part, "gateway", &port.gateway));
  C4_TRY(GetText(part, "leaf_port", &port.leaf_port));
  C4_TRY(GetNumber(part, "rate_mbps", 0, kMaxRateMbps, &port.rate_mbps));
  C4_TRY(GetFlag(part, "faulty", &port.faulty));
  C4_TRY(GetText(part, "why", &port.why));
  return Located(part, topology->AddPort(std::move(port)));
}

absl::Status ParseNic(const JsonLine& part, int server, Topology* topology) {
  C4_TRY(CheckKeys(part, "a NIC", {"name", "address", "ports"}, {}));
  std::string name;
  IpAddress address;
  C4_TRY(GetText(part, "name", &name));
  C4_TRY(GetAddress(part, "address", &address));
  const absl::StatusOr<int> nic = topology->AddNic(server, std::move(name), address);
  C4_TRY(Located(part, nic));
  const JsonLine* ports = nullptr;
  C4_TRY(GetList(part, "ports", &ports));
  if (ports->list.size() > 8) return AtLine(ports->line, "a NIC has at most 8 ports");
  for (const JsonLine& port : ports->list) C4_TRY(ParsePort(port, *nic, topology));
  return absl::OkStatus();
}

absl::Status ParseServer(const JsonLine& part, Topology* topology) {
  C4_TRY(CheckKeys(part, "a server", {"name", "nics"}, {}));
  std::string name;
  C4_TRY(GetText(part, "name", &name));
  const absl::StatusOr<int> server = topology->AddServer(std::move(name));
  C4_TRY(Located(part, server));
  const JsonLine* nics = nullptr;
  C4_TRY(GetList(part, "nics", &nics));
  if (nics->list.size() > 64) return AtLine(nics->line, "a server has at most 64 NICs");
  for (const JsonLine& nic : nics->list) C4_TRY(ParseNic(nic, *server, topology));
  return absl::OkStatus();
}

absl::Status ParseUplink(const JsonLine& part, Topology* topology) {
  C4_TRY(
      CheckKeys(part, "an uplink", {"leaf", "spine"},
                {"leaf_address", "spine_address", "leaf_port", "spine_port", "rate_mbps", "faulty", "why"}));
  Uplink uplink;
  C4_TRY(GetSwitch(part, true, "an uplink leads from a leaf to a spine", *topology, &uplink.leaf));
  C4_TRY(GetSwitch(part, false, "an uplink leads from a leaf to a spine", *topology, &uplink.spine));
  C4_TRY(GetAddress(part, "leaf_address", &uplink.leaf_address));
  C4_TRY(GetAddress(part, "spine_address", &uplink.spine_address));
  C4_TRY(GetText(part, "leaf_port", &uplink.leaf_port));
  C4_TRY(GetText(part, "spine_port", &uplink.spine_port));
  C4_TRY(GetNumber(part, "rate_mbps", 0, kMaxRateMbps, &uplink.rate_mbps));
  C4_TRY(GetFlag(part, "faulty", &uplink.faulty));
  C4_TRY(GetText(part, "why", &uplink.why));
  return Located(part, topology->AddUplink(std::move(uplink)));
}

}  // namespace

absl::StatusOr<Topology> ParseTopology(std::string_view text) {
  if (text.find_first_not_of(" \t\r\n") == std::string_view::npos) return AtLine(1, "the file is empty");
  const absl::StatusOr<JsonLine> root = ReadJson(text);
  if (!root.ok()) return root.status();
  C4_TRY(CheckKeys(*root, "a topology", {"leaves", "spines", "servers", "uplinks"}, {"contradictions"}));
  const JsonLine *leaves = nullptr, *spines = nullptr, *servers = nullptr, *uplinks = nullptr;
  C4_TRY(GetList(*root, "leaves", &leaves));
  C4_TRY(GetList(*root, "spines", &spines));
  C4_TRY(GetList(*root, "servers", &servers));
  C4_TRY(GetList(*root, "uplinks", &uplinks));
  if (leaves->list.empty()) return AtLine(leaves->line, "a topology has at least one leaf");
  Topology topology;
  for (const JsonLine& leaf : leaves->list) C4_TRY(ParseSwitch(leaf, true, &topology));
  for (const JsonLine& spine : spines->list) C4_TRY(ParseSwitch(spine, false, &topology));
  for (const JsonLine& server : servers->list) C4_TRY(ParseServer(server, &topology));
  for (const JsonLine& uplink : uplinks->list) C4_TRY(ParseUplink(uplink, &topology));
  return topology;
}

absl::StatusOr<Topology> ReadTopologyFile(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return absl::ErrnoToStatus(errno, absl::StrCat("cannot open the topology ", path));
  std::string text;
  char buffer[65536];
  ssize_t bytes = 0;
  while (text.size() <= kMaxJsonBytes && (bytes = read(fd, buffer, sizeof buffer)) > 0) {
    text.append(buffer, static_cast<size_t>(bytes));
  }
  const int error = errno;
  close(fd);
  if (bytes < 0) return absl::ErrnoToStatus(error, absl::StrCat("cannot read the topology ", path));
  absl::StatusOr<Topology> topology = ParseTopology(text);
  if (topology.ok()) return topology;
  return absl::Status(topology.status().code(),
                      absl::StrCat(path, ", ", std::string(topology.status().message())));
}

}  // namespace c4::c4p
