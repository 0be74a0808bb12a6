// c4 fabric: an emulated leaf-spine fabric on this machine, and what can be done to its links.
#include <cstdio>
#include <functional>
#include <map>
#include <optional>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "cli/exit_codes.h"
#include "cli/fabric_text.h"
#include "cli/options.h"
#include "cli/verb.h"
#include "fabric/emulator/command.h"
#include "fabric/emulator/fabric.h"
#include "fabric/emulator/topology.h"

namespace c4::cli {
namespace {

using fabric::Fabric;

constexpr char kSummary[] = "make, show, break and heal an emulated leaf-spine fabric on this machine";
constexpr char kUsage[] =
    "usage: c4 fabric VERB ...\n\n"
    "  up LEAVESxSPINESxHOSTS      make a fabric (--help lists how)\n"
    "  down [NAME]                 end what runs in it and remove it\n"
    "  status [NAME] [--json]      what is up, links, faults in force\n"
    "  topology [NAME]             its topology file, for c4p_master --topology\n"
    "  break LINK [--converge-ms]  take the carrier off; remote routers notice later\n"
    "  cut LINK                    drop everything on it in silence\n"
    "  slow LINK MBPS              give it a lower rate\n"
    "  loss LINK PERMILLE          drop some of the packets\n"
    "  quota HOST PERCENT          CPU of a host's ranks, in % of one core; 0: no limit\n"
    "  heal [LINK]                 take the faults off that link, or off everything\n\n"
    "A LINK is leaf0-spine1 or host3; all but up, down, status and topology take --name NAME (default c4).\n";

int Report(const absl::Status& status) {
  if (status.ok()) return kExitOk;
  if (absl::IsInvalidArgument(status)) return UsageError("fabric", std::string(status.message()));
  fprintf(stderr, "c4 fabric: %s\n", std::string(status.message()).c_str());
  return absl::IsPermissionDenied(status) ? kExitNoRights : kExitFailed;
}

// The words in front of the first option.
std::vector<std::string> TakeWords(Arguments* arguments) {
  std::vector<std::string> words;
  while (!arguments->empty() && !arguments->front().starts_with("-")) {
    words.push_back(arguments->front());
    arguments->erase(arguments->begin());
  }
  return words;
}

int RunUp(const std::vector<std::string>& words, const Arguments& arguments) {
  fabric::FabricSpec spec;
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
  options.Text("--convergence", &convergence, "delay|bird", "how routes follow a failure");
  options.Whole("--converge-ms", &spec.converge_ms, 0, 600000,
                "how late the remote routers notice a broken link");
  if (const std::optional<int> exit_code = options.Parse(arguments)) return *exit_code;
  if (words.size() != 1) return UsageError("fabric", "say how large: c4 fabric up LEAVESxSPINESxHOSTS");
  if (absl::Status fault = fabric::ParseSize(words[0], &spec); !fault.ok()) return Report(fault);
  const absl::StatusOr<fabric::Ports> parsed = fabric::ParsePorts(ports);
  if (!parsed.ok()) return Report(parsed.status());
  spec.ports = *parsed;
  if (convergence != "delay" && convergence != "bird") {
    return UsageError("fabric", absl::StrCat("--convergence is delay or bird, not '", convergence, "'"));
  }
  spec.convergence = convergence == "bird" ? fabric::Convergence::kBird : fabric::Convergence::kDelay;
  const absl::StatusOr<Fabric> made = Fabric::Up(spec);
  if (!made.ok()) return Report(made.status());
  printf("fabric %s is up: %d leaves, %d spines, %d hosts\n", spec.name.c_str(), spec.leaves, spec.spines,
         fabric::HostCount(spec));
  return kExitOk;
}

int RunDown(const std::vector<std::string>& words, const Arguments& arguments) {
  Options options("fabric down", "end what runs in a fabric and remove it");
  if (const std::optional<int> exit_code = options.Parse(arguments)) return *exit_code;
  if (words.size() > 1) return UsageError("fabric", "down takes one name");
  const std::string name = words.empty() ? "c4" : words[0];
  const absl::StatusOr<fabric::DownReport> report = Fabric::Down(name);
  if (!report.ok()) return Report(report.status());
  printf("fabric %s is down: %d namespaces removed, %d processes ended\n", name.c_str(), report->namespaces,
         report->processes);
  return kExitOk;
}

int RunTopology(const std::vector<std::string>& words, const Arguments& arguments) {
  Options options("fabric topology", "print a fabric's topology file (docs/formats/topology.md)");
  if (const std::optional<int> exit_code = options.Parse(arguments)) return *exit_code;
  if (words.size() > 1) return UsageError("fabric", "topology takes one name");
  const absl::StatusOr<Fabric> opened = Fabric::Open(words.empty() ? "c4" : words[0]);
  if (!opened.ok()) return Report(opened.status());
  fputs(fabric::TopologyFile(opened->spec()).c_str(), stdout);
  return kExitOk;
}

int RunStatus(const std::vector<std::string>& words, const Arguments& arguments) {
  bool json = false;
  Options options("fabric status", "show what is up, links, faults in force");
  options.Flag("--json", &json, "one JSON document");
  if (const std::optional<int> exit_code = options.Parse(arguments)) return *exit_code;
  if (words.size() > 1) return UsageError("fabric", "status takes one name");
  std::vector<std::string> names = words;
  if (names.empty()) names = Fabric::Names();
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

// One of the operations on a fabric that is up.
struct Operation {
  const char* words;  // what it takes
  size_t least_words;
  size_t most_words;
  std::function<absl::Status(Fabric*, const std::vector<std::string>&, int converge_ms)> run;
};

const std::map<std::string, Operation>& Operations() {
  using Words = std::vector<std::string>;
  static const std::map<std::string, Operation> operations = {
      {"break", {"LINK", 1, 1, [](Fabric* f, const Words& w, int ms) { return f->Break(w[0], ms); }}},
      {"cut", {"LINK", 1, 1, [](Fabric* f, const Words& w, int) { return f->Cut(w[0]); }}},
      {"slow",
       {"LINK MBPS", 2, 2,
        [](Fabric* f, const Words& w, int) {
          const absl::StatusOr<double> rate = NumberOf(w[1], "Mbit/s");
          return rate.ok() ? f->Slow(w[0], *rate) : rate.status();
        }}},
      {"loss",
       {"LINK PERMILLE", 2, 2,
        [](Fabric* f, const Words& w, int) {
          const absl::StatusOr<double> share = NumberOf(w[1], "lost packets in a thousand");
          return share.ok() ? f->Loss(w[0], static_cast<int>(*share)) : share.status();
        }}},
      {"quota",
       {"HOST PERCENT", 2, 2,
        [](Fabric* f, const Words& w, int) {
          const absl::StatusOr<int> host = fabric::ParseHost(f->spec(), w[0]);
          const absl::StatusOr<double> percent = NumberOf(w[1], "per cent");
          if (!host.ok()) return host.status();
          return percent.ok() ? f->SetQuota(*host, *percent) : percent.status();
        }}},
      {"heal", {"[LINK]", 0, 1, [](Fabric* f, const Words& w, int) {
                  return w.empty() ? f->HealAll() : f->Heal(w[0]);
                }}}};
  return operations;
}

int RunFabric(const Arguments& given) {
  Arguments arguments = given;
  if (arguments.empty() || arguments[0] == "--help" || arguments[0] == "-h") {
    fputs(kUsage, arguments.empty() ? stderr : stdout);
    return arguments.empty() ? kExitUsage : kExitOk;
  }
  const std::string verb = arguments[0];
  arguments.erase(arguments.begin());
  const std::vector<std::string> words = TakeWords(&arguments);
  if (verb == "up") return RunUp(words, arguments);
  if (verb == "down") return RunDown(words, arguments);
  if (verb == "status") return RunStatus(words, arguments);
  if (verb == "topology") return RunTopology(words, arguments);
  const auto found = Operations().find(verb);
  if (found == Operations().end()) {
    return UsageError("fabric", absl::StrCat("there is no `c4 fabric ", verb, "`"));
  }
  const Operation& operation = found->second;
  std::string name = "c4";
  int converge_ms = -1;
  Options options("fabric " + verb, "takes " + std::string(operation.words));
  options.Text("--name", &name, "NAME", "of the fabric");
  if (verb == "break") {
    options.Whole("--converge-ms", &converge_ms, 0, 600000,
                  "how late the remote routers notice; default: as made");
  }
  if (const std::optional<int> exit_code = options.Parse(arguments)) return *exit_code;
  if (words.size() < operation.least_words || words.size() > operation.most_words) {
    return UsageError("fabric", absl::StrCat(verb, " takes ", operation.words));
  }
  if (absl::Status fault = fabric::CheckRights(); !fault.ok()) return Report(fault);
  absl::StatusOr<Fabric> opened = Fabric::Open(name);
  if (!opened.ok()) return Report(opened.status());
  return Report(operation.run(&*opened, words, converge_ms));
}

}  // namespace

constinit const Verb kFabricVerb = {"fabric", kSummary, RunFabric};

}  // namespace c4::cli
