// c4 replay: what the master says about a recording; the same code, in the recording's time.
#include <cstdio>
#include <filesystem>
#include <fstream>

#include "c4d_master/recording.h"
#include "cli/exit_codes.h"
#include "cli/options.h"
#include "cli/text/gallery_text.h"
#include "cli/text/matrix_text.h"
#include "cli/text/verdict_exit.h"
#include "cli/verb.h"
#include "service/verdict_json.h"

namespace c4::cli {
namespace {

constexpr char kSummary[] = "diagnose a recording again";

// Whoever made a recording may say beside it, in FILE with the ending .fault, what was injected.
std::string FaultNote(const std::string& recording) {
  std::ifstream file(std::filesystem::path(recording).replace_extension(".fault"));
  std::string line;
  std::getline(file, line);
  return line;
}

// Which policy judges here, and which one did when the job ran where that was another.
std::string JudgedBy(const std::vector<std::string>& recorded, const c4d::Policy& policy) {
  const std::string here = c4d::PolicyVersion(policy);
  std::string text = "judged by policy " + here;
  if (recorded.empty() || (recorded.size() == 1 && recorded[0] == here)) return text;
  text += "; the job was judged by " + recorded[0];
  for (size_t i = 1; i < recorded.size(); ++i) text += ", then " + recorded[i];
  return text;
}

int RunReplay(const Arguments& arguments) {
  std::string file;
  std::string policy_file;
  bool json = false;
  bool matrix = false;
  bool gallery = false;
  Options options("replay", kSummary);
  options.Word("FILE", &file, "a recording of `c4 record`");
  options.Flag("--json", &json,
               "one JSON document {\"job\",\"verdicts\":[...]}, or of the matrix with --matrix");
  options.Flag("--matrix", &matrix, "the latency matrix at the last change of a verdict, else at the end");
  options.Flag(
      "--gallery", &gallery,
      "a page in Markdown: each confirmed verdict, what the master saw then, why nobody else is blamed");
  options.Text("--policy", &policy_file, "FILE",
               "judge by these thresholds (c4 policy); default: the ones that are built in");
  if (const std::optional<int> exit_code = options.Parse(arguments)) return *exit_code;
  c4d::Policy policy;
  if (!policy_file.empty()) {
    const absl::StatusOr<c4d::Policy> loaded = c4d::LoadPolicy(policy_file);
    if (!loaded.ok()) {
      fprintf(stderr, "c4 replay: %s\n", std::string(loaded.status().message()).c_str());
      return kExitUsage;
    }
    policy = *loaded;
  }
  const absl::StatusOr<c4d::Replay> replay = c4d::ReplayRecording(file, policy);
  if (!replay.ok()) {
    fprintf(stderr, "c4 replay: %s\n", std::string(replay.status().message()).c_str());
    return kExitUsage;
  }
  if (!replay->end.ok()) fprintf(stderr, "c4 replay: %s\n", std::string(replay->end.message()).c_str());
  if (gallery) {
    fputs(GalleryText(std::filesystem::path(file).stem().string(), FaultNote(file), *replay).c_str(), stdout);
    return kExitOk;
  }
  if (matrix) {
    const std::string text = json ? MatrixJson(replay->matrix) + "\n"
                                  : MatrixText(replay->matrix, MatrixBy::kRank, ScreenOf(stdout));
    fputs(text.c_str(), stdout);
    return kExitOk;
  }
  if (json) {
    printf("%s\n", service::VerdictListJson(replay->verdicts, 2).c_str());
    return VerdictsExitCode(replay->verdicts.verdicts());
  }
  for (const c4d::ReplayChange& change : replay->changes) {
    printf("%7.1f s  %s\n", static_cast<double>(change.since_begin_ns) / 1e9,
           service::VerdictLine(change.verdict, change.unix_ns).c_str());
  }
  for (const v1::Verdict& verdict : replay->verdicts.verdicts()) {
    printf("\n%s", service::VerdictText(verdict, replay->end_unix_ns).c_str());
  }
  printf("%llu batches, %d verdicts, %s\n", static_cast<unsigned long long>(replay->batches),
         replay->verdicts.verdicts_size(), JudgedBy(replay->recorded_policies, policy).c_str());
  return VerdictsExitCode(replay->verdicts.verdicts());
}

}  // namespace

constinit const Verb kReplayVerb = {"replay", kSummary, RunReplay};

}  // namespace c4::cli
