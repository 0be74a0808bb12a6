// c4 mitigate: what could be done about a fail-slow, computed by hand (docs/mitigation.md).
#include <cstdio>
#include <new>
#include <optional>

#include "absl/strings/str_cat.h"
#include "analysis/mitigation/report.h"
#include "cli/exit_codes.h"
#include "cli/options.h"
#include "cli/verbs/ask_master.h"
#include "cli/verbs/mitigation_input.h"
#include "service/printable.h"

namespace c4::cli {
namespace {

constexpr char kSummary[] = "what could be done about a fail-slow: micro-batches, or workers placed anew";
constexpr char kUsage[] =
    "c4 mitigate: what could be done about a fail-slow, computed by hand\n\n"
    "usage: c4 mitigate VERB [OPTIONS]; `c4 mitigate VERB --help` lists the options\n\n"
    "  s2   micro-batches for each data-parallel group, so that the slowest is done\n"
    "       as early as can be\n"
    "  s3   which workers change places, so that what is slow does the least harm\n";

int Refused(const absl::Status& status) {
  fprintf(stderr, "c4 mitigate: %s\n", service::Printable(std::string(status.message())).c_str());
  const bool no_file = absl::IsNotFound(status) || absl::IsPermissionDenied(status);
  return no_file ? kExitNoInput : kExitBadData;
}

int S2(const Arguments& arguments) {
  std::string times;
  int micro_batches = 0;
  int stages = 1;
  bool json = false;
  Options options("mitigate s2", "micro-batches for each data-parallel group, exactly");
  options.Text("--times", &times, "1.0,1.3,...|FILE",
               "seconds of a micro-batch by group, or a file of one a line; required");
  options.Whole("--micro-batches", &micro_batches, 0, static_cast<int>(mitigation::kMostMicroBatches),
                "of all groups together in an iteration");
  options.Whole("--stages", &stages, 1, mitigation::kMostStages,
                "of the pipeline: the time is that of its slowest stage");
  options.Flag("--json", &json, "one JSON document: {\"micro_batches\":[...],\"iteration_s\",...}");
  if (const std::optional<int> exit_code = options.Parse(arguments)) return *exit_code;
  if (times.empty()) return UsageError("mitigate s2", "--times is missing: the time of each group");
  if (micro_batches == 0)
    return UsageError("mitigate s2", "--micro-batches is missing, or 0: how many there are");
  const absl::StatusOr<std::vector<double>> read = ReadGroupTimes(times);
  if (!read.ok()) return Refused(read.status());
  const auto plan = mitigation::DistributeMicroBatches(*read, micro_batches, stages);
  if (!plan.ok()) return Refused(plan.status());
  const std::string text =
      json ? mitigation::MicroBatchJson(*plan) + "\n" : mitigation::MicroBatchText(*read, *plan);
  fputs(text.c_str(), stdout);
  return kExitOk;
}

int S3(const Arguments& arguments) {
  PlacementWords words;
  bool json = false;
  constexpr double kMost = 1e9;
  Options options("mitigate s3", "which workers change places, and what that brings in the model");
  options.Text("--layout", &words.layout, "dp=N,pp=N[,per-node=N]",
               "data-parallel groups, pipeline stages, and workers that a node has room for. A worker is all "
               "tensor-parallel ranks of a stage");
  options.Text("--order", &words.order, "dp|pp",
               "dp: place stage * dp + group is a worker's; pp: place group * pp + stage");
  options.Group("what is slow");
  options.List("--link", &words.links, "NODE:NODE=SHARE",
               "a link, and what is left of its speed, as 2:3=0.1");
  options.List("--nic", &words.nics, "NODE=SHARE", "all links of a node");
  options.List("--slow", &words.slow, "PLACE=TIMES", "a place that computes so many times as long, as 5=1.8");
  options.Group("the job");
  options.Whole("--micro-batches", &words.micro_batches, 1, 65536, "of each group in an iteration");
  options.Real("--forward-ms", &words.forward_ms, 0, kMost, "MS", "of a micro-batch in a stage");
  options.Real("--backward-ms", &words.backward_ms, 0, kMost, "MS", "of a micro-batch in a stage");
  options.Real("--outer-stages", &words.outer, 0.01, 100, "TIMES",
               "how many times as long the first and the last stage compute");
  options.Real("--gradient-mb", &words.gradient_mb, 0, kMost, "MB", "that a rank reduces in each iteration");
  options.Real("--activation-mb", &words.activation_mb, 0, kMost, "MB",
               "of a micro-batch, from stage to stage");
  options.Real("--state-mb", &words.state_mb, 0, kMost, "MB", "parameters and optimizer state of a rank");
  options.Real("--node-gbit", &words.node_gbit_s, 1e-6, kMost, "GBIT/S", "of a rank, from node to node");
  options.Real("--inner-gbit", &words.inner_gbit_s, 1e-6, kMost, "GBIT/S", "within a node");
  options.Real("--latency-us", &words.latency_us, 0, kMost, "US", "of a message");
  options.Group("");
  options.Flag("--json", &json, "one JSON document: {\"before_s\",\"after_s\",\"moves\":[...],...}");
  if (const std::optional<int> exit_code = options.Parse(arguments)) return *exit_code;
  if (words.layout.empty()) return UsageError("mitigate s3", "--layout is missing: dp=4,pp=4");
  const absl::StatusOr<mitigation::PlacedJob> job = ReadPlacedJob(words);
  if (!job.ok()) return Refused(job.status());
  const absl::StatusOr<mitigation::Placement> now = ReadPlacement(words, *job);
  if (!now.ok()) return Refused(now.status());
  const auto plan = mitigation::FindPlacement(*job, *now);
  if (!plan.ok()) return Refused(plan.status());
  const std::string text =
      json ? mitigation::PlacementJson(*job, *plan) + "\n" : mitigation::PlacementText(*job, *plan);
  fputs(text.c_str(), stdout);
  return kExitOk;
}

int RunMitigate(const Arguments& arguments) {
  Arguments rest = arguments;
  const std::string verb = TakeVerb(&rest);
  if (verb == "s2") return S2(rest);
  if (verb == "s3") return S3(rest);
  if (!verb.empty()) return UsageError("mitigate", absl::StrCat("there is no '", verb, "'; say s2 or s3"));
  if (!rest.empty()) {
    if (const std::optional<int> exit_code = HelpOrVersion(rest.front(), kUsage)) return *exit_code;
  }
  return UsageError("mitigate", "say what is to be computed: s2 or s3");
}

}  // namespace

constinit const Verb kMitigateVerb = {"mitigate", kSummary, RunMitigate};

}  // namespace c4::cli
