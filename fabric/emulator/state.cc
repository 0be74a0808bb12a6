#include "fabric/emulator/state.h"

#include <cerrno>
#include <chrono>
#include <fcntl.h>
#include <filesystem>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "fabric/emulator/command.h"

namespace c4::fabric {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr FaultKind kFaultKinds[] = {FaultKind::kBreak, FaultKind::kCut, FaultKind::kSlow, FaultKind::kLoss};

absl::Status MakeStateDir() {
  std::error_code error;
  const fs::path dir = kStateDir;
  // The run directory above is shared by all users, as /tmp.
  if (fs::create_directories(dir.parent_path(), error)) chmod(dir.parent_path().c_str(), 01777);
  fs::create_directory(dir, error);
  if (fs::is_directory(dir, error)) return absl::OkStatus();
  return absl::PermissionDeniedError(absl::StrCat("cannot make ", kStateDir, ": ", error.message()));
}

Json SpecJson(const FabricSpec& spec) {
  return {{"name", spec.name},
          {"leaves", spec.leaves},
          {"spines", spec.spines},
          {"hosts_per_leaf", spec.hosts_per_leaf},
          {"rate_mbps", spec.rate_mbps},
          {"mtu", spec.mtu},
          {"ipv6", spec.ipv6},
          {"ports", PortsName(spec.ports)},
          {"quota_percent", spec.quota_percent},
          {"quota_period_us", spec.quota_period_us},
          {"quota_shares", spec.quota_shares},
          {"convergence", spec.convergence == Convergence::kBird ? "bird" : "delay"},
          {"converge_ms", spec.converge_ms}};
}

absl::StatusOr<FabricSpec> SpecOf(const Json& json) {
  FabricSpec spec;
  json.at("name").get_to(spec.name);
  json.at("leaves").get_to(spec.leaves);
  json.at("spines").get_to(spec.spines);
  json.at("hosts_per_leaf").get_to(spec.hosts_per_leaf);
  json.at("rate_mbps").get_to(spec.rate_mbps);
  json.at("mtu").get_to(spec.mtu);
  spec.ipv6 = json.value("ipv6", false);  // no field: made before there was the choice
  const absl::StatusOr<Ports> ports = ParsePorts(json.at("ports").get<std::string>());
  if (!ports.ok()) return ports.status();
  spec.ports = *ports;
  json.at("quota_percent").get_to(spec.quota_percent);
  json.at("quota_period_us").get_to(spec.quota_period_us);
  spec.quota_shares = json.value("quota_shares", spec.quota_shares);  // no field: an older fabric
  spec.convergence = json.at("convergence") == "bird" ? Convergence::kBird : Convergence::kDelay;
  json.at("converge_ms").get_to(spec.converge_ms);
  if (absl::Status fault = CheckSpec(spec); !fault.ok()) return fault;
  return spec;
}

absl::StatusOr<LinkFault> FaultOf(const FabricSpec& spec, const Json& json) {
  LinkFault fault;
  const std::string kind = json.at("kind"), name = json.at("link");
  bool known = false;
  for (const FaultKind candidate : kFaultKinds) {
    if (kind != FaultName(candidate)) continue;
    fault.kind = candidate;
    known = true;
  }
  if (!known) return absl::InvalidArgumentError(absl::StrCat("unknown fault '", kind, "'"));
  const absl::StatusOr<std::vector<Link>> links = ParseLink(spec, name);
  if (!links.ok()) return links.status();
  fault.link = links->front();
  json.at("rate_mbps").get_to(fault.rate_mbps);
  json.at("per_mille").get_to(fault.per_mille);
  json.at("since_unix_s").get_to(fault.since_unix_s);
  return fault;
}

absl::StatusOr<FabricState> Read(const Json& json) {
  FabricState state;
  absl::StatusOr<FabricSpec> spec = SpecOf(json.at("spec"));
  if (!spec.ok()) return spec.status();
  state.spec = *std::move(spec);
  json.at("management_block").get_to(state.block);
  json.at("since_unix_s").get_to(state.since_unix_s);
  for (const Json& entry : json.at("faults")) {
    absl::StatusOr<LinkFault> fault = FaultOf(state.spec, entry);
    if (!fault.ok()) return fault.status();
    state.faults.push_back(*std::move(fault));
  }
  for (const auto& [name, quota] : json.at("quotas").items()) {
    const absl::StatusOr<int> host = ParseHost(state.spec, name);
    if (!host.ok()) return host.status();
    state.quotas[*host] = quota;
  }
  for (const Json& name : json.value("isolated_hosts", Json::array())) {
    const absl::StatusOr<int> host = ParseHost(state.spec, name.get<std::string>());
    if (!host.ok()) return host.status();
    state.isolated.insert(*host);
  }
  return state;
}

}  // namespace

const char* FaultName(FaultKind kind) {
  switch (kind) {
    case FaultKind::kBreak:
      return "break";
    case FaultKind::kCut:
      return "cut";
    case FaultKind::kSlow:
      return "slow";
    case FaultKind::kLoss:
      return "loss";
  }
  return "?";
}

std::string StateText(const FabricState& state) {
  Json faults = Json::array();
  for (const LinkFault& fault : state.faults) {
    faults.push_back({{"kind", FaultName(fault.kind)},
                      {"link", LinkName(fault.link)},
                      {"rate_mbps", fault.rate_mbps},
                      {"per_mille", fault.per_mille},
                      {"since_unix_s", fault.since_unix_s}});
  }
  Json quotas = Json::object();
  for (const auto& [host, percent] : state.quotas) quotas[HostName(host)] = percent;
  Json isolated = Json::array();
  for (const int host : state.isolated) isolated.push_back(HostName(host));
  const Json json = {{"spec", SpecJson(state.spec)},       {"management_block", state.block},
                     {"since_unix_s", state.since_unix_s}, {"faults", faults},
                     {"isolated_hosts", isolated},         {"quotas", quotas}};
  return json.dump(2) + "\n";
}

absl::StatusOr<FabricState> ParseState(std::string_view text) {
  try {
    return Read(Json::parse(text));
  } catch (const Json::exception& error) {
    return absl::DataLossError(error.what());
  }
}

std::string StatePath(const std::string& name) {
  return absl::StrCat(kStateDir, "/", name, ".json");
}

std::string StateFolder(const std::string& name) {
  return absl::StrCat(kStateDir, "/", name, ".d");
}

absl::StatusOr<FabricState> LoadState(const std::string& name) {
  const std::string text = ReadText(StatePath(name));
  if (text.empty()) {
    return absl::NotFoundError(
        NamespaceExists(name + "-mgmt")
            ? absl::StrCat("fabric ", name, " is there but its state file ", StatePath(name),
                           " is not: take it down with `c4 fabric down ", name, "`")
            : absl::StrCat("no fabric ", name, " is up: `c4 fabric up --name ", name, "` makes one"));
  }
  absl::StatusOr<FabricState> state = ParseState(text);
  if (state.ok()) return state;
  return absl::DataLossError(absl::StrCat(StatePath(name), " cannot be read (", state.status().message(),
                                          "): take the fabric down with `c4 fabric down ", name, "`"));
}

absl::Status SaveState(const FabricState& state) {
  const std::string path = StatePath(state.spec.name), text = StateText(state);
  const std::string temporary = absl::StrCat(path, ".", getpid());
  const int fd = open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd < 0) return absl::ErrnoToStatus(errno, "cannot write " + temporary);
  const bool written = write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  const int error = errno;
  close(fd);
  if (written && rename(temporary.c_str(), path.c_str()) == 0) return absl::OkStatus();
  unlink(temporary.c_str());
  return absl::ErrnoToStatus(written ? errno : error, "cannot write " + path);
}

void RemoveState(const std::string& name) {
  std::error_code ignored;
  fs::remove(StatePath(name), ignored);
  fs::remove_all(StateFolder(name), ignored);
}

std::vector<std::string> StateNames() {
  std::vector<std::string> names;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(kStateDir, error)) {
    if (entry.path().extension() == ".json") names.push_back(entry.path().stem());
  }
  return names;
}

absl::StatusOr<StateLock> StateLock::Take(const std::string& name) {
  if (absl::Status fault = MakeStateDir(); !fault.ok()) return fault;
  const std::string path = absl::StrCat(kStateDir, "/", name, ".lock");
  const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (fd < 0) return absl::ErrnoToStatus(errno, "cannot open " + path);
  while (flock(fd, LOCK_EX) != 0) {
    if (errno == EINTR) continue;
    const int error = errno;
    close(fd);
    return absl::ErrnoToStatus(error, "cannot lock " + path);
  }
  return StateLock(fd);
}

StateLock::~StateLock() {
  if (fd_ >= 0) close(fd_);
}

double UnixNow() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

}  // namespace c4::fabric
