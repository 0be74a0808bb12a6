// c4 jobs: the jobs that `c4 run` started, those that run and those that are over.
#include <cstdio>

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "cli/exit_codes.h"
#include "cli/launch/job_log.h"
#include "cli/options.h"
#include "cli/text/screen.h"
#include "cli/text/status_text.h"
#include "cli/text/table.h"
#include "cli/text/verdict_text.h"
#include "cli/verb.h"
#include "cli/verbs/ended_job.h"
#include "service/printable.h"

namespace c4::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr char kSummary[] = "list the jobs of `c4 run`, those that ended too";

std::string JobsJson(const std::vector<JobRecord>& records) {
  Json jobs = Json::array();
  for (const JobRecord& record : records) {
    Json job = Json::parse(JobRecordText(record));
    job["state"] = std::string(JobLifeWord(LifeOf(record)));
    job["directory"] = record.directory;
    jobs.push_back(std::move(job));
  }
  return Json({{"jobs", jobs}}).dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string JobsText(const std::vector<JobRecord>& records, int64_t now_unix_ns, const Screen& screen) {
  Table table;
  table.columns = {{"JOB"}, {"STATE"}, {"BEGAN"}, {"FOR", 1}, {"RANKS", 2}, {"WHY"}};
  table.enough_of_last = 30;
  for (const JobRecord& record : records) {
    const JobLife life = LifeOf(record);
    const int64_t until_ns = life == JobLife::kRunning ? now_unix_ns : EndOf(record);
    std::string why = record.verdict.empty() ? record.why : record.verdict;
    if (life == JobLife::kRunning) why = absl::StrJoin(record.command, " ");
    if (life == JobLife::kLost && why.empty()) why = "its launcher was killed";
    table.rows.push_back({service::Printable(record.job), std::string(JobLifeWord(life)),
                          ClockText(record.started_unix_ns, now_unix_ns),
                          DurationText(until_ns - record.started_unix_ns), absl::StrCat(record.ranks),
                          service::Printable(why)});
  }
  return table.Text(screen);
}

int RunJobs(const Arguments& arguments) {
  std::string log_dir;
  bool json = false;
  int limit = 20;
  Options options("jobs", kSummary);
  options.Flag("--json", &json, "one JSON document {\"jobs\":[...]}");
  options.Whole("--limit", &limit, 1, 100000, "how many at most, the newest first");
  DeclareLogDir(&options, &log_dir);
  if (const std::optional<int> exit_code = options.Parse(arguments)) return *exit_code;
  if (log_dir.empty()) log_dir = DefaultLogDir();
  std::vector<JobRecord> records = ListJobRecords(log_dir);
  const size_t found = records.size();
  if (found > static_cast<size_t>(limit)) records.resize(static_cast<size_t>(limit));
  if (json) {
    fputs(JobsJson(records).c_str(), stdout);
    return kExitOk;
  }
  if (records.empty()) {
    printf("no job of `c4 run` has logs in %s\n", log_dir.c_str());
    return kExitOk;
  }
  const Screen screen = ScreenOf(stdout);
  fputs(JobsText(records, absl::GetCurrentTimeNanos(), screen).c_str(), stdout);
  if (records.size() < found) printf("and %zu older ones: --limit\n", found - records.size());
  if (screen.terminal) {
    printf("%s\n", Fit("`c4 verdicts --job JOB` tells who held it up, `c4 status --job JOB` where each stood",
                       screen.columns)
                       .c_str());
  }
  return kExitOk;
}

}  // namespace

constinit const Verb kJobsVerb = {"jobs", kSummary, RunJobs};

}  // namespace c4::cli
