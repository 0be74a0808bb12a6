#include "cli/whatif/whatif_batch.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <filesystem>
#include <optional>
#include <sys/stat.h>

#include <nlohmann/json.hpp>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "cli/base/process.h"
#include "traces/input_files.h"

namespace c4::cli {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

// Counted up when a report of an older version should be made again.
constexpr int kReportVersion = 1;

constexpr char kRecordingEnd[] = ".c4rec";

constexpr std::array kStateNames = {"analysed", "refused",   "unreadable",
                                    "crashed",  "timed out", "out of memory"};

std::string_view WithoutEnd(std::string_view name, std::string_view end) {
  const bool has = name.size() > end.size() && name.substr(name.size() - end.size()) == end;
  return has ? name.substr(0, name.size() - end.size()) : name;
}

// The name without its ends; as long as it was when it is no trace's.
std::string_view Stem(std::string_view name) {
  std::string_view inner = WithoutEnd(name, ".gz");
  if (inner.size() == name.size()) inner = WithoutEnd(name, ".zst");
  for (const char* end : {".csv", ".tsv"}) {
    const std::string_view stem = WithoutEnd(inner, end);
    if (stem.size() != inner.size()) return stem;
  }
  return WithoutEnd(name, kRecordingEnd);
}

std::optional<int> Whole(const std::vector<std::string>& environment, std::string_view name) {
  const std::optional<std::string> text = EnvironmentValue(environment, name);
  int value = 0;
  if (!text) return std::nullopt;
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), value);
  if (error != std::errc() || end != text->data() + text->size()) return std::nullopt;
  return value;
}

absl::StatusOr<std::string> FileMark(const std::string& path) {
  struct stat found {};
  if (stat(path.c_str(), &found) != 0) return service::ErrnoStatus(errno, absl::StrCat("cannot open ", path));
  const int64_t modified_ns = found.st_mtim.tv_sec * 1000000000 + found.st_mtim.tv_nsec;
  return absl::StrCat(fs::path(path).filename().string(), " ", found.st_size, " bytes ", modified_ns, " ns");
}

// Empty: none.
std::string MetadataBeside(const std::string& folder, const std::string& stem) {
  std::error_code gone;
  for (const char* end : {".yaml", ".yml", ".json"}) {
    const fs::path beside = fs::path(folder) / absl::StrCat(stem, end);
    if (fs::is_regular_file(beside, gone)) return beside.string();
  }
  return "";
}

absl::StatusOr<bool> HoldsProfiles(const std::string& folder) {
  const absl::StatusOr<std::vector<std::string>> files = traces::JsonFiles({folder}, "profile");
  if (absl::IsNotFound(files.status())) return false;
  if (!files.ok()) return files.status();
  return true;
}

// Whether `entry` is a trace, or with a mapping a folder of profiles.
absl::StatusOr<bool> IsTrace(const fs::directory_entry& entry, bool profiles) {
  const std::string name = entry.path().filename().string();
  std::error_code gone;
  const bool folder = entry.is_directory(gone);
  if (!profiles) return !folder && IsTraceName(name);
  if (!folder || name.front() == '.') return false;
  return HoldsProfiles(entry.path().string());
}

}  // namespace

bool IsTraceName(std::string_view name) {
  return !name.empty() && name.front() != '.' && Stem(name).size() != name.size();
}

std::string TraceStem(std::string_view name) {
  return std::string(Stem(name));
}

absl::StatusOr<std::vector<BatchTrace>> FindTraces(const std::string& folder, const std::string& mapping) {
  std::error_code error;
  fs::directory_iterator entry(folder, error);
  if (error) return service::ErrnoStatus(error.value(), absl::StrCat("cannot read the folder ", folder));
  std::vector<BatchTrace> traces;
  for (const fs::directory_iterator end; entry != end && !error; entry.increment(error)) {
    const absl::StatusOr<bool> is_trace = IsTrace(*entry, !mapping.empty());
    if (!is_trace.ok()) return is_trace.status();
    if (!*is_trace) continue;
    BatchTrace trace = {entry->path().filename().string(), entry->path().string(), "", mapping};
    const std::string stem = mapping.empty() ? TraceStem(trace.name) : trace.name;
    if (!absl::EndsWith(trace.name, kRecordingEnd)) trace.metadata = MetadataBeside(folder, stem);
    traces.push_back(std::move(trace));
  }
  if (error) return service::ErrnoStatus(error.value(), absl::StrCat("cannot read the folder ", folder));
  std::sort(traces.begin(), traces.end(),
            [](const BatchTrace& a, const BatchTrace& b) { return a.name < b.name; });
  return traces;
}

absl::StatusOr<ArrayShare> ShareOfArray(const std::vector<std::string>& environment) {
  if (!EnvironmentValue(environment, "SLURM_ARRAY_TASK_ID")) return ArrayShare();
  const std::optional<int> id = Whole(environment, "SLURM_ARRAY_TASK_ID");
  const std::optional<int> first = Whole(environment, "SLURM_ARRAY_TASK_MIN");
  const std::optional<int> count = Whole(environment, "SLURM_ARRAY_TASK_COUNT");
  if (!id || !first || !count || *count < 1) {
    return absl::InvalidArgumentError(
        "SLURM_ARRAY_TASK_ID is set, and with it belong SLURM_ARRAY_TASK_MIN and SLURM_ARRAY_TASK_COUNT as "
        "Slurm sets them; unset it to analyse the whole folder");
  }
  const int step = std::max(1, Whole(environment, "SLURM_ARRAY_TASK_STEP").value_or(1));
  const int last = Whole(environment, "SLURM_ARRAY_TASK_MAX").value_or(*first + (*count - 1) * step);
  const bool even = last == *first + (*count - 1) * step;
  if (!even || *id < *first || *id > last || (*id - *first) % step != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("the Slurm array has gaps (", *count, " tasks from ", *first, " to ", last,
                     "), so that shares cannot be told: use --array=0-", *count - 1));
  }
  return ArrayShare{(*id - *first) / step, *count};
}

const char* TraceStateName(TraceState state) {
  return kStateNames[static_cast<size_t>(state)];
}

std::string BatchRecordJson(const BatchRecord& record) {
  const Json json = {{"trace", record.trace},
                     {"state", TraceStateName(record.state)},
                     {"reason", record.reason},
                     {"made_of", record.mark},
                     {"elapsed_s", record.elapsed_s},
                     {"peak_memory_mib", record.peak_mib},
                     {"time_limit_s", record.limits.time_s},
                     {"memory_limit_mib", record.limits.memory_mib}};
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

absl::StatusOr<BatchRecord> ParseBatchRecord(const std::string& text) {
  try {
    const Json json = Json::parse(text);
    BatchRecord record;
    record.trace = json.at("trace").get<std::string>();
    const auto state = json.at("state").get<std::string>();
    const auto* const known = std::find(kStateNames.begin(), kStateNames.end(), state);
    if (known == kStateNames.end()) {
      return absl::InvalidArgumentError(absl::StrCat("there is no state '", state, "'"));
    }
    record.state = static_cast<TraceState>(known - kStateNames.begin());
    record.reason = json.at("reason").get<std::string>();
    record.mark = json.at("made_of").get<std::string>();
    record.elapsed_s = json.at("elapsed_s").get<double>();
    record.peak_mib = json.at("peak_memory_mib").get<int64_t>();
    record.limits.time_s = json.at("time_limit_s").get<double>();
    record.limits.memory_mib = json.at("memory_limit_mib").get<int64_t>();
    return record;
  } catch (const nlohmann::json::exception& error) {
    return absl::InvalidArgumentError(absl::StrCat("this is no record of a batch: ", error.what()));
  }
}

absl::StatusOr<std::string> SourceMark(const BatchTrace& trace, const std::vector<std::string>& options) {
  const absl::StatusOr<std::vector<std::string>> profiles =
      trace.mapping.empty() ? std::vector{trace.path} : traces::JsonFiles({trace.path}, "profile");
  if (!profiles.ok()) return profiles.status();
  std::vector<std::string> files = *profiles;
  for (const std::string& path : {trace.metadata, trace.mapping}) {
    if (!path.empty()) files.push_back(path);
  }
  std::string mark;
  for (const std::string& file : files) {
    const absl::StatusOr<std::string> of_file = FileMark(file);
    if (!of_file.ok()) return of_file.status();
    absl::StrAppend(&mark, *of_file, "; ");
  }
  return absl::StrCat(mark, absl::StrJoin(options, " "), "; version ", kReportVersion);
}

bool StillHolds(const BatchRecord& record, const std::string& mark, const BatchLimits& limits, bool retry) {
  if (record.mark != mark) return false;
  switch (record.state) {
    case TraceState::kAnalysed:
    case TraceState::kRefused:
      return true;
    case TraceState::kUnreadable:
      return false;
    case TraceState::kCrashed:
      return !retry;
    case TraceState::kTimedOut:
      return !retry && limits.time_s != 0 && limits.time_s <= record.limits.time_s;
    case TraceState::kNoMemory:
      return !retry && limits.memory_mib != 0 && limits.memory_mib <= record.limits.memory_mib;
  }
  return false;
}

std::string ReportsFolder(const std::string& out) {
  return absl::StrCat(out, "/reports");
}
std::string StatesFolder(const std::string& out) {
  return absl::StrCat(out, "/states");
}
std::string ReportPath(const std::string& out, const std::string& name) {
  return absl::StrCat(ReportsFolder(out), "/", name, ".json");
}
std::string StatePath(const std::string& out, const std::string& name) {
  return absl::StrCat(StatesFolder(out), "/", name, ".json");
}

}  // namespace c4::cli
