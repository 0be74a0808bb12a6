#include "fabric/emulator/bird.h"

#include <chrono>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <thread>
#include <unistd.h>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "fabric/emulator/command.h"
#include "fabric/emulator/state.h"

namespace c4::fabric {
namespace {

constexpr int kSpineAs = 65000;
constexpr int kFirstLeafAs = 65100;
constexpr std::chrono::seconds kPatience{15};

std::string Common(const std::string& log, const std::string& router_id) {
  return absl::StrCat(
      "log \"", log, "\" { warning, error, fatal };\nrouter id ", router_id,
      ";\n"
      "protocol device { scan time 10; }\n"
      "protocol bfd {\n"
      "  interface \"*\" { min rx interval 100 ms; min tx interval 100 ms; idle tx interval 1 s; "
      "multiplier 3; };\n"
      "}\n"
      "protocol kernel {\n"
      "  merge paths on limit 128;\n"
      "  ipv4 { import none; export where source != RTS_DEVICE; };\n"
      "}\n");
}

std::string Session(const std::string& name, const std::string& own, int own_as, const std::string& peer,
                    int peer_as, const std::string& import, const std::string& source) {
  return absl::StrCat("protocol bgp ", name, " {\n  local ", own, " as ", own_as, ";\n  neighbor ", peer,
                      " as ", peer_as,
                      ";\n  direct;\n  bfd on;\n  connect delay time 0;\n  connect retry time 1;\n"
                      "  error wait time 1, 2;\n  hold time 9;\n  ipv4 { import ",
                      import, "; export where source = ", source, "; next hop self; };\n}\n");
}

std::string File(const std::string& folder, const std::string& ns, const char* end) {
  return absl::StrCat(folder, "/", ns, end);
}

absl::Status StartOne(const std::string& ns, const std::string& folder, const std::string& text) {
  const std::string configuration = File(folder, ns, ".conf");
  std::ofstream(configuration) << text;
  return RunCommand(
             {"bird", "-c", configuration, "-s", File(folder, ns, ".ctl"), "-P", File(folder, ns, ".pid")},
             "", ns)
      .status();
}

// Hosts of other leaves have to be reached over every spine.
bool Converged(const FabricSpec& spec) {
  for (int leaf = 0; leaf < spec.leaves; ++leaf) {
    const absl::StatusOr<std::string> routes =
        RunCommand({"ip", "-oneline", "route", "show", "proto", "bird"}, "", LeafNamespace(spec, leaf));
    if (!routes.ok()) return false;
    int complete = 0;
    for (const std::string& line :
         std::vector<std::string>(absl::StrSplit(*routes, '\n', absl::SkipEmpty()))) {
      int ways = 0;
      for (size_t at = 0; (at = line.find(" via ", at)) != std::string::npos; ++at) ++ways;
      if (ways >= spec.spines) ++complete;
    }
    if (complete < (spec.leaves - 1) * spec.hosts_per_leaf) return false;
  }
  return true;
}

}  // namespace

std::string LeafBirdText(const FabricSpec& spec, int leaf, const std::string& folder) {
  std::string text = Common(File(folder, LeafNamespace(spec, leaf), ".log"), absl::StrCat("10.255.0.", leaf));
  absl::StrAppend(&text, "protocol direct { ipv4 { import all; }; interface \"h*\"; }\n");
  for (int spine = 0; spine < spec.spines; ++spine) {
    text += Session(absl::StrCat("spine", spine), LeafUplinkAddress(spec, leaf, spine), kFirstLeafAs + leaf,
                    SpineDownlinkAddress(spec, leaf, spine), kSpineAs,
                    absl::StrCat("where net !~ [10.", leaf, ".0.0/16+]"), "RTS_DEVICE");
  }
  return text;
}

std::string SpineBirdText(const FabricSpec& spec, int spine, const std::string& folder) {
  std::string text =
      Common(File(folder, SpineNamespace(spec, spine), ".log"), absl::StrCat("10.255.1.", spine));
  for (int leaf = 0; leaf < spec.leaves; ++leaf) {
    text += Session(absl::StrCat("leaf", leaf), SpineDownlinkAddress(spec, leaf, spine), kSpineAs,
                    LeafUplinkAddress(spec, leaf, spine), kFirstLeafAs + leaf, "all", "RTS_BGP");
  }
  return text;
}

absl::Status CheckBird() {
  for (const char* path : {"/usr/sbin/bird", "/usr/bin/bird", "/sbin/bird"}) {
    if (access(path, X_OK) == 0) return absl::OkStatus();
  }
  return absl::FailedPreconditionError(
      "`bird` is not installed: apt-get install bird2, or use --convergence delay");
}

absl::Status StartBird(const FabricSpec& spec) {
  const std::string folder = StateFolder(spec.name);
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  for (int leaf = 0; leaf < spec.leaves; ++leaf) {
    if (absl::Status fault = StartOne(LeafNamespace(spec, leaf), folder, LeafBirdText(spec, leaf, folder));
        !fault.ok()) {
      return fault;
    }
  }
  for (int spine = 0; spine < spec.spines; ++spine) {
    if (absl::Status fault =
            StartOne(SpineNamespace(spec, spine), folder, SpineBirdText(spec, spine, folder));
        !fault.ok()) {
      return fault;
    }
  }
  const auto until = std::chrono::steady_clock::now() + kPatience;
  while (!Converged(spec)) {
    if (std::chrono::steady_clock::now() >= until) {
      return absl::DeadlineExceededError(
          absl::StrCat("BIRD has not learnt all routes within ", kPatience.count(), " s"));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  return absl::OkStatus();
}

std::vector<int> BirdProcesses(const FabricSpec& spec) {
  std::vector<int> pids;
  for (const std::string& ns : AllNamespaces(spec)) {
    int pid = 0;
    if (absl::SimpleAtoi(ReadText(File(StateFolder(spec.name), ns, ".pid")), &pid)) pids.push_back(pid);
  }
  return pids;
}

}  // namespace c4::fabric
