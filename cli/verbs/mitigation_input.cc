#include "cli/verbs/mitigation_input.h"

#include <algorithm>
#include <sys/stat.h>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "traces/iteration_file.h"

namespace c4::cli {
namespace {

bool IsFile(const std::string& path) {
  struct stat status {};
  return path == "-" || stat(path.c_str(), &status) == 0;
}

// "1.0" and "nan" may be meant as times, "times.csv" not.
bool LooksLikeTimes(const std::string& text) {
  double ignored = 0;
  for (const absl::string_view word : absl::StrSplit(text, ',')) {
    if (absl::SimpleAtod(word, &ignored)) return true;
  }
  return false;
}

absl::StatusOr<std::vector<double>> FromFile(const std::string& path) {
  absl::StatusOr<std::unique_ptr<traces::ByteSource>> source = traces::OpenBytes(path);
  if (!source.ok()) return source.status();
  absl::StatusOr<traces::IterationTimes> times = traces::ReadIterationTimes(source->get(), {});
  if (!times.ok())
    return absl::Status(times.status().code(), absl::StrCat(path, ": ", times.status().message()));
  if (times->unusable > 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": line ", times->first_unusable_line,
                     " has no positive number of seconds: each group needs one"));
  }
  return std::move(times->times_s);
}

constexpr double kBytesPerMb = 1e6;
constexpr double kBytesPerGbit = 1e9 / 8;

absl::Status BadLayout(const std::string& layout) {
  return absl::InvalidArgumentError(
      absl::StrCat("'", layout, "' is no layout: give it as dp=4,pp=4 or dp=4,pp=4,per-node=2"));
}

absl::Status ReadLayout(const std::string& layout, int* groups, int* stages, int* per_node) {
  for (const absl::string_view word : absl::StrSplit(layout, ',')) {
    const std::pair<absl::string_view, absl::string_view> parts =
        absl::StrSplit(word, absl::MaxSplits('=', 1));
    int* const target = parts.first == "dp"         ? groups
                        : parts.first == "pp"       ? stages
                        : parts.first == "per-node" ? per_node
                                                    : nullptr;
    if (target == nullptr || !absl::SimpleAtoi(parts.second, target)) return BadLayout(layout);
    if (*target < 1 || *target > mitigation::kMostWorkers) {
      return absl::InvalidArgumentError(absl::StrCat("the layout says ", word, ": a number from 1 to ",
                                                     mitigation::kMostWorkers, " is needed"));
    }
  }
  return *groups == 0 || *stages == 0 ? BadLayout(layout) : absl::OkStatus();
}

// "5=1.8"
bool ReadNumbered(absl::string_view word, int* number, double* value) {
  const std::pair<absl::string_view, absl::string_view> parts = absl::StrSplit(word, absl::MaxSplits('=', 1));
  return absl::SimpleAtoi(parts.first, number) && absl::SimpleAtod(parts.second, value);
}

absl::Status ReadMany(const std::vector<std::string>& words, const char* what, const char* example, int last,
                      std::vector<double>* values) {
  if (!words.empty()) values->assign(static_cast<size_t>(last) + 1, 1);
  for (const std::string& word : words) {
    int number = 0;
    double value = 0;
    if (!ReadNumbered(word, &number, &value)) {
      return absl::InvalidArgumentError(absl::StrCat("'", word, "' is no ", what, ": give it as ", example));
    }
    if (number < 0 || number > last) {
      return absl::InvalidArgumentError(
          absl::StrCat("there is no ", what, " ", number, ": the job has 0 to ", last));
    }
    (*values)[static_cast<size_t>(number)] = value;
  }
  return absl::OkStatus();
}

absl::Status ReadLinks(const std::vector<std::string>& words, std::vector<mitigation::SlowLink>* links) {
  for (const std::string& word : words) {
    const std::pair<absl::string_view, absl::string_view> parts =
        absl::StrSplit(word, absl::MaxSplits(':', 1));
    mitigation::SlowLink link;
    if (!absl::SimpleAtoi(parts.first, &link.node_a) ||
        !ReadNumbered(parts.second, &link.node_b, &link.share)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "'", word, "' is no link: give it as 2:3=0.1, two nodes and what is left of its speed"));
    }
    links->push_back(link);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<double>> ReadGroupTimes(const std::string& text) {
  if (IsFile(text) || !LooksLikeTimes(text)) return FromFile(text);
  std::vector<double> times_s;
  for (const absl::string_view word : absl::StrSplit(text, ',')) {
    double time_s = 0;
    if (!absl::SimpleAtod(word, &time_s)) {
      return absl::InvalidArgumentError(
          absl::StrCat("'", word, "' is no number: times are given as 1.0,1.3"));
    }
    times_s.push_back(time_s);
  }
  return times_s;
}

absl::StatusOr<mitigation::PlacedJob> ReadPlacedJob(const PlacementWords& words) {
  mitigation::PlacedJob job;
  int stages = 0;
  job.groups = 0;
  if (absl::Status read = ReadLayout(words.layout, &job.groups, &stages, &job.places_per_node); !read.ok()) {
    return read;
  }
  if (int64_t{stages} * job.groups > mitigation::kMostWorkers) {
    return absl::InvalidArgumentError(absl::StrCat("the layout has more than ", mitigation::kMostWorkers,
                                                   " workers: leave tensor-parallel ranks out of it"));
  }
  const mitigation::StageCost cost = {words.forward_ms / 1e3, words.backward_ms / 1e3,
                                      words.gradient_mb * kBytesPerMb};
  job.stages.assign(static_cast<size_t>(stages), cost);
  for (mitigation::StageCost* outer : {&job.stages.front(), &job.stages.back()}) {
    outer->forward_s = cost.forward_s * words.outer;
    outer->backward_s = cost.backward_s * words.outer;
  }
  job.micro_batches.assign(static_cast<size_t>(job.groups), words.micro_batches);
  job.activation_bytes = words.activation_mb * kBytesPerMb;
  job.state_bytes = words.state_mb * kBytesPerMb;
  job.node_bytes_per_s = words.node_gbit_s * kBytesPerGbit;
  job.inner_bytes_per_s = words.inner_gbit_s * kBytesPerGbit;
  job.latency_s = words.latency_us / 1e6;
  absl::Status read = ReadLinks(words.links, &job.slow_links);
  if (read.ok()) read = ReadMany(words.nics, "node", "3=0.5", job.nodes() - 1, &job.node_share);
  if (read.ok()) read = ReadMany(words.slow, "place", "3=1.5", job.workers() - 1, &job.compute_factor);
  if (read.ok()) read = mitigation::CheckJob(job);
  if (!read.ok()) return read;
  return job;
}

absl::StatusOr<mitigation::Placement> ReadPlacement(const PlacementWords& words,
                                                    const mitigation::PlacedJob& job) {
  if (words.order == "dp") return mitigation::UsualPlacement(job);
  if (words.order == "pp") return mitigation::PipelinePlacement(job);
  return absl::InvalidArgumentError(
      absl::StrCat("'", words.order, "' is no order: dp, the groups of a stage side by side, or pp"));
}

}  // namespace c4::cli
