// c4 fabric: an emulated leaf-spine fabric on this machine, and what can be done to its links.
#include <cstdio>
#include <functional>
#include <map>
#include <optional>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "cli/exit_codes.h"
#include "cli/options.h"
#include "cli/text/fabric_text.h"
#include "cli/verb.h"
#include "fabric/emulator/command.h"
#include "fabric/emulator/fabric.h"
#include "fabric/emulator/topology.h"

namespace c4::cli {
namespace {

using fabric::Fabric;

constexpr char kSummary[] = "make, show, break and heal an emulated leaf-spine fabric on this machine";
constexpr char kUsage[] =
    "c4 fabric: make, show, break and heal an emulated leaf-spine fabric on this machine\n\n"
    "usage: c4 fabric VERB [OPTIONS] ...; `c4 fabric VERB --help` lists the options\n\n"
    "  up [LEAVESxSPINESxHOSTS]    make a fabric; 2x2x1 when no size is given\n"
    "  down [NAME]                 end what runs in it and remove it\n"
    "  status [NAME]               what is up, links, faults in force\n"
    "  topology [NAME]             its topology file, for c4p_master --topology\n"
    "  break LINK                  take the carrier off; remote routers notice later\n"
    "  cut LINK                    drop everything on it in silence\n"
    "  slow LINK MBPS              give it a lower rate\n"
    "  loss LINK PERMILLE          drop some of the packets\n"
    "  quota HOST PERCENT          CPU of a host's ranks, in % of one core; 0: no limit\n"
    "  heal [LINK]                 take the faults off that link, or off everything\n\n"
    "A LINK is leaf0-spine1 or host3. NAME is c4 when none is given; all but down, status\nand topology take "
    "it as --name NAME. All take --json.\n";

int Report(const absl::Status& status) {
  if (status.ok()) return kExitOk;
  if (absl::IsInvalidArgument(status)) return UsageError("fabric", std::string(status.message()));
  fprintf(stderr, "c4 fabric: %s\n", std::string(status.message()).c_str());
  return absl::IsPermissionDenied(status) ? kExitNoRights : kExitFailed;
}

int RunUp(const Arguments& arguments) {
  fabric::FabricSpec spec;
  std::string size = "2x2x1";
  bool json = false;
  std::string ports = "one", convergence = "delay";
  Options options("fabric up",
                  "make a fabric of LEAVESxSPINESxHOSTS, hosts counted a leaf (or pair of leaves)");
  options.Text("--name", &spec.name, "NAME", "begins the names of its namespaces");
  options.Real("--rate", &spec.rate_mbps, 0, 100000, "MBPS",
               "of every link and direction; default: not shaped");
  options.Whole("--mtu", &spec.mtu, 576, 65000, "of every link, in bytes");
  options.Text("--ports", &ports, "one|planes|bonded",
               "of a host: one, two with an address each, or two behind one address");
  options.Real("--quota", &spec.quota_percent, 0, 100000, "PERCENT",
               "CPU of each host's ranks, in % of one core; default: no limit");
  options.Whole("--quota-period-us", &spec.quota_period_us, 1000, 1000000, "of the quota");
  options.Flag("--ipv6", &spec.ipv6, "the data network's addresses are of IPv6");
  options.Text("--convergence", &convergence, "delay|bird", "how routes follow a failure");
  options.Whole("--converge-ms", &spec.converge_ms, 0, 600000,
                "how late the remote routers notice a broken link");
  options.Flag("--json", &json, "say what is up as `c4 fabric status --json` does");
  options.Text("LEAVESxSPINESxHOSTS", &size, "", "how large");
  if (const std::optional<int> exit_code = options.Parse(arguments)) return *exit_code;
  if (absl::Status fault = fabric::ParseSize(size, &spec); !fault.ok()) return Report(fault);
  const absl::StatusOr<fabric::Ports> parsed = fabric::ParsePorts(ports);
  if (!parsed.ok()) return Report(parsed.status());
  spec.ports = *parsed;
  if (convergence != "delay" && convergence != "bird") {
    return UsageError("fabric", absl::StrCat("--convergence is delay or bird, not '", convergence, "'"));
  }
  spec.convergence = convergence == "bird" ? fabric::Convergence::kBird : fabric::Convergence::kDelay;
  const absl::StatusOr<Fabric> made = Fabric::Up(spec);
  if (!made.ok()) return Report(made.status());
  if (json) {
    const absl::StatusOr<fabric::FabricStatus> status = made->Status();
    if (!status.ok()) return Report(status.status());
    fputs(FabricJson(*status).c_str(), stdout);
    return kExitOk;
  }
  printf("fabric %s is up: %d leaves, %d spines, %d hosts\n", spec.name.c_str(), spec.leaves, spec.spines,
         fabric::HostCount(spec));
  return kExitOk;
}

int RunDown(const Arguments& arguments) {
  std::string name = "c4";
  bool json = false;
  Options options("fabric down", "end what runs in a fabric and remove it");
  options.Flag("--json", &json, "one JSON document: {\"fabric\",\"namespaces\",\"processes\"}");
  options.Text("NAME", &name, "", "of the fabric");
  if (const std::optional<int> exit_code = options.Parse(arguments)) return *exit_code;
  const absl::StatusOr<fabric::DownReport> report = Fabric::Down(name);
  if (!report.ok()) return Report(report.status());
  const std::string text = json ? DownJson(name, *report) : DownText(name, *report);
  fputs(text.c_str(), stdout);
  return kExitOk;
}

int RunTopology(const Arguments& arguments) {
  std::string name = "c4";
  Options options("fabric topology", "print a fabric's topology file, JSON (docs/formats/topology.md)");
  options.Text("NAME", &name, "", "of the fabric");
  if (const std::optional<int> exit_code = options.Parse(arguments)) return *exit_code;
  const absl::StatusOr<Fabric> opened = Fabric::Open(name);
  if (!opened.ok()) return Report(opened.status());
  fputs(fabric::TopologyFile(opened->spec()).c_str(), stdout);
  return kExitOk;
}

int RunStatus(const Arguments& arguments) {
  bool json = false;
  std::string only;
  Options options("fabric status", "show what is up, links, faults in force");
  options.Flag("--json", &json, "one JSON document");
  options.Text("NAME", &only, "", "of the fabric; default: all that are up");
  if (const std::optional<int> exit_code = options.Parse(arguments)) return *exit_code;
  const std::vector<std::string> names = only.empty() ? Fabric::Names() : std::vector{only};
  if (json && names.size() > 1) return UsageError("fabric", "several fabrics are up: say which to --json");
  if (names.empty()) {
    fprintf(stderr, "c4 fabric: no fabric is up: `c4 fabric up 2x2x1` makes one\n");
    return kExitFailed;
  }
  for (const std::string& name : names) {
    const absl::StatusOr<Fabric> opened = Fabric::Open(name);
    if (!opened.ok()) return Report(opened.status());
    const absl::StatusOr<fabric::FabricStatus> status = opened->Status();
    if (!status.ok()) return Report(status.status());
    fputs((json ? FabricJson(*status) : FabricText(*status)).c_str(), stdout);
  }
  return kExitOk;
}

absl::StatusOr<double> NumberOf(const std::string& word, const char* what) {
  double value = 0;
  if (absl::SimpleAtod(word, &value) && value >= 0) return value;
  return absl::InvalidArgumentError(absl::StrCat("'", word, "' is no number of ", what));
}

using Words = std::vector<std::string>;

// One of the operations on a fabric that is up.
struct Operation {
  const char* summary;
  std::vector<std::pair<const char*, const char*>> words;  // what it takes, with their help
  bool words_may_miss;
  std::function<absl::Status(Fabric*, const Words&, int converge_ms)> run;
};

absl::Status SlowLink(Fabric* fabric, const Words& words, int) {
  const absl::StatusOr<double> rate = NumberOf(words[1], "Mbit/s");
  return rate.ok() ? fabric->Slow(words[0], *rate) : rate.status();
}

absl::Status LosePackets(Fabric* fabric, const Words& words, int) {
  const absl::StatusOr<double> share = NumberOf(words[1], "lost packets in a thousand");
  return share.ok() ? fabric->Loss(words[0], static_cast<int>(*share)) : share.status();
}

absl::Status LimitHost(Fabric* fabric, const Words& words, int) {
  const absl::StatusOr<int> host = fabric::ParseHost(fabric->spec(), words[0]);
  const absl::StatusOr<double> percent = NumberOf(words[1], "per cent");
  if (!host.ok()) return host.status();
  return percent.ok() ? fabric->SetQuota(*host, *percent) : percent.status();
}

const std::map<std::string, Operation>& Operations() {
  constexpr char kLink[] = "leaf0-spine1 or host3";
  static const std::map<std::string, Operation> operations = {
      {"break",
       {"take the carrier off a link; remote routers notice later",
        {{"LINK", kLink}},
        false,
        [](Fabric* f, const Words& w, int ms) { return f->Break(w[0], ms); }}},
      {"cut",
       {"drop everything on a link in silence",
        {{"LINK", kLink}},
        false,
        [](Fabric* f, const Words& w, int) { return f->Cut(w[0]); }}},
      {"slow",
       {"give a link a lower rate",
        {{"LINK", kLink}, {"MBPS", "the rate of both directions, Mbit/s"}},
        false,
        SlowLink}},
      {"loss",
       {"drop some of a link's packets",
        {{"LINK", kLink}, {"PERMILLE", "how many of a thousand, in each direction"}},
        false,
        LosePackets}},
      {"quota",
       {"limit the CPU of a host's ranks",
        {{"HOST", "host3"}, {"PERCENT", "of one core; 0: no limit"}},
        false,
        LimitHost}},
      {"heal",
       {"take the faults off a link, or off everything",
        {{"LINK", "leaf0-spine1 or host3; default: everything"}},
        true,
        [](Fabric* f, const Words& w, int) { return w[0].empty() ? f->HealAll() : f->Heal(w[0]); }}}};
  return operations;
}

int RunOperation(const std::string& verb, const Operation& operation, const Arguments& arguments) {
  std::string name = "c4";
  int converge_ms = -1;
  bool json = false;
  Words words(operation.words.size());
  Options options("fabric " + verb, operation.summary);
  options.Text("--name", &name, "NAME", "of the fabric");
  if (verb == "break") {
    options.Whole("--converge-ms", &converge_ms, 0, 600000,
                  "how late the remote routers notice; default: as made");
  }
  options.Flag("--json", &json,
               "say what is up then as `c4 fabric status --json` does; else nothing is said");
  for (size_t i = 0; i < words.size(); ++i) {
    const auto& [word, help] = operation.words[i];
    if (operation.words_may_miss) {
      options.Text(word, &words[i], "", help);
    } else {
      options.Word(word, &words[i], help);
    }
  }
  if (const std::optional<int> exit_code = options.Parse(arguments)) return *exit_code;
  if (absl::Status fault = fabric::CheckRights(); !fault.ok()) return Report(fault);
  absl::StatusOr<Fabric> opened = Fabric::Open(name);
  if (!opened.ok()) return Report(opened.status());
  const absl::Status done = operation.run(&*opened, words, converge_ms);
  if (!done.ok() || !json) return Report(done);
  const absl::StatusOr<fabric::FabricStatus> status = opened->Status();
  if (!status.ok()) return Report(status.status());
  fputs(FabricJson(*status).c_str(), stdout);
  return kExitOk;
}

int RunFabric(const Arguments& given) {
  Arguments arguments = given;
  if (arguments.empty()) {
    fputs(kUsage, stderr);
    return kExitUsage;
  }
  if (const std::optional<int> exit_code = HelpOrVersion(arguments[0], kUsage)) return *exit_code;
  const std::string verb = arguments[0];
  arguments.erase(arguments.begin());
  if (verb == "up") return RunUp(arguments);
  if (verb == "down") return RunDown(arguments);
  if (verb == "status") return RunStatus(arguments);
  if (verb == "topology") return RunTopology(arguments);
  const auto found = Operations().find(verb);
  if (found == Operations().end()) {
    return UsageError("fabric", absl::StrCat("there is no `c4 fabric ", verb, "`"));
  }
  return RunOperation(verb, found->second, arguments);
}

}  // namespace

constinit const Verb kFabricVerb = {"fabric", kSummary, RunFabric};

}  // namespace c4::cli
