// What the what-if analysis costs: reading a trace, the full analysis after that, exact slow-downs of 1,024
// workers, and how time grows up to 10 million operations. `whatif_bench` prints a table;
// `whatif_bench --write FILE STEPS` writes a trace of about 3,000 operations a step as CSV, for other tools;
// `--large` goes up to 10 million operations; `whatif_bench --write-kineto FOLDER STEPS PADDING` writes the
// profiles of PyTorch's profiler of a job of 2 ranks, with PADDING events that are no operation for each.
#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <sys/resource.h>
#include <thread>
#include <vector>

#include "analysis/whatif/analysis.h"
#include "analysis/whatif/causes.h"
#include "benchmarks/kineto_profile.h"
#include "benchmarks/synthetic_job.h"
#include "traces/table_reader.h"

namespace c4::benchmarks {
namespace {

using Clock = std::chrono::steady_clock;

double Since_ms(Clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
}

SyntheticJob Sized(int dp_size, int pp_size, int micro_batches, int steps) {
  SyntheticJob job;
  job.shape = {.dp_size = dp_size, .pp_size = pp_size, .micro_batches = micro_batches, .steps = steps};
  job.sequence_spread = 0.2;
  job.slow_dp = job.slow_stage = 1;
  job.slow_factor = 1.3;
  return job;
}

void Append(double value, std::string* text) {
  char digits[40];
  const auto [end, error] = std::to_chars(digits, digits + sizeof digits, value);
  if (error == std::errc()) text->append(digits, end);
}

std::string Csv(const whatif::TraceRecords& records) {
  std::string text = "dp_rank,stage,rank,step,optype,start_ts,duration,seq_id,mc,mb_id,gmc\n";
  for (size_t i = 0; i < records.size(); ++i) {
    const whatif::OperationRecord& record = records[i];
    text += std::to_string(record.dp_rank) + "," + std::to_string(record.stage) + "," +
            std::to_string(record.rank) + "," + std::to_string(record.step) + "," +
            whatif::OperationName(static_cast<whatif::OperationType>(record.type)) + ",";
    Append(record.start_s, &text);
    text += ",";
    Append(static_cast<double>(record.duration_s), &text);
    text += "," + std::to_string(record.sequence) + "," + std::to_string(record.chunk) + "," +
            std::to_string(record.micro_batch) + "," + std::to_string(record.global_chunk) + "\n";
  }
  return text;
}

[[noreturn]] void Fail(const absl::Status& status) {
  fprintf(stderr, "whatif_bench: %s\n", std::string(status.message()).c_str());
  std::exit(1);  // NOLINT(concurrency-mt-unsafe)
}

template <typename T>
T Must(absl::StatusOr<T> value) {
  if (!value.ok()) Fail(value.status());
  return *std::move(value);
}

size_t Operations(const whatif::Job& job) {
  return job.trace.operations.size() * job.trace.lanes();
}

// The trace, and the durations that were measured of it; not the records, which are gone by then.
double BytesOfOperation(const whatif::Job& job) {
  return static_cast<double>(job.trace.start_s.size() * sizeof(double) +
                             job.trace.duration_s.size() * sizeof(float) +
                             job.durations.recorded_s.size() * sizeof(float)) /
         static_cast<double>(Operations(job));
}

void Measure(const char* what, const SyntheticJob& synthetic, int threads, int repeats) {
  std::vector<double> read_ms;
  std::vector<double> build_ms;
  std::vector<double> analyse_ms;
  std::vector<double> causes_ms;
  size_t operations = 0;
  double bytes = 0;
  const std::string csv = Csv(Execute(synthetic).records);
  for (int i = 0; i < repeats; ++i) {
    auto begin = Clock::now();
    const std::unique_ptr<traces::ByteSource> source = traces::MemoryBytes(csv);
    traces::TableContents table = Must(traces::ReadTable(source.get(), {}));
    read_ms.push_back(Since_ms(begin));
    begin = Clock::now();
    whatif::Trace trace = Must(whatif::BuildTrace(table.records, {}));
    table.records = whatif::TraceRecords();
    const whatif::Job job = Must(whatif::MakeJob(std::move(trace)));
    build_ms.push_back(Since_ms(begin));
    begin = Clock::now();
    const whatif::Analysis analysis = Must(whatif::Analyse(job, threads));
    analyse_ms.push_back(Since_ms(begin));
    begin = Clock::now();
    whatif::FindCauses(job, analysis, threads);
    causes_ms.push_back(Since_ms(begin));
    operations = Operations(job);
    bytes = BytesOfOperation(job);
  }
  const auto median = [](std::vector<double>* times) {
    std::nth_element(times->begin(), times->begin() + static_cast<ptrdiff_t>(times->size() / 2),
                     times->end());
    return (*times)[times->size() / 2];
  };
  printf("%-26s %10zu  %7.1f  %7.1f  %7.1f  %7.1f  %5.1f\n", what, operations, median(&read_ms),
         median(&build_ms), median(&analyse_ms), median(&causes_ms), bytes);
  fflush(stdout);
}

int WriteKineto(const std::string& folder, int steps, int padding) {
  const SyntheticJob job = Sized(2, 1, 8, steps);
  const ExecutedJob executed = Execute(job);
  for (int rank = 0; rank < 2; ++rank) {
    const std::string path = folder + "/rank_" + std::to_string(rank) + ".json";
    FILE* file = fopen(path.c_str(), "we");
    if (file == nullptr) return 1;
    bool written = true;
    const KinetoProfile profile = {.rank = rank, .written_rank = rank, .world_size = 2, .padding = padding};
    WriteKinetoProfile(executed.records, profile, [file, &written](std::string_view text) {
      written = fwrite(text.data(), 1, text.size(), file) == text.size() && written;
    });
    if (fclose(file) != 0 || !written) return 1;
  }
  return 0;
}

int Main(int argc, char** argv) {
  if (argc == 5 && std::string(argv[1]) == "--write-kineto") {
    return WriteKineto(argv[2], std::max(1, std::atoi(argv[3])), std::max(0, std::atoi(argv[4])));  // NOLINT
  }
  if (argc == 4 && std::string(argv[1]) == "--write") {
    const int steps = std::max(1, std::atoi(argv[3]));  // NOLINT
    FILE* file = fopen(argv[2], "we");
    if (file == nullptr) return 1;
    const bool written = fputs(Csv(Execute(Sized(16, 4, 8, steps)).records).c_str(), file) >= 0;
    return fclose(file) == 0 && written ? 0 : 1;
  }
  const int threads = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  printf("%d threads; medians; times in ms\n\n", threads);
  printf("%-26s %10s  %7s  %7s  %7s  %7s  %5s\n", "trace", "operations", "read", "build", "analyse", "causes",
         "B/op");
  Measure("DP 16 x PP 4, 34 steps", Sized(16, 4, 8, 34), threads, 15);
  Measure("DP 128 x PP 8, 10 steps", Sized(128, 8, 8, 10), threads, 5);
  Measure("DP 64 x PP 8, 50 steps", Sized(64, 8, 8, 50), threads, 3);
  if (argc == 2 && std::string(argv[1]) == "--large") {
    Measure("DP 64 x PP 8, 100 steps", Sized(64, 8, 8, 100), threads, 1);
    Measure("DP 64 x PP 8, 200 steps", Sized(64, 8, 8, 200), threads, 1);
    Measure("DP 64 x PP 8, 390 steps", Sized(64, 8, 8, 390), threads, 1);
  }
  return 0;
}

}  // namespace
}  // namespace c4::benchmarks

int main(int argc, char** argv) {
  return c4::benchmarks::Main(argc, argv);
}
