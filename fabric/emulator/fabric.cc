#include "fabric/emulator/fabric.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <set>
#include <signal.h>
#include <thread>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "fabric/emulator/batch.h"
#include "fabric/emulator/bird.h"
#include "fabric/emulator/cgroup.h"
#include "fabric/emulator/command.h"

namespace c4::fabric {
namespace {

constexpr int kBlocks = 256;
// How long processes that got SIGKILL may take to go.
constexpr int kGoneRounds = 300;

std::vector<Link> BrokenLinks(const FabricState& state) {
  std::vector<Link> down;
  for (const LinkFault& fault : state.faults) {
    if (fault.kind == FaultKind::kBreak) down.push_back(fault.link);
  }
  return down;
}

// A block of management addresses that nobody on this machine uses.
absl::StatusOr<int> FreeBlock() {
  const absl::StatusOr<std::string> addresses = RunCommand({"ip", "-oneline", "-4", "addr", "show"});
  if (!addresses.ok()) return addresses.status();
  std::set<int> taken;
  for (const std::string& name : StateNames()) {
    const absl::StatusOr<FabricState> state = LoadState(name);
    if (state.ok()) taken.insert(state->block);
  }
  for (int block = 0; block < kBlocks; ++block) {
    const bool ours =
        addresses->find(absl::StrCat(" ", ManagementRootAddress(block), "/")) != std::string::npos;
    if (!ours && !taken.contains(block)) return block;
  }
  return absl::ResourceExhaustedError("all 256 management networks are taken: take fabrics down");
}

absl::Status ApplyRate(const FabricState& state, const Link& link) {
  double rate = state.spec.rate_mbps;
  bool slowed = false;
  for (const LinkFault& fault : state.faults) {
    if (fault.link != link || fault.kind != FaultKind::kSlow) continue;
    rate = fault.rate_mbps;
    slowed = true;
  }
  for (const LinkEnd& end : {LowerEnd(state.spec, link), UpperEnd(state.spec, link)}) {
    if (absl::Status fault = RunTc({end.ns, RateText(end.device, rate, slowed)}); !fault.ok()) return fault;
  }
  return absl::OkStatus();
}

absl::Status ApplyDrops(const FabricState& state, const Link& link) {
  int per_mille = 0;
  for (const LinkFault& fault : state.faults) {
    if (fault.link != link) continue;
    if (fault.kind == FaultKind::kCut) per_mille = 1000;
    if (fault.kind == FaultKind::kLoss) per_mille = std::max(per_mille, fault.per_mille);
  }
  for (const LinkEnd& end : {LowerEnd(state.spec, link), UpperEnd(state.spec, link)}) {
    if (absl::Status fault = RunNft({end.ns, DropText(end.device, per_mille)}); !fault.ok()) return fault;
  }
  return absl::OkStatus();
}

absl::Status ApplyCarrier(const FabricState& state, const Link& link) {
  const std::vector<Link> down = BrokenLinks(state);
  const bool broken = std::find(down.begin(), down.end(), link) != down.end();
  // Always the leaf's end: what a host configured on its own device stays.
  const LinkEnd end =
      link.kind == Link::Kind::kUplink ? LowerEnd(state.spec, link) : UpperEnd(state.spec, link);
  return RunIp({end.ns, absl::StrCat("link set ", end.device, broken ? " down\n" : " up\n")});
}

absl::Status ApplyAll(const FabricState& state, const Link& link, FaultKind kind) {
  if (kind == FaultKind::kBreak) return ApplyCarrier(state, link);
  return kind == FaultKind::kSlow ? ApplyRate(state, link) : ApplyDrops(state, link);
}

std::vector<int> ProcessesOf(const std::string& name) {
  std::set<int> pids;
  for (const std::string& ns : NamespaceNames()) {
    if (!IsNamespaceOf(name, ns)) continue;
    for (const int pid : ProcessesIn(ns)) pids.insert(pid);
  }
  for (const int pid : FabricProcesses(name)) pids.insert(pid);
  return {pids.begin(), pids.end()};
}

absl::Status Make(const FabricState& state) {
  const FabricSpec& spec = state.spec;
  if (absl::Status fault = RunIp({"", NamespacesText(spec)}); !fault.ok()) return fault;
  for (int leaf = 0; leaf < spec.leaves; ++leaf) {
    const std::string ns = LeafNamespace(spec, leaf);
    if (absl::Status fault = WriteSysctls(ns, RouterSysctls(spec, ns)); !fault.ok()) return fault;
  }
  for (int spine = 0; spine < spec.spines; ++spine) {
    const std::string ns = SpineNamespace(spec, spine);
    if (absl::Status fault = WriteSysctls(ns, RouterSysctls(spec, ns)); !fault.ok()) return fault;
  }
  for (int host = 0; host < HostCount(spec); ++host) {
    const std::string ns = HostNamespace(spec, host);
    if (absl::Status fault = WriteSysctls(ns, HostSysctls(spec, ns)); !fault.ok()) return fault;
  }
  if (absl::Status fault = WriteSysctls(ManagementNamespace(spec), ManagementSysctls()); !fault.ok())
    return fault;
  if (absl::Status fault = RunIp({"", LinksText(spec)}); !fault.ok()) return fault;
  if (absl::Status fault = RunIp(AddressesText(spec, state.block)); !fault.ok()) return fault;
  if (absl::Status fault = RunIp(FixedRoutesText(spec, state.block)); !fault.ok()) return fault;
  if (absl::Status fault = RunIp(RoutingText(spec, {})); !fault.ok()) return fault;
  if (spec.rate_mbps > 0) {
    for (const Link& link : AllLinks(spec)) {
      if (absl::Status fault = ApplyRate(state, link); !fault.ok()) return fault;
    }
  }
  if (spec.quota_percent > 0 || !CpuHierarchy().empty()) {
    if (absl::Status fault = MakeHostGroups(spec); !fault.ok()) return fault;
  }
  if (spec.convergence == Convergence::kBird) return StartBird(spec);
  return absl::OkStatus();
}

// By what exists; the caller holds the lock.
absl::StatusOr<DownReport> Remove(const std::string& name) {
  DownReport report;
  std::string text;
  for (const std::string& ns : NamespaceNames()) {
    if (!IsNamespaceOf(name, ns)) continue;
    ++report.namespaces;
    absl::StrAppend(&text, "netns del ", ns, "\n");
  }
  std::set<int> ended;
  for (int round = 0; round < kGoneRounds; ++round) {
    const std::vector<int> pids = ProcessesOf(name);
    if (pids.empty()) break;
    for (const int pid : pids) {
      // A caller that is itself inside, and one that only waits to be reaped, need no killing.
      if (pid != getpid() && kill(pid, SIGKILL) == 0) ended.insert(pid);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  report.processes = static_cast<int>(ended.size());
  // The kernel empties a namespace some time after it was deleted; this end must be gone when we return.
  const std::string management = name + "-mgmt";
  if (access(absl::StrCat("/sys/class/net/", management).c_str(), F_OK) == 0) {
    text = absl::StrCat("link del ", management, "\n", text);
  }
  if (absl::Status fault = RunIp({"", text}); !fault.ok()) return fault;
  RemoveFabricGroups(name);
  RemoveState(name);
  return report;
}

}  // namespace

absl::StatusOr<Fabric> Fabric::Up(const FabricSpec& spec) {
  if (absl::Status fault = CheckSpec(spec); !fault.ok()) return fault;
  if (absl::Status fault = CheckRights(); !fault.ok()) return fault;
  if (spec.convergence == Convergence::kBird) {
    if (absl::Status fault = CheckBird(); !fault.ok()) return fault;
  }
  const absl::StatusOr<StateLock> all = StateLock::Take("");
  if (!all.ok()) return all.status();
  const std::vector<std::string> names = Names();
  if (std::find(names.begin(), names.end(), spec.name) != names.end()) {
    return absl::AlreadyExistsError(absl::StrCat("fabric ", spec.name,
                                                 " is up already: take it down with `c4 fabric down ",
                                                 spec.name, "`, or give this one another --name"));
  }
  const absl::StatusOr<int> block = FreeBlock();
  if (!block.ok()) return block.status();
  const FabricState state = {spec, *block, UnixNow(), {}, {}};
  absl::Status made = Make(state);
  if (made.ok()) made = SaveState(state);
  if (made.ok()) return Fabric(spec, *block);
  (void)Remove(spec.name);
  return made;
}

absl::StatusOr<Fabric> Fabric::Open(const std::string& name) {
  absl::StatusOr<FabricState> state = LoadState(name);
  if (!state.ok()) return state.status();
  return Fabric(state->spec, state->block);
}

absl::StatusOr<DownReport> Fabric::Down(const std::string& name) {
  if (absl::Status fault = CheckRights(); !fault.ok()) return fault;
  const std::vector<std::string> names = Names();
  if (std::find(names.begin(), names.end(), name) == names.end()) {
    return absl::NotFoundError(absl::StrCat("no fabric ", name, " is up"));
  }
  const absl::StatusOr<StateLock> all = StateLock::Take("");
  if (!all.ok()) return all.status();
  return Remove(name);
}

std::vector<std::string> Fabric::Names() {
  std::set<std::string> names;
  for (const std::string& name : StateNames()) names.insert(name);
  for (const std::string& ns : NamespaceNames()) {
    const size_t dash = ns.find('-');
    if (dash != std::string::npos && IsNamespaceOf(ns.substr(0, dash), ns)) names.insert(ns.substr(0, dash));
  }
  return {names.begin(), names.end()};
}

absl::StatusOr<FabricStatus> Fabric::Status() const {
  absl::StatusOr<FabricState> state = LoadState(spec_.name);
  if (!state.ok()) return state.status();
  FabricStatus status;
  status.state = *std::move(state);
  for (const std::string& ns : AllNamespaces(spec_)) {
    if (!NamespaceExists(ns)) status.missing.push_back(ns);
  }
  const std::vector<int> birds = BirdProcesses(spec_);
  for (const int pid : ProcessesOf(spec_.name)) {
    if (std::find(birds.begin(), birds.end(), pid) == birds.end()) ++status.processes;
  }
  for (const Link& link : AllLinks(spec_)) {
    LinkStatus entry = {link, false, spec_.rate_mbps, {}};
    for (const LinkFault& fault : status.state.faults) {
      if (fault.link != link) continue;
      entry.faults.push_back(fault.kind);
      if (fault.kind == FaultKind::kSlow) entry.rate_mbps = fault.rate_mbps;
    }
    status.links.push_back(entry);
  }
  // One look at each lower end's namespace, and what the kernel says there.
  std::string ns, devices;
  for (LinkStatus& entry : status.links) {
    const LinkEnd end = LowerEnd(spec_, entry.link);
    if (end.ns != ns) {
      ns = end.ns;
      devices = RunCommand({"ip", "-oneline", "link", "show"}, "", ns).value_or("");
    }
    for (const std::string& line : std::vector<std::string>(absl::StrSplit(devices, '\n'))) {
      if (line.find(absl::StrCat(": ", end.device, "@")) == std::string::npos) continue;
      entry.carrier = line.find("LOWER_UP") != std::string::npos;
    }
  }
  return status;
}

absl::Status Fabric::AddFault(std::string_view target, const LinkFault& wanted, int converge_ms) {
  const absl::StatusOr<std::vector<Link>> links = ParseLink(spec_, target);
  if (!links.ok()) return links.status();
  const absl::StatusOr<StateLock> lock = StateLock::Take(spec_.name);
  if (!lock.ok()) return lock.status();
  absl::StatusOr<FabricState> state = LoadState(spec_.name);
  if (!state.ok()) return state.status();
  const std::vector<NamespaceText> before = RoutingText(spec_, BrokenLinks(*state));
  for (const Link& link : *links) {
    std::erase_if(state->faults,
                  [&](const LinkFault& old) { return old.link == link && old.kind == wanted.kind; });
    LinkFault fault = wanted;
    fault.link = link;
    fault.since_unix_s = UnixNow();
    state->faults.push_back(fault);
  }
  // First on record, so that whoever cleans up after a crash in between finds it.
  if (absl::Status saved = SaveState(*state); !saved.ok()) return saved;
  for (const Link& link : *links) {
    if (absl::Status fault = ApplyAll(*state, link, wanted.kind); !fault.ok()) return fault;
  }
  if (wanted.kind != FaultKind::kBreak || spec_.convergence == Convergence::kBird) return absl::OkStatus();
  std::this_thread::sleep_for(std::chrono::milliseconds(converge_ms < 0 ? spec_.converge_ms : converge_ms));
  return RunIp(Changes(before, RoutingText(spec_, BrokenLinks(*state))));
}

absl::Status Fabric::Break(std::string_view target, int converge_ms) {
  LinkFault fault;
  fault.kind = FaultKind::kBreak;
  return AddFault(target, fault, converge_ms);
}

absl::Status Fabric::Cut(std::string_view target) {
  LinkFault fault;
  fault.kind = FaultKind::kCut;
  return AddFault(target, fault, 0);
}

absl::Status Fabric::Slow(std::string_view target, double rate_mbps) {
  if (!(rate_mbps >= 0.1 && rate_mbps <= 100000)) {
    return absl::InvalidArgumentError("a slow link has 0.1 to 100000 Mbit/s");
  }
  LinkFault fault;
  fault.kind = FaultKind::kSlow;
  fault.rate_mbps = rate_mbps;
  return AddFault(target, fault, 0);
}

absl::Status Fabric::Loss(std::string_view target, int per_mille) {
  if (per_mille < 1 || per_mille > 1000) return absl::InvalidArgumentError("a loss is 1 to 1000 per mille");
  LinkFault fault;
  fault.kind = FaultKind::kLoss;
  fault.per_mille = per_mille;
  return AddFault(target, fault, 0);
}

absl::Status Fabric::Heal(std::string_view target, std::optional<FaultKind> only) {
  const absl::StatusOr<std::vector<Link>> links = ParseLink(spec_, target);
  if (!links.ok()) return links.status();
  const absl::StatusOr<StateLock> lock = StateLock::Take(spec_.name);
  if (!lock.ok()) return lock.status();
  absl::StatusOr<FabricState> state = LoadState(spec_.name);
  if (!state.ok()) return state.status();
  const std::vector<NamespaceText> before = RoutingText(spec_, BrokenLinks(*state));
  std::vector<LinkFault> healed;
  std::erase_if(state->faults, [&](const LinkFault& fault) {
    const bool meant = std::find(links->begin(), links->end(), fault.link) != links->end() &&
                       (!only.has_value() || *only == fault.kind);
    if (meant) healed.push_back(fault);
    return meant;
  });
  for (const LinkFault& fault : healed) {
    if (absl::Status done = ApplyAll(*state, fault.link, fault.kind); !done.ok()) return done;
  }
  if (absl::Status done = RunIp(Changes(before, RoutingText(spec_, BrokenLinks(*state)))); !done.ok())
    return done;
  return SaveState(*state);
}

absl::Status Fabric::HealAll() {
  const absl::StatusOr<FabricState> state = LoadState(spec_.name);
  if (!state.ok()) return state.status();
  for (const LinkFault& fault : state->faults) {
    if (absl::Status done = Heal(LinkName(fault.link)); !done.ok()) return done;
  }
  for (const auto& [host, percent] : state->quotas) {
    if (absl::Status done = SetQuota(host, -1); !done.ok()) return done;
  }
  for (const int host : state->isolated) {
    if (absl::Status done = Isolate(host, false); !done.ok()) return done;
  }
  return absl::OkStatus();
}

absl::Status Fabric::Isolate(int host, bool isolated) {
  if (host < 0 || host >= HostCount(spec_)) return ParseHost(spec_, HostName(host)).status();
  const absl::StatusOr<StateLock> lock = StateLock::Take(spec_.name);
  if (!lock.ok()) return lock.status();
  absl::StatusOr<FabricState> state = LoadState(spec_.name);
  if (!state.ok()) return state.status();
  if (isolated) {
    state->isolated.insert(host);
  } else {
    state->isolated.erase(host);
  }
  const int per_mille = isolated ? 1000 : 0;
  const NamespaceText ends[] = {{HostNamespace(spec_, host), DropText("mgmt0", per_mille)},
                                {ManagementNamespace(spec_), DropText(ManagementDevice(host), per_mille)}};
  for (const NamespaceText& end : ends) {
    if (absl::Status done = RunNft(end); !done.ok()) return done;
  }
  return SaveState(*state);
}

absl::Status Fabric::SetQuota(int host, double percent) {
  if (host < 0 || host >= HostCount(spec_)) return ParseHost(spec_, HostName(host)).status();
  if (percent > 0 && (percent < 0.1 || percent > 100000)) {
    return absl::InvalidArgumentError("a CPU quota is 0.1 to 100000 % of one core, or 0 for none");
  }
  const absl::StatusOr<StateLock> lock = StateLock::Take(spec_.name);
  if (!lock.ok()) return lock.status();
  absl::StatusOr<FabricState> state = LoadState(spec_.name);
  if (!state.ok()) return state.status();
  if (percent < 0) {
    state->quotas.erase(host);
  } else {
    state->quotas[host] = percent;
  }
  if (absl::Status done = SetHostQuota(spec_, host, percent < 0 ? HostQuotaPercent(spec_, host) : percent);
      !done.ok()) {
    return done;
  }
  return SaveState(*state);
}

}  // namespace c4::fabric
