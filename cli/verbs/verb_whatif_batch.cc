// c4 whatif --batch and --aggregate: the what-if analysis of a folder of traces (docs/whatif.md).
#include "cli/verbs/verb_whatif_batch.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "cli/base/process.h"
#include "cli/exit_codes.h"
#include "cli/options.h"
#include "cli/whatif/batch_share.h"
#include "cli/whatif/whatif_batch_run.h"
#include "cli/whatif/whatif_batch_table.h"
#include "cli/whatif/whatif_input.h"
#include "cli/whatif/whatif_kineto.h"
#include "service/run_dir.h"
#include "traces/table_reader.h"

namespace c4::cli {
namespace {

namespace fs = std::filesystem;

constexpr char kVerb[] = "whatif";
constexpr char kSummary[] =
    "analyse each trace of a folder; in a Slurm array, the task's share of them (docs/whatif.md)";
constexpr size_t kMaxRecordBytes = size_t{1} << 20;
constexpr size_t kMaxReportBytes = size_t{1} << 30;
constexpr int kLeastMemoryMib = 32;  // with less the program itself would not start

struct BatchOptions {
  std::string folder;
  std::string out;
  std::string aggregate;
  std::string mapping;
  std::string steps;
  std::string time_unit = "s";
  std::vector<std::string> fix;
  std::vector<std::string> keep;
  double time_limit_s = 0;
  int processes = 0;
  int memory_mib = 0;
  // Not by free memory, as for a trace alone: each process has its own limit.
  int max_operations = static_cast<int>(traces::TableOptions().max_operations);
  bool again = false;
  bool retry = false;
};

int Complain(const absl::Status& status) {
  fprintf(stderr, "c4 whatif: %s\n", std::string(status.message()).c_str());
  return kExitNoInput;
}

// The options of a single trace that are handed on. Not --threads: as many processes as processors do it.
std::vector<std::string> HandedOn(const BatchOptions& set) {
  std::vector<std::string> words = {"--time-unit", set.time_unit, "--max-operations",
                                    std::to_string(set.max_operations)};
  if (!set.steps.empty()) words.insert(words.end(), {"--steps", set.steps});
  for (const std::string& word : set.fix) words.insert(words.end(), {"--fix", word});
  for (const std::string& word : set.keep) words.insert(words.end(), {"--keep", word});
  return words;
}

// What cannot be read of one trace is a row that says so: the others' figures do not depend on it.
BatchRow ReadRow(const std::string& out, const std::string& trace, const std::string& record_text) {
  BatchRow row;
  absl::StatusOr<BatchRecord> record = ParseBatchRecord(record_text);
  absl::Status bad = record.status();
  if (record.ok()) row.record = *std::move(record);
  if (bad.ok() && row.record.state == TraceState::kAnalysed) {
    const absl::StatusOr<std::string> report =
        service::ReadSmallFile(ReportPath(out, row.record.trace), kMaxReportBytes, service::Links::kFollow);
    bad = report.status();
    if (report.ok()) {
      absl::StatusOr<BatchFigures> figures = ParseFigures(*report);
      bad = figures.status();
      if (figures.ok()) row.figures = *std::move(figures);
    }
  }
  if (bad.ok()) return row;
  if (row.record.trace.empty()) row.record.trace = trace;
  row.record.state = TraceState::kUnreadable;
  row.record.reason = std::string(bad.message());
  return row;
}

absl::StatusOr<std::vector<BatchRow>> ReadRows(const std::string& out) {
  std::error_code error;
  fs::directory_iterator entry(StatesFolder(out), error);
  if (error) {
    return service::ErrnoStatus(error.value(), absl::StrCat("cannot read ", StatesFolder(out),
                                                            ", where --batch keeps what it has done"));
  }
  std::vector<BatchRow> rows;
  for (const fs::directory_iterator end; entry != end && !error; entry.increment(error)) {
    const std::string path = entry->path().string();
    if (!absl::EndsWith(path, ".json")) continue;  // one that is being written
    const absl::StatusOr<std::string> text =
        service::ReadSmallFile(path, kMaxRecordBytes, service::Links::kFollow);
    if (!text.ok()) return text.status();
    rows.push_back(ReadRow(out, entry->path().stem().string(), *text));
  }
  if (error) return service::ErrnoStatus(error.value(), absl::StrCat("cannot read ", StatesFolder(out)));
  std::sort(rows.begin(), rows.end(),
            [](const BatchRow& a, const BatchRow& b) { return a.record.trace < b.record.trace; });
  return rows;
}

absl::Status Aggregate(const std::string& out) {
  const absl::StatusOr<std::vector<BatchRow>> rows = ReadRows(out);
  if (!rows.ok()) return rows.status();
  std::vector<NamedTable> tables = CdfTables(*rows);
  tables.push_back({"jobs.csv", JobsCsv(*rows)});
  for (const NamedTable& table : tables) {
    C4_RETURN_IF_NOT_OK(service::WriteFileAtomically(absl::StrCat(out, "/", table.file), table.text, 0644));
  }
  printf("%s; %s/jobs.csv\n", BatchSummary(*rows).c_str(), out.c_str());
  return absl::OkStatus();
}

void Tell(const BatchRecord& record) {
  const std::string why = record.reason.empty() ? "" : absl::StrCat(": ", record.reason);
  fprintf(stderr, "c4 whatif: %s %s (%.1f s, %lld MiB)%s\n", record.trace.c_str(),
          TraceStateName(record.state), record.elapsed_s, static_cast<long long>(record.peak_mib),
          why.c_str());
}

// An even part of nine tenths of what is free.
int64_t MemoryOfEach(const BatchOptions& set, int processes, const std::vector<std::string>& environment) {
  if (set.memory_mib > 0) return set.memory_mib;
  const int64_t free_mib = FreeMemoryMib(environment, "");
  return free_mib == 0 ? 0 : std::max<int64_t>(kLeastMemoryMib, free_mib * 9 / 10 / processes);
}

int ExitCodeOf(const BatchResult& result) {
  if (result.signal != 0) return kExitSignalBase + result.signal;
  if (result.failed > 0) return kExitBatchFailed;
  return result.refused > 0 ? kExitBatchRefused : kExitOk;
}

int Run(const BatchOptions& set) {
  const std::vector<std::string> environment = OwnEnvironment();
  const absl::StatusOr<ArrayShare> share = ShareOfArray(environment);
  if (!share.ok()) return UsageError(kVerb, std::string(share.status().message()));
  if (!set.mapping.empty()) {
    // One mistake, not one of each trace.
    const absl::Status mapping = CheckMapping(set.mapping);
    if (absl::IsInvalidArgument(mapping)) return UsageError(kVerb, std::string(mapping.message()));
    if (!mapping.ok()) return Complain(mapping);
  }
  const absl::StatusOr<std::vector<BatchTrace>> traces = FindTraces(set.folder, set.mapping);
  if (!traces.ok()) return Complain(traces.status());
  if (traces->empty()) {
    return Complain(absl::NotFoundError(absl::StrCat(
        set.folder,
        set.mapping.empty()
            ? " has no traces: they are called NAME.csv or NAME.tsv, also with .gz or .zst behind, or "
              "NAME.c4rec; folders of PyTorch's profiles want --mapping"
            : " has no profiles: with --mapping, each folder in it that has *.json* is a job")));
  }
  std::error_code error;
  const fs::path program = fs::read_symlink("/proc/self/exe", error);
  if (error) return Complain(service::ErrnoStatus(error.value(), "cannot find this program"));
  BatchPlan plan;
  plan.program = program.string();
  plan.options = HandedOn(set);
  for (size_t i = 0; i < traces->size(); ++i) {
    if (share->Has(i)) plan.traces.push_back((*traces)[i]);
  }
  plan.out = set.out.empty() ? absl::StrCat(set.folder, "/whatif") : set.out;
  plan.processes = set.processes > 0 ? set.processes : UsableProcessors(environment);
  plan.processes = std::clamp(plan.processes, 1, static_cast<int>(std::max<size_t>(1, plan.traces.size())));
  plan.limits = {set.time_limit_s, MemoryOfEach(set, plan.processes, environment)};
  plan.again = set.again;
  plan.retry = set.retry;
  const absl::StatusOr<BatchResult> result = RunBatch(plan, Tell);
  if (!result.ok()) return Complain(result.status());
  fprintf(stderr,
          "c4 whatif: %zu of %zu traces%s: %zu analysed, %zu refused, %zu failed; %zu of these before\n",
          result->analysed + result->refused + result->failed, plan.traces.size(),
          share->count > 1 ? absl::StrCat(" (task ", share->index, " of ", share->count, ")").c_str() : "",
          result->analysed, result->refused, result->failed, result->kept);
  if (share->count == 1 && result->signal == 0) {
    const absl::Status aggregated = Aggregate(plan.out);
    if (!aggregated.ok()) return Complain(aggregated);
  }
  return ExitCodeOf(*result);
}

}  // namespace

bool IsBatch(const Arguments& arguments) {
  return std::any_of(arguments.begin(), arguments.end(), [](const std::string& word) {
    return word == "--batch" || word == "--aggregate" || absl::StartsWith(word, "--batch=") ||
           absl::StartsWith(word, "--aggregate=");
  });
}

int RunWhatIfBatch(const Arguments& arguments) {
  BatchOptions set;
  Options options(kVerb, kSummary);
  options.Text("--batch", &set.folder, "DIR",
               "the folder of traces; NAME.yaml or NAME.json beside NAME.csv: metadata");
  options.Text("--mapping", &set.mapping, "FILE",
               "the traces are folders of PyTorch's profiles: DIR/NAME/*.json, what they mean says FILE");
  options.Text("--out", &set.out, "DIR", "where reports, records and tables go; default: DIR/whatif");
  options.Text("--aggregate", &set.aggregate, "OUT",
               "only make the tables of an output folder, after an array");
  options.Whole("--processes", &set.processes, 1, 4096, "traces at once; default: all processors");
  options.Seconds("--time-limit", &set.time_limit_s, 0.001, 1e7, "of one trace; default: none");
  options.Whole("--memory", &set.memory_mib, kLeastMemoryMib, 1 << 30,
                "MiB for one trace; default: an even part of 90 % of what is free");
  options.Flag("--again", &set.again, "also traces that are finished");
  options.Flag("--retry", &set.retry, "also traces that crashed or failed by their limits");
  options.List("--fix", &set.fix, "WHAT", "as for one trace");
  options.List("--keep", &set.keep, "WHAT", "as for one trace");
  options.Text("--steps", &set.steps, "LIST", "as for one trace");
  options.Text("--time-unit", &set.time_unit, "s|ms|us|ns", "as for one trace");
  options.Whole("--max-operations", &set.max_operations, 1, 2000000000, "as for one trace");
  if (const std::optional<int> exit_code = options.Parse(arguments)) return *exit_code;
  if (set.folder.empty() == set.aggregate.empty()) {
    return UsageError(kVerb, "give either --batch DIR or --aggregate OUT");
  }
  const auto& unit = set.time_unit;
  if (unit != "s" && unit != "ms" && unit != "us" && unit != "ns") {
    return UsageError(kVerb, "--time-unit is s, ms, us or ns");
  }
  if (!set.mapping.empty() && unit != "s") {
    return UsageError(kVerb, "--time-unit is of tables; profiles of PyTorch's profiler are in us");
  }
  if (!set.steps.empty()) {
    const auto ranges = ParseSteps(set.steps);
    if (!ranges.ok()) return UsageError(kVerb, absl::StrCat("--steps ", ranges.status().message()));
  }
  if (set.aggregate.empty()) return Run(set);
  const absl::Status aggregated = Aggregate(set.aggregate);
  return aggregated.ok() ? kExitOk : Complain(aggregated);
}

}  // namespace c4::cli
