#include "cli/whatif/whatif_input.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "c4d_master/recording.h"
#include "c4d_master/smon/recorded_profile.h"
#include "cli/base/process.h"
#include "cli/whatif/batch_share.h"
#include "cli/whatif/whatif_kineto.h"
#include "traces/byte_source.h"
#include "traces/chakra_events.h"
#include "traces/job_metadata.h"
#include "traces/table_reader.h"

namespace c4::cli {
namespace {

constexpr size_t kMaxMetadataBytes = 1 << 20;
constexpr size_t kBytesAnOperation = 100;  // at most; 60 were measured

absl::Status Of(const std::string& path, const absl::Status& status) {
  const std::string message(status.message());
  if (message.find(path) != std::string::npos) return status;
  return {status.code(), absl::StrCat(path, ": ", message)};
}

std::optional<int> Whole(const std::string& text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

absl::StatusOr<std::pair<int32_t, int32_t>> ParseRange(const std::string& text) {
  const size_t dash = text.find('-', 1);
  const std::optional<int> first = Whole(text.substr(0, dash));
  const std::optional<int> last = dash == std::string::npos ? first : Whole(text.substr(dash + 1));
  if (!first || !last || *last < *first) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", text, "' is neither a step nor a range of steps like 20-23"));
  }
  return std::make_pair(*first, *last);
}

absl::StatusOr<double> SecondsPerUnit(const std::string& unit) {
  if (unit == "s") return 1.0;
  if (unit == "ms") return 1e-3;
  if (unit == "us") return 1e-6;
  if (unit == "ns") return 1e-9;
  return absl::InvalidArgumentError("--time-unit is s, ms, us or ns");
}

// One key of a selection.
class Choice {
 public:
  Choice(const whatif::Trace& trace, std::string word) : trace_(trace), word_(std::move(word)) {}

  absl::Status AddTo(whatif::Selection* selection) {
    const size_t equals = word_.find('=');
    if (equals == std::string::npos) return Wrong("it is not of the form key=value");
    const std::string key = word_.substr(0, equals);
    if (key == "type") selection->types = 0;
    const std::vector<std::string> values = absl::StrSplit(word_.substr(equals + 1), '+');
    for (const std::string& value : values) {
      absl::Status added = AddValue(key, value, selection);
      if (!added.ok()) return added;
    }
    return absl::OkStatus();
  }

 private:
  absl::Status Wrong(const std::string& why) const {
    return absl::InvalidArgumentError(absl::StrCat("'", word_, "': ", why));
  }

  absl::Status AddValue(const std::string& key, const std::string& value, whatif::Selection* selection) {
    if (key == "type") return AddType(value, selection);
    if (key == "step") return AddSteps(value, selection);
    if (key == "cause") return Wrong("of --fix alone cause is a key, and alone in its option");
    const std::optional<int> number = Whole(value);
    if (!number) return Wrong("the value is not a whole number");
    if (key == "dp") {
      if (*number < 0 || *number >= trace_.dp_size) return Wrong("there is no such data-parallel rank");
      selection->dp_ranks.push_back(*number);
    } else if (key == "stage") {
      if (*number < 0 || *number >= trace_.pp_size) return Wrong("there is no such stage");
      selection->stages.push_back(*number);
    } else if (key == "worker") {
      const auto rank = std::find(trace_.ranks.begin(), trace_.ranks.end(), *number);
      const auto member = trace_.members.find(*number);  // for which another of its tensor group stands
      if (rank == trace_.ranks.end() && member == trace_.members.end())
        return Wrong("there is no such rank in the trace");
      if (!selection->dp_ranks.empty()) return Wrong("one worker a selection: repeat the option for another");
      const auto index = rank != trace_.ranks.end() ? static_cast<int>(rank - trace_.ranks.begin())
                                                    : static_cast<int>(member->second);
      selection->dp_ranks = {index % trace_.dp_size};
      selection->stages = {index / trace_.dp_size};
    } else {
      return Wrong("the keys are type, worker, dp, stage and step, and of --fix alone cause");
    }
    return absl::OkStatus();
  }

  absl::Status AddType(const std::string& value, whatif::Selection* selection) const {
    if (const auto type = whatif::ParseOperationType(value)) {
      selection->types |= whatif::TypeBit(*type);
      return absl::OkStatus();
    }
    bool any = false;
    for (size_t i = 0; i < whatif::kOperationTypes; ++i) {
      const auto type = static_cast<whatif::OperationType>(i);
      const bool chosen = value == whatif::TypeGroupName(whatif::TypeGroup(type)) ||
                          (value == "compute" && whatif::IsCompute(type)) ||
                          (value == "communication" && whatif::IsCommunication(type));
      if (chosen) selection->types |= whatif::TypeBit(type);
      any = any || chosen;
    }
    return any ? absl::OkStatus()
               : Wrong(
                     "there is no such type; forward-compute is one, and compute and communication are "
                     "several");
  }

  absl::Status AddSteps(const std::string& value, whatif::Selection* selection) const {
    const absl::StatusOr<std::pair<int32_t, int32_t>> range = ParseRange(value);
    if (!range.ok()) return range.status();
    bool any = false;
    for (size_t i = 0; i < trace_.steps.size(); ++i) {
      if (trace_.steps[i] < range->first || trace_.steps[i] > range->second) continue;
      selection->steps.push_back(i);
      any = true;
    }
    return any ? absl::OkStatus() : Wrong("none of these steps is analysed");
  }

  const whatif::Trace& trace_;
  const std::string word_;
};

whatif::TraceRecords OfSteps(const whatif::TraceRecords& records,
                             const std::vector<std::pair<int32_t, int32_t>>& steps) {
  whatif::TraceRecords chosen;
  for (size_t i = 0; i < records.size(); ++i) {
    const int32_t step = records[i].step;
    if (std::any_of(steps.begin(), steps.end(),
                    [step](const auto& range) { return range.first <= step && step <= range.second; })) {
      chosen.Add(records[i]);
    }
  }
  return chosen;
}

absl::StatusOr<whatif::Job> ReadRecordedJob(const WhatIfInput& input) {
  if (!input.metadata.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(input.trace, " is a recording and says the job's shape itself: leave out --metadata"));
  }
  absl::StatusOr<c4d::ProfiledJob> profiled = c4d::ReadRecordedProfile(input.trace);
  if (absl::IsNotFound(profiled.status())) {  // what is missing is in the file: the file is there
    return absl::FailedPreconditionError(profiled.status().message());
  }
  if (!profiled.ok()) return Of(input.trace, profiled.status());
  if (!input.steps.empty()) profiled->records = OfSteps(profiled->records, input.steps);
  absl::StatusOr<whatif::Trace> trace = whatif::BuildTrace(profiled->records, profiled->shape);
  if (!trace.ok()) return Of(input.trace, trace.status());
  trace->notes.insert(trace->notes.begin(), profiled->not_seen.begin(), profiled->not_seen.end());
  absl::StatusOr<whatif::Job> job = whatif::MakeJob(*std::move(trace));
  if (!job.ok()) return Of(input.trace, job.status());
  return job;
}

// Running out of memory may end other programs before this one: longer traces are refused instead.
size_t MostInFreeMemory() {
  const int64_t free_mib = FreeMemoryMib(OwnEnvironment(), "");
  return free_mib == 0 ? SIZE_MAX : static_cast<size_t>(free_mib) * (size_t{1} << 20) / kBytesAnOperation;
}

absl::StatusOr<traces::TableContents> ReadOperations(const WhatIfInput& input,
                                                     const whatif::JobShape& shape) {
  const absl::StatusOr<double> seconds_per_unit = SecondsPerUnit(input.time_unit);
  if (!seconds_per_unit.ok()) return seconds_per_unit.status();
  traces::TableOptions options;
  options.seconds_per_unit = *seconds_per_unit;
  options.steps = input.steps;
  options.max_operations =
      input.max_operations > 0 ? input.max_operations : std::min(options.max_operations, MostInFreeMemory());
  if (!input.mapping.empty()) return ReadKinetoJob(input.kineto, input.mapping, shape, options);
  absl::StatusOr<std::unique_ptr<traces::ByteSource>> source = traces::OpenBytes(input.trace);
  std::error_code unused;
  if (std::filesystem::is_directory(input.trace, unused)) {
    return absl::NotFoundError(absl::StrCat(
        input.trace,
        " is a directory: for profiles of PyTorch's give --mapping, for a folder of traces --batch"));
  }
  if (!source.ok()) return source.status();
  absl::StatusOr<traces::TableContents> table = traces::ReadTable(source->get(), options);
  const bool profile = input.trace.find(".json") != std::string::npos || traces::IsChakra(input.trace);
  if (!table.ok() && profile) {
    return absl::Status(table.status().code(),
                        absl::StrCat(table.status().message(),
                                     "; a profile of PyTorch's or an execution trace wants --mapping"));
  }
  return table;
}

}  // namespace

absl::StatusOr<whatif::Job> ReadJob(const WhatIfInput& input) {
  if (input.mapping.empty() && input.trace != "-" && c4d::IsRecording(input.trace))
    return ReadRecordedJob(input);
  whatif::JobShape shape;
  if (!input.metadata.empty()) {
    absl::StatusOr<std::unique_ptr<traces::ByteSource>> source = traces::OpenBytes(input.metadata);
    if (!source.ok()) return Of(input.metadata, source.status());
    const absl::StatusOr<std::string> text = traces::ReadAll(source->get(), kMaxMetadataBytes);
    if (!text.ok()) return Of(input.metadata, text.status());
    absl::StatusOr<whatif::JobShape> parsed = traces::ParseJobMetadata(*text);
    if (!parsed.ok()) return Of(input.metadata, parsed.status());
    shape = *std::move(parsed);
  }
  absl::StatusOr<traces::TableContents> table = ReadOperations(input, shape);
  if (!table.ok()) return input.mapping.empty() ? Of(input.trace, table.status()) : table.status();
  absl::StatusOr<whatif::Trace> trace = whatif::BuildTrace(table->records, shape);
  if (!trace.ok()) return Of(input.trace, trace.status());
  trace->notes.insert(trace->notes.begin(), table->notes.begin(), table->notes.end());
  table->records = whatif::TraceRecords();
  absl::StatusOr<whatif::Job> job = whatif::MakeJob(*std::move(trace));
  if (!job.ok()) return Of(input.trace, job.status());
  return job;
}

absl::StatusOr<std::vector<std::pair<int32_t, int32_t>>> ParseSteps(const std::string& text) {
  std::vector<std::pair<int32_t, int32_t>> ranges;
  const std::vector<std::string> words = absl::StrSplit(text, ',');
  for (const std::string& word : words) {
    const absl::StatusOr<std::pair<int32_t, int32_t>> range = ParseRange(word);
    if (!range.ok()) return range.status();
    ranges.push_back(*range);
  }
  return ranges;
}

absl::StatusOr<whatif::Selection> ParseSelection(const std::string& text, const whatif::Trace& trace) {
  whatif::Selection selection;
  const std::vector<std::string> words = absl::StrSplit(text, ',');
  for (const std::string& word : words) {
    const absl::Status added = Choice(trace, word).AddTo(&selection);
    if (!added.ok()) return added;
  }
  return selection;
}

absl::StatusOr<whatif::Fix> ParseFix(const std::vector<std::string>& words, const whatif::Trace& trace) {
  constexpr std::string_view kCause = "cause=";
  whatif::Fix fix;
  for (const std::string& word : words) {
    if (!word.starts_with(kCause)) {
      absl::StatusOr<whatif::Selection> selection = ParseSelection(word, trace);
      if (!selection.ok()) return selection.status();
      fix.chosen.push_back(*std::move(selection));
      continue;
    }
    const std::vector<std::string> causes = absl::StrSplit(word.substr(kCause.size()), '+');
    for (const std::string& cause : causes) {
      const std::optional<uint32_t> bit = whatif::ParseCause(cause);
      if (!bit) {
        return absl::InvalidArgumentError(absl::StrCat(
            "'", word,
            "': the causes are worker, stage-imbalance, sequence-lengths, micro-batch-dealing, "
            "pauses, communication and launch-delay; a cause stands alone, repeat --fix for more"));
      }
      fix.causes |= *bit;
    }
  }
  return fix;
}

}  // namespace c4::cli
