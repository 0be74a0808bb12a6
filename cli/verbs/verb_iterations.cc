// c4 iterations: a job's iterations and the changes of their time, of a job that runs, or from a file of
// times or of calls.
#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <new>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "analysis/failslow/call_periods.h"
#include "analysis/failslow/report.h"
#include "cli/clients/master_client.h"
#include "cli/exit_codes.h"
#include "cli/options.h"
#include "cli/text/screen.h"
#include "cli/verb.h"
#include "cli/verbs/job_iterations.h"
#include "service/printable.h"
#include "traces/iteration_file.h"

namespace c4::cli {
namespace {

constexpr char kSummary[] = "tell when a job's iterations became slower or faster; of a job, or from a file";
constexpr int kColumns = 80;

constexpr absl::Duration kCallLimit = absl::Seconds(5);
constexpr absl::Duration kPatience = absl::Seconds(3);

struct IterationsOptions {
  std::string job;
  MasterOptions master;
  bool watch = false;
  std::string times;
  std::string calls;
  std::vector<std::string> columns;
  std::string time_column;
  std::string time_unit = "s";
  std::string svg;
  bool json = false;
};

void Note(const std::string& text) {
  fprintf(stderr, "c4 iterations: %s\n", service::Printable(text).c_str());
}

// Of opening a file: the message names it.
int CannotOpen(const absl::Status& status) {
  Note(std::string(status.message()));
  const bool no_file = absl::IsNotFound(status) || absl::IsPermissionDenied(status);
  return no_file ? kExitNoInput : kExitBadData;
}

int Refused(const std::string& path, const absl::Status& status) {
  Note(absl::StrCat(path, ": ", status.message()));
  return kExitBadData;
}

double SecondsPerUnit(const std::string& unit) {
  if (unit == "ms") return 1e-3;
  if (unit == "us") return 1e-6;
  return unit == "ns" ? 1e-9 : 1;
}

// One token a call, of all columns but those left out.
std::vector<uint64_t> Tokens(const traces::CallTable& table, const std::vector<bool>& left_out) {
  std::vector<uint64_t> tokens(table.calls, 0);
  for (size_t i = 0; i < table.columns.size(); ++i) {
    if (left_out[i]) continue;
    for (size_t call = 0; call < table.calls; ++call) {
      tokens[call] = (tokens[call] ^ table.columns[i].values[call]) * 0x9e3779b97f4a7c15ull;
      tokens[call] ^= tokens[call] >> 29;
    }
  }
  return tokens;
}

size_t DifferentValues(std::vector<uint64_t> values) {
  std::sort(values.begin(), values.end());
  return static_cast<size_t>(std::unique(values.begin(), values.end()) - values.begin());
}

// With all columns, and where nothing repeats without the one that differs most, and so on: sizes may change.
failslow::CallPeriods PeriodsOf(const traces::CallTable& table) {
  std::vector<bool> left_out(table.columns.size(), false);
  std::vector<std::string> names;
  for (size_t left = table.columns.size(); left > 0; --left) {
    failslow::CallPeriods periods = failslow::FindCallPeriods(Tokens(table, left_out));
    // Of calls that are all alike without the column, nothing is learnt.
    const bool trivial = !names.empty() && periods.period == 1;
    if (periods.period > 0 && !trivial) {
      if (!names.empty())
        Note(absl::StrCat("calls repeat only without the column ", absl::StrJoin(names, ", ")));
      return periods;
    }
    size_t most = 0;
    size_t which = 0;
    for (size_t i = 0; i < table.columns.size(); ++i) {
      const size_t different = left_out[i] ? 0 : DifferentValues(table.columns[i].values);
      if (different > most) {
        most = different;
        which = i;
      }
    }
    left_out[which] = true;
    names.push_back(table.columns[which].name.empty() ? absl::StrCat("number ", which + 1)
                                                      : table.columns[which].name);
  }
  return {};
}

int Columns() {
  const int width = ScreenOf(stdout).columns;
  return width > 0 ? std::min(width, kColumns) : kColumns;
}

// False: it cannot be written, which has been said.
bool Draw(const IterationsOptions& options, const failslow::SeriesReport& report) {
  if (!options.svg.empty()) {
    FILE* file = fopen(options.svg.c_str(), "we");
    const bool written = file != nullptr && fputs(failslow::SeriesSvg(report).c_str(), file) >= 0;
    const bool closed = file != nullptr && fclose(file) == 0;
    if (!written || !closed) {
      Note(absl::StrCat("cannot write ", options.svg, ": ",
                        std::error_code(errno, std::generic_category()).message()));
      return false;
    }
  }
  return true;
}

int Write(const IterationsOptions& options, const failslow::SeriesReport& report) {
  if (!Draw(options, report)) return kExitNoInput;
  const std::string text =
      options.json ? failslow::SeriesJson(report) + "\n" : failslow::SeriesText(report, Columns());
  fputs(service::PrintablePage(text).c_str(), stdout);
  return kExitOk;
}

void NoteOfFew(size_t iterations) {
  constexpr size_t kFewest = failslow::ChangeDetector::kWarmUp + 3;
  if (iterations >= kFewest) return;
  Note(absl::StrCat(iterations, iterations == 1 ? " iteration is" : " iterations are",
                    " too few to tell a change: ", kFewest, " are the least"));
}

int OfTimes(const IterationsOptions& options) {
  absl::StatusOr<std::unique_ptr<traces::ByteSource>> source = traces::OpenBytes(options.times);
  if (!source.ok()) return CannotOpen(source.status());
  const traces::TimesOptions reading = {.column = options.columns.empty() ? "" : options.columns.front(),
                                        .seconds_per_unit = SecondsPerUnit(options.time_unit)};
  absl::StatusOr<traces::IterationTimes> times = traces::ReadIterationTimes(source->get(), reading);
  if (!times.ok()) return Refused(options.times, times.status());
  if (times->unusable > 0) {
    Note(absl::StrCat(times->unusable, " of ", times->times_s.size(), " times, the first in line ",
                      times->first_unusable_line, ", are no finite positive numbers and are passed over"));
  }
  NoteOfFew(times->times_s.size());
  failslow::SeriesReport report = {.title = options.times, .times_s = std::move(times->times_s)};
  report.changes = failslow::FindChanges(report.times_s);
  return Write(options, report);
}

int OfCalls(const IterationsOptions& options) {
  absl::StatusOr<std::unique_ptr<traces::ByteSource>> source = traces::OpenBytes(options.calls);
  if (!source.ok()) return CannotOpen(source.status());
  const traces::CallsOptions reading = {.columns = options.columns,
                                        .time_column = options.time_column,
                                        .seconds_per_unit = SecondsPerUnit(options.time_unit)};
  const absl::StatusOr<traces::CallTable> table = traces::ReadCalls(source->get(), reading);
  if (!table.ok()) return Refused(options.calls, table.status());
  const failslow::CallPeriods periods = PeriodsOf(*table);
  failslow::SeriesReport report = {.title = options.calls};
  if (periods.period == 0) {
    Note(
        absl::StrCat(options.calls, ": its ", table->calls,
                     " calls have no period: at least two iterations have to be there, a call in each line"));
    if (options.json) Write(options, report);
    return kExitBadData;
  }
  report.period = periods.period;
  std::vector<uint32_t> others;
  for (const failslow::Stretch& stretch : periods.stretches) {
    const bool long_enough = 10 * (stretch.end_call - stretch.first_call) > table->calls;
    const bool known = std::find(others.begin(), others.end(), stretch.period) != others.end();
    if (stretch.period != periods.period && long_enough && !known) others.push_back(stretch.period);
  }
  if (!others.empty())
    Note(absl::StrCat("parts of the calls have another period: ", absl::StrJoin(others, ", ")));
  if (!table->times_s.empty()) {
    for (const failslow::CallIteration& iteration : failslow::IterationsOf(periods)) {
      const double time_s = table->times_s[iteration.end_call] - table->times_s[iteration.first_call];
      report.times_s.push_back(std::isfinite(time_s) && time_s > 0 ? time_s : std::nan(""));
    }
    NoteOfFew(report.times_s.size());
    report.changes = failslow::FindChanges(report.times_s);
  }
  return Write(options, report);
}

int OfJob(const IterationsOptions& options) {
  for (;;) {
    v1::GetIterationsReply reply;
    const absl::Status asked = AskMaster(options.master, kPatience, [&reply](const MasterClient& client) {
      absl::StatusOr<v1::GetIterationsReply> iterations = client.GetIterations(0, kCallLimit);
      if (!iterations.ok()) return iterations.status();
      reply = *std::move(iterations);
      return absl::OkStatus();
    });
    if (!asked.ok()) {
      Note(std::string(asked.message()));
      return kExitUnreachable;
    }
    if (!Draw(options, ReportOf(reply))) return kExitNoInput;
    std::string text = service::PrintablePage(options.json ? JobIterationsJson(reply) + "\n"
                                                           : JobIterationsText(reply, Columns()));
    if (options.watch && !options.json) text = Repainted(ScreenOf(stdout), text);
    fputs(text.c_str(), stdout);
    fflush(stdout);
    if (!options.watch) return kExitOk;
    absl::SleepFor(absl::Seconds(1));
  }
}

// Of a job that runs, where no file is named.
std::optional<int> CheckJobOptions(IterationsOptions* set) {
  const bool of_file = !set->times.empty() || !set->calls.empty();
  const bool names_job = !set->job.empty() || !set->master.job.empty() || !set->master.address.empty();
  if (of_file && names_job) return UsageError("iterations", "give a job or a file, not both");
  if (of_file && set->watch) return UsageError("iterations", "--watch is of a job that runs");
  if (of_file) return std::nullopt;
  if (!set->columns.empty() || !set->time_column.empty()) {
    return UsageError("iterations", "--column and --time-column are of --times FILE or --calls FILE");
  }
  if (!set->job.empty() && !set->master.job.empty() && set->job != set->master.job) {
    return UsageError("iterations", absl::StrCat("two jobs are named, ", set->job, " and ", set->master.job));
  }
  if (!set->job.empty()) set->master.job = set->job;
  return std::nullopt;
}

int RunIterations(const Arguments& arguments) {
  IterationsOptions set;
  Options options("iterations", kSummary);
  options.Text("JOB", &set.job, "", "the job whose iterations are shown; the only one that runs by default");
  set.master.Declare(&options);
  options.Flag("--watch", &set.watch, "of a job: show it again every second, until interrupted");
  options.Group("from a file");
  options.Text("--times", &set.times, "FILE",
               "times of iterations, one a line, or a table; -: standard input");
  options.Text("--calls", &set.calls, "FILE",
               "calls of a rank, one token a line, or a table; -: standard input");
  options.List("--column", &set.columns, "NAME",
               "of a table: the column of times; with --calls one that tells calls apart, may be repeated");
  options.Text("--time-column", &set.time_column, "NAME", "with --calls: when each call was made");
  options.Text("--time-unit", &set.time_unit, "s|ms|us|ns", "of times");
  options.Group("");
  options.Text("--svg", &set.svg, "FILE.svg", "draw the iterations and their changes");
  options.Flag("--json", &set.json,
               "one JSON document: {\"period\",\"changes\":[{\"iteration\",\"before_s\",\"after_s\",...}]}");
  if (const std::optional<int> exit_code = options.Parse(arguments)) return *exit_code;
  if (!set.times.empty() && !set.calls.empty())
    return UsageError("iterations", "give --times FILE or --calls FILE, not both");
  if (const std::optional<int> exit_code = CheckJobOptions(&set)) return *exit_code;
  if (!set.times.empty() && set.columns.size() > 1)
    return UsageError("iterations", "--times takes one --column");
  if (!set.times.empty() && !set.time_column.empty()) {
    return UsageError("iterations", "--time-column is of --calls; with --times give --column");
  }
  if (set.time_unit != "s" && set.time_unit != "ms" && set.time_unit != "us" && set.time_unit != "ns") {
    return UsageError("iterations", "--time-unit is s, ms, us or ns");
  }
  try {
    if (set.times.empty() && set.calls.empty()) return OfJob(set);
    return set.calls.empty() ? OfTimes(set) : OfCalls(set);
  } catch (const std::bad_alloc&) {
    Note("memory ran out: cut the file, a few thousand iterations are enough");
    return kExitNoMemory;
  }
}

}  // namespace

constinit const Verb kIterationsVerb = {"iterations", kSummary, RunIterations};

}  // namespace c4::cli
