// c4 demo: a stopped rank, named in five seconds.
#include <cerrno>
#include <cstdio>
#include <fstream>

#include "cli/demo.h"
#include "cli/exit_codes.h"
#include "cli/options.h"
#include "cli/verb.h"

namespace c4::cli {
namespace {

constexpr char kSummary[] = "stop one of four ranks and see the monitor name it";

void PrintFaults(const DemoJudge& judge) {
  for (const DemoPhase& phase : judge.phases()) {
    for (const std::string& fault : phase.faults) {
      fprintf(stderr, "c4 demo: after %s: %s\n", phase.injected.c_str(), fault.c_str());
    }
  }
}

int RunDemo(const Arguments& arguments) {
  std::string json_path;
  int ranks = 4;
  Options options("demo", kSummary);
  options.Text("--json", &json_path, "FILE", "write what was injected and what was said to FILE");
  options.Whole("--ranks", &ranks, 3, 64, "how many ranks; rank 2 is the one that is stopped");
  if (const std::optional<int> exit_code = options.Parse(arguments)) return *exit_code;

  Demo demo(ranks);
  const absl::Status played = demo.Play();
  if (absl::IsCancelled(played)) {
    fprintf(stderr, "c4 demo: interrupted; everything is ended\n");
    return demo.launcher_exit_code();
  }
  const DemoJudge* judge = demo.judge();
  if (judge == nullptr) {
    fprintf(stderr, "c4 demo: %s\n", std::string(played.message()).c_str());
    return kExitLauncher;
  }
  PrintFaults(*judge);
  const bool right = played.ok() && judge->AllRight();
  printf("%s: %d false alarms\n", right ? "ALL RIGHT" : "NOT RIGHT", judge->false_alarms());
  if (!json_path.empty()) {
    std::ofstream file(json_path);
    file << DemoReportJson(*judge);
    file.close();
    if (!file) {
      fprintf(stderr, "c4 demo: cannot write %s\n", json_path.c_str());
      return kExitLauncher;
    }
  }
  return right ? kExitOk : kExitFailed;
}

}  // namespace

constinit const Verb kDemoVerb = {"demo", kSummary, RunDemo};

}  // namespace c4::cli
