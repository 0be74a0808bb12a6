// Profiles as PyTorch writes them (tests/data/kineto-pytorch): read whole, and the slow rank is found.
#include <cstdlib>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <string>

#include "absl/strings/str_cat.h"
#include "analysis/whatif/analysis.h"
#include "traces/byte_source.h"
#include "traces/kineto_mapping.h"
#include "traces/kineto_reader.h"

namespace c4::traces {
namespace {

constexpr int kRanks = 4;
constexpr int kSteps = 3;
constexpr int kMicroBatches = 3;
constexpr size_t kMaxMappingBytes = 1 << 20;

std::unique_ptr<ByteSource> Open(const std::string& name) {
  const char* source = std::getenv("C4_SOURCE_DIR");  // NOLINT(concurrency-mt-unsafe)
  auto file = OpenBytes(absl::StrCat(source != nullptr ? source : ".", "/tests/data/kineto-pytorch/", name));
  EXPECT_TRUE(file.ok()) << file.status();
  return file.ok() ? *std::move(file) : MemoryBytes("");
}

TEST(PytorchProfiles, AreReadWholeAndNameTheSlowRank) {
  const absl::StatusOr<std::string> text = ReadAll(Open("mapping.json").get(), kMaxMappingBytes);
  ASSERT_TRUE(text.ok()) << text.status();
  absl::StatusOr<KinetoMapping> mapping = ParseKinetoMapping(*text);
  ASSERT_TRUE(mapping.ok()) << mapping.status();
  auto reader = KinetoReader::Make(*std::move(mapping), {}, {});
  ASSERT_TRUE(reader.ok()) << reader.status();
  for (int rank = 0; rank < kRanks; ++rank) {
    const std::string name = absl::StrCat("rank_", rank, ".json.gz");
    const absl::Status read = (*reader)->Read(name, Open(name).get());
    ASSERT_TRUE(read.ok()) << read;
  }
  const absl::StatusOr<TableContents> table = (*reader)->Finish();
  ASSERT_TRUE(table.ok()) << table.status();
  EXPECT_THAT(table->notes, testing::IsEmpty());
  // Of each rank and step: its begin, four operations a micro-batch, gradients, the optimizer.
  EXPECT_EQ(table->records.size(), kRanks * kSteps * (1 + 4 * kMicroBatches + 2));
  absl::StatusOr<whatif::Trace> trace = whatif::BuildTrace(table->records, {});
  ASSERT_TRUE(trace.ok()) << trace.status();
  EXPECT_EQ(trace->steps.size(), kSteps);
  const absl::StatusOr<whatif::Job> job = whatif::MakeJob(*std::move(trace));
  ASSERT_TRUE(job.ok()) << job.status();
  const absl::StatusOr<whatif::Analysis> analysis = whatif::Analyse(*job, 1);
  ASSERT_TRUE(analysis.ok()) << analysis.status();
  // By stage, then data-parallel rank: rank 2 is the first of the second stage.
  EXPECT_THAT(analysis->slowest_workers, testing::ElementsAre(2));
  ASSERT_EQ(analysis->by_worker.size(), kRanks);
  EXPECT_GT(analysis->by_worker[2].overall, 1.2);
  EXPECT_LT(analysis->discrepancy, 0.01);  // without what lies between the operations 12 %
}

}  // namespace
}  // namespace c4::traces
