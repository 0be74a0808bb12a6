#include "benchmarks/perf_report.h"

#include <cerrno>
#include <cstdio>
#include <system_error>
#include <utility>

namespace c4::perf {
namespace {

// `value` in `width` places, with as many decimals, up to two, as fit.
std::string Fixed(double value, int width) {
  char text[64];
  for (int decimals = 2; decimals >= 0; --decimals) {
    if (snprintf(text, sizeof text, "%*.*f", width, decimals, value) <= width) break;
  }
  return text;
}

const char* NameOf(const std::optional<Reduction>& reduction) {
  return reduction.has_value() ? InfoOf(*reduction).name : "none";
}

std::string Columns(const Measurement& measurement) {
  if (!measurement.measured) return "      N/A     N/A     N/A     N/A";
  const std::string wrong = measurement.wrong < 0 ? "N/A" : std::to_string(measurement.wrong);
  char text[128];
  snprintf(text, sizeof text, "  %s  %s  %s  %6s", Fixed(measurement.time_us, 7).c_str(),
           Fixed(measurement.algorithm_gb_per_s, 6).c_str(), Fixed(measurement.bus_gb_per_s, 6).c_str(),
           wrong.c_str());
  return text;
}

std::string JsonOf(const Measurement& measurement) {
  if (!measurement.measured) return "null";
  char text[256];
  snprintf(text, sizeof text, R"({"time_us":%.3f,"algbw_gb_per_s":%.6f,"busbw_gb_per_s":%.6f,"wrong":%s})",
           measurement.time_us, measurement.algorithm_gb_per_s, measurement.bus_gb_per_s,
           measurement.wrong < 0 ? "null" : std::to_string(measurement.wrong).c_str());
  return text;
}

}  // namespace

void Measurement::SetTime(double seconds, size_t bytes, double bus_factor) {
  time_us = seconds * 1e6;
  algorithm_gb_per_s = seconds > 0 ? static_cast<double>(bytes) / seconds / 1e9 : 0;
  bus_gb_per_s = algorithm_gb_per_s * bus_factor;
}

Report::Report(std::string program, std::string library, int ranks, const Options& options, bool quiet)
    : program_(std::move(program)),
      library_(std::move(library)),
      ranks_(ranks),
      options_(options),
      quiet_(quiet) {}

void Report::Begin() const {
  if (quiet_) return;
  printf("# %s: %d ranks, %s\n", program_.c_str(), ranks_, library_.c_str());
  const bool multiplied = options_.step_factor > 1;
  printf("# minBytes %zu maxBytes %zu step: %zu(%s) warmup iters: %d iters: %d validation: %d cycles: %lld\n",
         options_.min_bytes, options_.max_bytes, multiplied ? options_.step_factor : options_.step_bytes,
         multiplied ? "factor" : "bytes", options_.warmup_iterations, options_.iterations,
         options_.check_iterations, static_cast<long long>(options_.cycles));
  printf("#\n");
  printf("#%-51s%21s%33s\n", "", "out-of-place", "in-place");
  const char* const lines[2][13] = {
      {"size", "count", "type", "redop", "root", "time", "algbw", "busbw", "#wrong", "time", "algbw", "busbw",
       "#wrong"},
      {"(B)", "(elements)", "", "", "", "(us)", "(GB/s)", "(GB/s)", "", "(us)", "(GB/s)", "(GB/s)", ""}};
  constexpr int kWidths[13] = {12, 12, 8, 6, 6, 7, 6, 6, 6, 7, 6, 6, 6};
  for (const auto& words : lines) {
    printf("#%*s", kWidths[0] - 1, words[0]);
    for (int i = 1; i < 13; ++i) printf("  %*s", kWidths[i], words[i]);
    printf("\n");
  }
  fflush(stdout);
}

void Report::Add(const Row& row) {
  rows_.push_back(row);
  for (const Measurement* measurement : {&row.out_of_place, &row.in_place}) {
    if (!measurement->measured) continue;
    bus_sum_ += measurement->bus_gb_per_s;
    ++bus_count_;
    if (measurement->wrong > 0) wrong_ += measurement->wrong;
  }
  if (quiet_) return;
  printf("%12zu  %12zu  %8s  %6s  %6d%s%s\n", row.bytes, row.count, InfoOf(row.type).name,
         NameOf(row.reduction), row.root, Columns(row.out_of_place).c_str(), Columns(row.in_place).c_str());
  fflush(stdout);
}

bool Report::EndCycle(std::string* error) {
  ++cycles_;
  const bool written = WriteJson(error);
  rows_.clear();
  return written;
}

bool Report::WriteJson(std::string* error) const {
  if (quiet_ || options_.json_path.empty()) return true;
  // Whole or not at all, for whoever reads while the next cycle runs.
  const std::string json = Json();
  const std::string temporary = options_.json_path + ".tmp";
  FILE* const file = fopen(temporary.c_str(), "w");
  bool written = file != nullptr && fwrite(json.data(), 1, json.size(), file) == json.size();
  if (file != nullptr) written = fclose(file) == 0 && written;
  if (written) written = rename(temporary.c_str(), options_.json_path.c_str()) == 0;
  if (!written) *error = "cannot write " + options_.json_path + ": " + std::generic_category().message(errno);
  return written;
}

void Report::End() const {
  if (quiet_) return;
  printf("# Out of bounds values : %lld %s\n", static_cast<long long>(wrong_), wrong_ == 0 ? "OK" : "FAILED");
  printf("# Avg bus bandwidth    : %g\n", AverageBusBandwidth());
  fflush(stdout);
}

double Report::AverageBusBandwidth() const {
  return bus_count_ == 0 ? 0 : bus_sum_ / static_cast<double>(bus_count_);
}

std::string Report::Json() const {
  std::string text = "{\"program\":\"" + program_ + "\",\"library\":\"" + library_ +
                     "\",\"ranks\":" + std::to_string(ranks_) +
                     ",\"iterations\":" + std::to_string(options_.iterations) +
                     ",\"cycles\":" + std::to_string(cycles_) + ",\"results\":[";
  for (size_t i = 0; i < rows_.size(); ++i) {
    const Row& row = rows_[i];
    text += std::string(i == 0 ? "" : ",") + "\n{\"bytes\":" + std::to_string(row.bytes) +
            ",\"count\":" + std::to_string(row.count) + ",\"type\":\"" + InfoOf(row.type).name +
            "\",\"redop\":\"" + NameOf(row.reduction) + "\",\"root\":" + std::to_string(row.root) +
            ",\"out_of_place\":" + JsonOf(row.out_of_place) + ",\"in_place\":" + JsonOf(row.in_place) + "}";
  }
  char tail[128];
  snprintf(tail, sizeof tail, "],\n\"wrong\":%lld,\"average_busbw_gb_per_s\":%.6f}\n",
           static_cast<long long>(wrong_), AverageBusBandwidth());
  return text + tail;
}

}  // namespace c4::perf
