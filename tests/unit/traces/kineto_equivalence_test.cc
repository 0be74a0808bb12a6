// A job written as a table and as profiles of PyTorch's profiler, one a rank, with the shipped mapping: the
// same figures.
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <gtest/gtest.h>
#include <string>

#include "absl/strings/str_cat.h"
#include "analysis/whatif/analysis.h"
#include "benchmarks/kineto_profile.h"
#include "benchmarks/synthetic_job.h"
#include "traces/byte_source.h"
#include "traces/kineto_mapping.h"
#include "traces/kineto_reader.h"

namespace c4::traces {
namespace {

constexpr int kTensorRanks = 2;

// As a profiler has them.
double WholeNanoseconds(double seconds) {
  return static_cast<double>(std::llround(seconds * 1e9)) / 1e9;
}

std::string Exact(double value) {
  char digits[40];
  return {digits, std::to_chars(digits, digits + sizeof digits, value).ptr};
}

absl::StatusOr<TableContents> AsTable(const whatif::TraceRecords& records) {
  std::string text = "dp_rank,stage,rank,step,optype,start_ts,duration,mc,mb_id\n";
  for (size_t i = 0; i < records.size(); ++i) {
    const whatif::OperationRecord& one = records[i];
    absl::StrAppend(&text, one.dp_rank, ",", static_cast<int>(one.stage), ",", one.rank * kTensorRanks, ",",
                    one.step, ",", whatif::OperationName(static_cast<whatif::OperationType>(one.type)), ",",
                    Exact(WholeNanoseconds(one.start_s)), ",",
                    Exact(WholeNanoseconds(static_cast<double>(one.duration_s))), ",", one.chunk, ",",
                    one.micro_batch, "\n");
  }
  const std::unique_ptr<ByteSource> source = MemoryBytes(text);
  return ReadTable(source.get(), {});
}

absl::StatusOr<TableContents> AsProfiles(const whatif::TraceRecords& records,
                                         const benchmarks::JobShape& job) {
  const char* folder = std::getenv("C4_SOURCE_DIR");  // NOLINT(concurrency-mt-unsafe)
  if (folder == nullptr) return absl::NotFoundError("C4_SOURCE_DIR is not set");
  const auto mapping_file = OpenBytes(std::string(folder) + "/examples/kineto-megatron.json");
  if (!mapping_file.ok()) return mapping_file.status();
  const absl::StatusOr<std::string> mapping_text = ReadAll(mapping_file->get(), 1 << 20);
  if (!mapping_text.ok()) return mapping_text.status();
  absl::StatusOr<KinetoMapping> mapping = ParseKinetoMapping(*mapping_text);
  if (!mapping.ok()) return mapping.status();
  whatif::JobShape shape;
  shape.tp_size = kTensorRanks;
  shape.cp_size = 1;
  shape.dp_size = job.dp_size;
  shape.pp_size = job.pp_size;
  auto reader = KinetoReader::Make(*std::move(mapping), shape, {});
  if (!reader.ok()) return reader.status();
  const int workers = job.dp_size * job.pp_size;
  for (int written = kTensorRanks * workers - 1; written >= 0; --written) {
    std::string text;
    benchmarks::WriteKinetoProfile(
        records,
        {.rank = written / kTensorRanks, .written_rank = written, .world_size = kTensorRanks * workers},
        [&text](std::string_view piece) { text += piece; });
    const std::unique_ptr<ByteSource> source = MemoryBytes(text);
    const absl::Status read = (*reader)->Read(absl::StrCat("rank_", written, ".json"), source.get());
    if (!read.ok()) return read;
  }
  return (*reader)->Finish();
}

struct Analysed {
  whatif::Job job;
  whatif::Analysis analysis;
};

Analysed Analyse(const absl::StatusOr<TableContents>& table) {
  EXPECT_TRUE(table.ok()) << table.status();
  absl::StatusOr<whatif::Trace> trace = whatif::BuildTrace(table->records, {});
  EXPECT_TRUE(trace.ok()) << trace.status();
  absl::StatusOr<whatif::Job> job = whatif::MakeJob(*std::move(trace));
  EXPECT_TRUE(job.ok()) << job.status();
  absl::StatusOr<whatif::Analysis> analysis = whatif::Analyse(*job, 1);
  EXPECT_TRUE(analysis.ok()) << analysis.status();
  return {*std::move(job), *std::move(analysis)};
}

void ExpectSameFigures(const benchmarks::JobShape& shape) {
  benchmarks::SyntheticJob synthetic;
  synthetic.shape = shape;
  synthetic.slow_dp = synthetic.slow_stage = 1;
  synthetic.slow_factor = 1.5;
  synthetic.gc_pause_s = 0.05;
  synthetic.gc_probability = 0.3;
  const benchmarks::ExecutedJob executed = benchmarks::Execute(synthetic);
  const Analysed table = Analyse(AsTable(executed.records));
  const absl::StatusOr<TableContents> profiles = AsProfiles(executed.records, shape);
  ASSERT_TRUE(profiles.ok()) << profiles.status();
  EXPECT_EQ(profiles->records.size(), executed.records.size());
  ASSERT_EQ(profiles->notes.size(), 1);  // the other half of the tensor groups
  EXPECT_EQ(profiles->notes[0].find(absl::StrCat(shape.dp_size * shape.pp_size, " ranks are left out")), 0);
  const Analysed read = Analyse(profiles);
  EXPECT_EQ(read.job.trace.ranks, table.job.trace.ranks);
  EXPECT_EQ(read.job.trace.steps, table.job.trace.steps);
  constexpr double kSame = 1e-7;
  EXPECT_GT(table.analysis.slowdown, 1.1);
  EXPECT_NEAR(read.analysis.slowdown, table.analysis.slowdown, kSame);
  EXPECT_NEAR(read.analysis.step_time_s, table.analysis.step_time_s, kSame);
  EXPECT_NEAR(read.analysis.discrepancy, table.analysis.discrepancy, kSame);
  ASSERT_EQ(read.analysis.by_worker.size(), table.analysis.by_worker.size());
  for (size_t i = 0; i < read.analysis.by_worker.size(); ++i) {
    EXPECT_NEAR(read.analysis.by_worker[i].overall, table.analysis.by_worker[i].overall, kSame) << i;
  }
  ASSERT_EQ(read.analysis.type_groups, table.analysis.type_groups);
  for (size_t i = 0; i < read.analysis.by_type.size(); ++i) {
    EXPECT_NEAR(read.analysis.by_type[i].overall, table.analysis.by_type[i].overall, kSame) << i;
  }
}

TEST(KinetoEquivalence, PipelineOfFourStages) {
  ExpectSameFigures({.dp_size = 2, .pp_size = 4, .micro_batches = 8, .steps = 3});
}

TEST(KinetoEquivalence, VirtualStages) {
  ExpectSameFigures({.dp_size = 2, .pp_size = 2, .chunks = 2, .micro_batches = 4, .steps = 2});
}

}  // namespace
}  // namespace c4::traces
