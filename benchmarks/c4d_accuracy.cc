// How right and how fast C4D is (docs/benchmarks.md): seeded random faults, one after the other, in a
// training job on the emulated fabric, each judged by the table of docs/verdicts.md. Also --healthy SECONDS:
// nothing is injected and nothing may be said.
//
// One machine, one run at a time, root. A fault during which the processors were busier than 90 % is void and
// played again: then the machine was what held the job up.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <string>
#include <unistd.h>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cli/base/process.h"
#include "cli/demonstration/fault_range.h"
#include "service/verdict_json.h"

namespace c4::cli {
namespace {

struct Accuracy {
  int faults = 50;
  unsigned seed = 1;
  double healthy_s = 0;
  std::string size = "4x4x4";
  std::string kinds = "stop,cut,slow-link,slow-nic,slow-rank,kill,mismatch,jitter";
  std::string json;
  std::vector<std::string> trainer;  // more arguments of it
  double warm_up_s = 20;
  NetworkTerms network;
};

std::vector<std::string> Split(const std::string& text) {
  std::vector<std::string> words;
  size_t at = 0;
  while (at <= text.size()) {
    const size_t comma = std::min(text.find(',', at), text.size());
    if (comma > at) words.push_back(text.substr(at, comma - at));
    at = comma + 1;
  }
  return words;
}

int Usage() {
  fprintf(
      stderr,
      "c4d_accuracy [--faults N] [--seed N] [--size LxSxH] [--kinds A,B,...] [--healthy SECONDS] [--json "
      "FILE] [--paths 0|1] [--fail-over 0|1] [-- OPTIONS OF hybrid_trainer]\n"
      "--paths 1: C4P runs and knows the paths, a fault of a link is right as that link only; --fail-over 1: "
      "the transport goes around links that are cut\n"
      "seeded faults on an emulated fabric, judged by docs/verdicts.md; exit code 1 when one was not "
      "right\n");
  return 2;
}

void PrintDistribution(const char* name, std::vector<double> times) {
  if (times.empty()) return;
  std::sort(times.begin(), times.end());
  const auto at = [&](double share) {
    return times[static_cast<size_t>(share * static_cast<double>(times.size() - 1))];
  };
  printf("  %-10s %3zu  %6.1f %6.1f %6.1f %6.1f\n", name, times.size(), times.front(), at(0.5), at(0.9),
         times.back());
}

int Report(const FaultJudge& judge, const Accuracy& accuracy) {
  int right = 0;
  std::map<std::string, std::vector<double>> times;
  std::ofstream json;
  if (!accuracy.json.empty()) json.open(accuracy.json);
  json << "{\"seed\": " << accuracy.seed << ", \"faults\": [";
  bool first = true;
  for (const FaultJudgement& judgement : judge.judged()) {
    right += judgement.right() ? 1 : 0;
    const std::string kind = judgement.expected.fault.substr(0, judgement.expected.fault.find(' '));
    if (judgement.confirmed_after_s.has_value()) times[kind].push_back(*judgement.confirmed_after_s);
    json << (first ? "" : ", ") << "{\"fault\": \"" << judgement.expected.fault
         << "\", \"right\": " << (judgement.right() ? "true" : "false")
         << ", \"confirmed_after_s\": " << judgement.confirmed_after_s.value_or(-1) << "}";
    first = false;
    for (const std::string& fault : judgement.faults) {
      printf("NOT RIGHT %s: %s\n", judgement.expected.fault.c_str(), fault.c_str());
    }
    fputs(SuspectedText(judgement).c_str(), stdout);
  }
  json << "], \"right\": " << right << ", \"false_alarms\": " << judge.false_alarms().size() << "}\n";
  for (const FalseAlarm& alarm : judge.false_alarms()) {
    printf("FALSE ALARM %s\n%s", alarm.sentence.c_str(),
           service::VerdictText(alarm.verdict, alarm.verdict.confirmed_unix_ns()).c_str());
  }
  printf("%d of %zu faults right, %zu false alarms\n", right, judge.judged().size(),
         judge.false_alarms().size());
  printf("  seconds to the confirmed verdict\n  %-10s %3s  %6s %6s %6s %6s\n", "kind", "n", "least", "median",
         "90 %", "most");
  for (const auto& [kind, values] : times) PrintDistribution(kind.c_str(), values);
  return right == static_cast<int>(judge.judged().size()) && judge.false_alarms().empty() ? 0 : 1;
}

absl::Status Play(const Accuracy& accuracy, FaultRange* range) {
  if (absl::Status fault = range->Start(); !fault.ok()) return fault;
  if (absl::Status fault = range->AwaitAtWork(3, std::chrono::seconds(60)); !fault.ok()) return fault;
  const absl::StatusOr<bool> warm = range->Watch(std::max(accuracy.warm_up_s, accuracy.healthy_s));
  if (!warm.ok()) return warm.status();
  printf("healthy: %.0f s, processors %.0f %% busy\n", std::max(accuracy.warm_up_s, accuracy.healthy_s),
         100 * range->BusyShare());
  if (accuracy.healthy_s > 0) return absl::OkStatus();
  std::mt19937 random(accuracy.seed);
  const std::vector<std::string> kinds = Split(accuracy.kinds);
  for (int i = 0; i < accuracy.faults; ++i) {
    const absl::StatusOr<fabric::Kind> kind = fabric::ParseKind(kinds[random() % kinds.size()]);
    if (!kind.ok()) return kind.status();
    fabric::Injection injection;
    injection.kind = *kind;
    // A cut of the table's two sorts, three uplinks for each host's link.
    if (*kind == fabric::Kind::kCut && random() % 4 == 0) {
      injection.target =
          absl::StrCat("host", random() % static_cast<unsigned>(range->launcher()->plan().hosts.size()));
    }
    range->BusyShare();
    if (absl::Status fault = range->Play(injection); !fault.ok()) return fault;
    const FaultJudgement& judged = range->judge().judged().back();
    printf("%3d %-28s %s %s busy %.0f %%\n", i + 1, judged.expected.fault.c_str(),
           judged.right() ? "right" : "NOT RIGHT",
           judged.confirmed_after_s.has_value() ? absl::StrFormat("%.1f s", *judged.confirmed_after_s).c_str()
                                                : "-",
           100 * range->BusyShare());
    for (const std::string& fault : judged.faults) printf("      %s\n", fault.c_str());
    fflush(stdout);
    if (fabric::EndsTheJob(*kind)) {
      const absl::StatusOr<bool> again = range->Watch(accuracy.warm_up_s);
      if (!again.ok()) return again.status();
    }
  }
  const absl::StatusOr<bool> rest = range->Watch(kAfterHealS + 1);
  return rest.status();
}

int Run(const Accuracy& accuracy) {
  const absl::StatusOr<std::string> folder = OwnFolder();
  if (!folder.ok()) return 1;
  FaultRangeOptions options;
  fabric::FabricSpec spec;
  spec.name = absl::StrCat("acc", getpid() % 1000);
  if (absl::Status fault = fabric::ParseSize(accuracy.size, &spec); !fault.ok()) {
    fprintf(stderr, "c4d_accuracy: %s\n", std::string(fault.message()).c_str());
    return 2;
  }
  spec.rate_mbps = 200;
  spec.quota_percent = 96.0 / fabric::HostCount(spec);
  spec.quota_period_us = 10000;
  options.spec = spec;
  options.command = {*folder + "/hybrid_trainer", "--seconds", "100000"};
  options.command.insert(options.command.end(), accuracy.trainer.begin(), accuracy.trainer.end());
  options.environment = {"C4_CHUNK_BYTES=32768", "C4_WINDOW_BYTES=131072"};
  options.job = absl::StrCat("accuracy-", getpid());
  options.seed = accuracy.seed;
  options.restarts = accuracy.faults;
  options.network = accuracy.network;
  FaultRange range(std::move(options), [](const std::string& text) {
    printf("    %s\n", text.c_str());
    fflush(stdout);
  });
  const absl::Status played = Play(accuracy, &range);
  range.judge().End(range.NowS());
  const int code = Report(range.judge(), accuracy);
  if (played.ok()) return code;
  fprintf(stderr, "c4d_accuracy: %s\n", std::string(played.message()).c_str());
  return 1;
}

int Main(int argc, char** argv) {
  Accuracy accuracy;
  for (int i = 1; i < argc; i += 2) {
    const std::string name = argv[i];
    if (name == "--") {
      accuracy.trainer.assign(argv + i + 1, argv + argc);
      break;
    }
    if (i + 1 == argc) return Usage();
    const std::string value = argv[i + 1];
    if (name == "--faults") {
      accuracy.faults = atoi(value.c_str());  // NOLINT(cert-err34-c): 0 plays none
    } else if (name == "--seed") {
      accuracy.seed = static_cast<unsigned>(atoi(value.c_str()));  // NOLINT(cert-err34-c): any number will do
    } else if (name == "--size") {
      accuracy.size = value;
    } else if (name == "--kinds") {
      accuracy.kinds = value;
    } else if (name == "--healthy") {
      accuracy.healthy_s = atof(value.c_str());  // NOLINT(cert-err34-c): 0 is none
    } else if (name == "--paths") {
      accuracy.network.paths_known = value == "1";
    } else if (name == "--fail-over") {
      accuracy.network.fail_over = value == "1";
    } else if (name == "--json") {
      accuracy.json = value;
    } else {
      return Usage();
    }
  }
  return Run(accuracy);
}

}  // namespace
}  // namespace c4::cli

int main(int argc, char** argv) {
  return c4::cli::Main(argc, argv);
}
