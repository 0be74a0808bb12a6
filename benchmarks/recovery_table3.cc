// The C4 paper's table 3, from faults that are really played (docs/benchmarks.md): forty by the mix of its
// table 1, in a training job on the emulated fabric, in unscaled seconds, once with C4D and once without; and
// the month that arithmetic makes of them, which is a model.
//
//   recovery_table3 [--json FILE] [--seed N] [--faults N] [--only with|without] [--log-dir DIR]
//   recovery_table3 --in-a-row N [--seed N] [--json FILE] [--log-dir DIR]
//
// --in-a-row: N seeded faults in one job, one after the other, some while it is brought back; judged at the
// end against a run without any from the beginning. Exit code 1 when something of that does not hold.
// One machine, one run at a time, root.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <unistd.h>
#include <vector>

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "benchmarks/faults_in_a_row.h"
#include "benchmarks/recovery_trial.h"
#include "benchmarks/statistics.h"

namespace c4::benchmarks {
namespace {

struct Options {
  std::string json;
  std::string log_dir;
  unsigned seed = 1;
  int faults = 40;
  int in_a_row = 0;
  bool with = true;
  bool without = true;
};

int Usage() {
  fputs(
      "recovery_table3 [--json FILE] [--seed N] [--faults N] [--only with|without] [--log-dir DIR]\n"
      "recovery_table3 --in-a-row N [--seed N] [--json FILE] [--log-dir DIR]\n",
      stderr);
  return 64;
}

void Say(const std::string& text) {
  printf("    %s\n", text.c_str());
  fflush(stdout);
}

nlohmann::json JsonOf(const std::vector<PlayedFault>& played) {
  nlohmann::json list = nlohmann::json::array();
  for (const PlayedFault& fault : played) {
    list.push_back({{"root_cause", fault.planned.root_cause},
                    {"fault", fault.name},
                    {"interrupted", fault.cost.interrupted},
                    {"hung", fault.cost.hung},
                    {"detection_s", fault.cost.detection_s},
                    {"isolation_s", fault.cost.isolation_s},
                    {"re_initialisation_s", fault.cost.initialisation_s},
                    {"verdict_to_iteration_s", fault.verdict_to_iteration_s},
                    {"lost_work_s", fault.lost_work_s},
                    {"standstill_s", fault.standstill_s},
                    {"isolated", fault.isolated}});
  }
  return list;
}

nlohmann::json JsonOf(const Month& month) {
  return {{"post_checkpoint", month.lost_work},
          {"detection", month.detection},
          {"diagnosis_and_isolation", month.isolation},
          {"re_initialisation", month.initialisation},
          {"total", month.total()}};
}

std::vector<FaultCost> CostsOf(const std::vector<PlayedFault>& played) {
  std::vector<FaultCost> costs;
  for (const PlayedFault& fault : played) costs.push_back(fault.cost);
  return costs;
}

void PrintMeasured(const char* name, const std::vector<PlayedFault>& played) {
  std::vector<double> all;
  int interrupted = 0, hung = 0;
  FaultCost sum;
  for (const PlayedFault& fault : played) {
    hung += fault.cost.hung ? 1 : 0;
    if (!fault.cost.interrupted) continue;
    ++interrupted;
    if (!fault.cost.hung) sum.detection_s += fault.cost.detection_s;
    sum.isolation_s += fault.cost.isolation_s;
    sum.initialisation_s += fault.cost.initialisation_s;
    if (fault.verdict_to_iteration_s >= 0) all.push_back(fault.verdict_to_iteration_s);
  }
  printf("measured %s: %zu faults, the job was started again after %d", name, played.size(), interrupted);
  if (hung > 0) printf(", %d of them hung for as long as was waited", hung);
  printf("\n  seconds of all together: detection %.1f, isolation %.1f, re-initialisation %.1f\n",
         sum.detection_s, sum.isolation_s, sum.initialisation_s);
  if (all.empty()) return;
  printf("  from the confirmed verdict to the first new iteration: median %.1f s, most %.1f s\n", Median(all),
         *std::max_element(all.begin(), all.end()));
}

void PrintMonths(const std::vector<std::pair<std::string, Month>>& months) {
  printf("\nSHARE OF A MONTH (MODELLED)           POST-CHECKPOINT  DETECTION  ISOLATION  RE-INIT    TOTAL\n");
  for (const auto& [name, month] : months) {
    printf("%-38s %13.2f %% %8.3f %% %8.3f %% %6.3f %% %6.2f %%\n", name.c_str(), 100 * month.lost_work,
           100 * month.detection, 100 * month.isolation, 100 * month.initialisation, 100 * month.total());
  }
}

int MakeTable(const Options& options) {
  nlohmann::json json = {{"seed", options.seed}};
  std::vector<std::pair<std::string, Month>> months;
  std::vector<PlannedFault> plan = FaultsOfTable1(options.seed);
  plan.resize(std::min(plan.size(), static_cast<size_t>(options.faults)));
  TrainerTerms terms;
  terms.log_dir = options.log_dir;
  bool all_right = true;
  for (const bool with : {true, false}) {
    if (!(with ? options.with : options.without)) continue;
    const absl::StatusOr<std::vector<PlayedFault>> played = PlayFaults(plan, with, options.seed, terms, Say);
    if (!played.ok()) {
      fprintf(stderr, "recovery_table3: %s\n", std::string(played.status().message()).c_str());
      return 1;
    }
    PrintMeasured(with ? "with C4D" : "without C4D", *played);
    json[with ? "with_c4d" : "without_c4d"]["faults"] = JsonOf(*played);
    const bool missed =
        std::any_of(played->begin(), played->end(), [](const PlayedFault& fault) { return fault.cost.hung; });
    all_right = all_right && !(with && missed);
    const std::vector<FaultCost> costs = CostsOf(*played);
    if (with) {
      months.emplace_back("with C4D", MonthOf(costs, {}));
      // A large job takes as long to begin as the paper's did: 0.6 % of a month for forty.
      Month large = MonthOf(costs, {});
      large.initialisation = kPaperJune.initialisation;
      months.emplace_back("with C4D, the paper's re-init", large);
    } else {
      MonthTerms june;
      june.diagnosis_s = kPaperJune.isolation * june.month_s / 40;
      june.checkpoint_every_s = 2 * kPaperJune.lost_work * june.month_s / 40;
      months.emplace_back("without, the paper's diagnosis", MonthOf(costs, june));
    }
  }
  months.emplace_back("the paper, June 2023 (without)", kPaperJune);
  months.emplace_back("the paper, December 2023 (with)", kPaperDecember);
  PrintMonths(months);
  for (const auto& [name, month] : months) json["month_modelled"][name] = JsonOf(month);
  if (!options.json.empty()) std::ofstream(options.json) << json.dump(1) << "\n";
  return all_right ? 0 : 1;
}

int PlayInARow(const Options& options) {
  const absl::StatusOr<RowResult> result = FaultsInARow(options.in_a_row, options.seed, options.log_dir, Say);
  if (!result.ok()) {
    fprintf(stderr, "recovery_table3: %s\n", std::string(result.status().message()).c_str());
    return 1;
  }
  printf(
      "%d faults in a row, %d of them while the job was being brought back; it runs again after each\n"
      "  %d incidents, %d nodes isolated, at most %d of %d at a time\n"
      "  from the confirmed verdict to the first new iteration: median %.1f s, most %.1f s\n"
      "  %zu iterations are compared with a run without faults, and the weights at the end\n",
      result->faults, result->during, result->incidents, result->isolations, result->most_out, result->cap,
      Median(result->verdict_to_iteration_s),
      result->verdict_to_iteration_s.empty()
          ? 0
          : *std::max_element(result->verdict_to_iteration_s.begin(), result->verdict_to_iteration_s.end()),
      result->compared);
  for (const std::string& wrong : result->wrong) printf("NOT RIGHT %s\n", wrong.c_str());
  if (!options.json.empty()) {
    std::ofstream(options.json) << nlohmann::json({{"seed", options.seed},
                                                   {"faults", result->faults},
                                                   {"during_recovery", result->during},
                                                   {"incidents", result->incidents},
                                                   {"isolations", result->isolations},
                                                   {"most_out", result->most_out},
                                                   {"cap", result->cap},
                                                   {"verdict_to_iteration_s", result->verdict_to_iteration_s},
                                                   {"compared", result->compared},
                                                   {"wrong", result->wrong}})
                                       .dump(1)
                                << "\n";
  }
  return result->wrong.empty() ? 0 : 1;
}

int Main(int argc, char** argv) {
  Options options;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string name = argv[i];
    const std::string value = argv[i + 1];
    const int number = atoi(value.c_str());  // NOLINT(cert-err34-c): 0 is refused where it matters
    if (name == "--json") {
      options.json = value;
    } else if (name == "--log-dir") {
      options.log_dir = value;
    } else if (name == "--seed") {
      options.seed = static_cast<unsigned>(number);
    } else if (name == "--faults" && number > 0) {
      options.faults = number;
    } else if (name == "--in-a-row" && number > 0) {
      options.in_a_row = number;
    } else if (name == "--only" && (value == "with" || value == "without")) {
      options.with = value == "with";
      options.without = !options.with;
    } else {
      return Usage();
    }
  }
  if (argc % 2 == 0) return Usage();
  return options.in_a_row > 0 ? PlayInARow(options) : MakeTable(options);
}

}  // namespace
}  // namespace c4::benchmarks

int main(int argc, char** argv) {
  return c4::benchmarks::Main(argc, argv);
}
