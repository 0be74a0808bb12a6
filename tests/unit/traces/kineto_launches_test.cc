// Times of computations on GPUs: those of the kernels that a mark of the program launched, wherever from.
#include "traces/kineto_launches.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "traces/byte_source.h"
#include "traces/kineto_mapping.h"
#include "traces/kineto_reader.h"

namespace c4::traces {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr int kMain = 100;
constexpr int kAutograd = 101;  // a thread of its own, as PyTorch's

std::string Event(const char* category, const std::string& name, int tid, int start_us, int duration_us,
                  const std::string& args = "") {
  return absl::StrCat(R"({"ph":"X","cat":")", category, R"(","name":")", name, R"(","pid":7,"tid":)", tid,
                      R"(,"ts":)", start_us, R"(,"dur":)", duration_us, R"(,"args":{)", args, "}}");
}

// One GPU job's profile, a step of 10 ms each: the device runs 30 ms behind the program.
struct Profile {
  std::vector<std::string> events;
  int correlation = 0;

  void Kernel(int tid, int launched_us, int run_us, int duration_us, const char* name = "gemm",
              const char* category = "kernel") {
    const std::string args = absl::StrCat("\"correlation\":", ++correlation);
    events.push_back(Event(category, name, 7, run_us, duration_us, args));  // before its launch in the file
    events.push_back(Event("cuda_runtime", "cudaLaunchKernel", tid, launched_us, 5, args));
  }
  void Step(int number) {
    const int at = 10000 * number;
    const int gpu = at + 30000;
    events.push_back(Event("user_annotation", absl::StrCat("ProfilerStep#", number), kMain, at, 9000));
    events.push_back(Event("user_annotation", "forward", kMain, at + 100, 400));
    Kernel(kMain, at + 150, gpu + 100, 1000);
    Kernel(kMain, at + 400, gpu + 1200, 800);
    events.push_back(Event("user_annotation", "backward", kMain, at + 600, 5000));
    // What the profiler mirrors: only what the marking thread launched, here a zeroing.
    events.push_back(Event("gpu_user_annotation", "backward", 7, gpu + 2100, 3));
    Kernel(kMain, at + 610, gpu + 2100, 3, "Memset", "gpu_memset");
    Kernel(kAutograd, at + 700, gpu + 2200, 2000);
    Kernel(kAutograd, at + 5500, gpu + 4300, 700);
    Kernel(kAutograd, at + 5510, gpu + 4400, 9000, "ncclDevKernel_AllReduce");
    events.push_back(Event("user_annotation", "optimizer", kMain, at + 6000, 100));
    Kernel(kMain, at + 6050, gpu + 13500, 300);
  }
  std::string text() const {
    return absl::StrCat(R"({"distributedInfo":{"rank":0,"world_size":1},"traceEvents":[)",
                        absl::StrJoin(events, ",\n"), "]}");
  }
};

constexpr char kMapping[] = R"({"layout": {"order": "dp", "sizes": {"dp": 1}}, "rules": [
  {"type": "forward-compute", "name": "forward"}, {"type": "backward-compute", "name": "backward"},
  {"type": "optimizer", "name": "optimizer"},
  {"type": "grads-reduce-scatter", "name": "nccl*AllReduce*", "category": "kernel"}]})";

absl::StatusOr<TableContents> Read(const std::string& profile, const char* mapping_text = kMapping,
                                   const TableOptions& options = {}) {
  absl::StatusOr<KinetoMapping> mapping = ParseKinetoMapping(mapping_text);
  if (!mapping.ok()) return mapping.status();
  auto reader = KinetoReader::Make(*std::move(mapping), {}, options);
  if (!reader.ok()) return reader.status();
  const std::unique_ptr<ByteSource> source = MemoryBytes(profile);
  if (absl::Status read = (*reader)->Read("rank_0.json", source.get()); !read.ok()) return read;
  return (*reader)->Finish();
}

// Microseconds of the operations of a type, by step.
std::vector<int> Durations(const TableContents& table, whatif::OperationType type) {
  std::vector<int> durations;
  for (size_t i = 0; i < table.records.size(); ++i) {
    const whatif::OperationRecord& record = table.records[i];
    if (record.type == whatif::Index(type)) {
      EXPECT_EQ(record.step, static_cast<int>(durations.size()));
      durations.push_back(static_cast<int>(record.duration_s * 1e6 + 0.5));
    }
  }
  return durations;
}

TEST(KinetoLaunches, KernelsGiveTheTimesAlsoThoseThatAutogradLaunched) {
  Profile profile;
  for (int step = 0; step < 3; ++step) profile.Step(step);
  const auto table = Read(profile.text());
  ASSERT_TRUE(table.ok()) << table.status();
  EXPECT_THAT(Durations(*table, whatif::OperationType::kForwardCompute), ElementsAre(1900, 1900, 1900));
  // The device runs it while the program is three steps further: its launch tells whose it is.
  EXPECT_THAT(Durations(*table, whatif::OperationType::kGradsReduceScatter), ElementsAre(9000, 9000, 9000));
  EXPECT_THAT(table->notes, IsEmpty());
  // From the memset to the end of the last kernel; the collective is an operation of its own.
  EXPECT_THAT(Durations(*table, whatif::OperationType::kBackwardCompute), ElementsAre(2900, 2900, 2900));
  EXPECT_THAT(Durations(*table, whatif::OperationType::kOptimizer), ElementsAre(300, 300, 300));
}

TEST(KinetoLaunches, WithoutLaunchesTheMirroredMarksOrTheProgramsCount) {
  Profile profile;
  profile.Step(0);
  profile.events.push_back(Event("gpu_user_annotation", "ProfilerStep#0", 7, 30000, 20000));
  std::string text = profile.text();
  for (size_t at = 0; (at = text.find("cuda_runtime", at)) != std::string::npos;) text.replace(at, 12, "x");
  const auto table = Read(text);
  ASSERT_TRUE(table.ok()) << table.status();
  EXPECT_THAT(Durations(*table, whatif::OperationType::kForwardCompute), ElementsAre(400));
  // Two clocks: said, as it makes forward look short beside backward, or the other way.
  EXPECT_THAT(table->notes, testing::Contains(HasSubstr("are those of the CPU, all others of the GPU")));
  EXPECT_THAT(Durations(*table, whatif::OperationType::kBackwardCompute), ElementsAre(3));
}

TEST(KinetoLaunches, AMarkThatLaunchedNothingIsLeftOutAndCounted) {
  Profile profile;
  profile.Step(0);
  profile.events.push_back(Event("user_annotation", "optimizer", kMain, 7000, 100));
  const auto table = Read(profile.text());
  ASSERT_TRUE(table.ok()) << table.status();
  EXPECT_THAT(table->notes, testing::Contains(HasSubstr("1 marks are left out that launched no kernel")));
  EXPECT_THAT(Durations(*table, whatif::OperationType::kOptimizer), ElementsAre(300));
}

TEST(KinetoLaunches, TooManyAreRefused) {
  Profile profile;
  for (int step = 0; step < 3; ++step) profile.Step(step);
  TableOptions options;
  options.max_operations = 12;
  EXPECT_THAT(std::string(Read(profile.text(), kMapping, options).status().message()),
              HasSubstr("more than 24 launches and kernels of one rank"));
}

TEST(KinetoLaunches, OldNamesOfCategories) {
  Profile profile;
  profile.Step(0);
  std::string text = profile.text();
  for (const auto& [now, then] :
       {std::pair("\"cuda_runtime\"", "\"Runtime\""), std::pair("\"kernel\"", "\"Kernel\""),
        std::pair("\"gpu_memset\"", "\"Memset\"")}) {
    const std::string from = now;
    for (size_t at = 0; (at = text.find(from, at)) != std::string::npos;) text.replace(at, from.size(), then);
  }
  const auto table = Read(text);
  ASSERT_TRUE(table.ok()) << table.status();
  EXPECT_THAT(Durations(*table, whatif::OperationType::kForwardCompute), ElementsAre(1900));
}

// Random nests of ranges on three threads, and launches: each belongs to what a search over all ranges finds.
TEST(KinetoLaunches, AsASearchOverAllRangesFindsThem) {
  for (unsigned seed = 0; seed < 300; ++seed) {
    std::mt19937 random(seed);
    const auto below = [&random](int most) {
      return static_cast<int>(random() % static_cast<unsigned>(most));
    };
    std::vector<KinetoLaunches::Range> ranges;
    const auto nest = [&](const auto& self, uint32_t thread, int from, int to, int depth) -> void {
      for (int at = from + 1 + below(10); at + 2 < to && depth < 4; at += 1 + below(20)) {
        const int end = at + 1 + below(to - at - 1);
        ranges.push_back({thread, {3 * at + static_cast<int>(thread), 3 * end + static_cast<int>(thread)}});
        self(self, thread, at, end, depth + 1);
        at = end;
      }
    };
    for (uint32_t thread = 0; thread < 3; ++thread) nest(nest, thread, 0, 200, 0);
    KinetoLaunches launches;
    std::vector<std::optional<TimeSpan>> expected(ranges.size());
    for (uint64_t i = 0; i < 60; ++i) {
      const auto thread = static_cast<uint32_t>(below(4));
      const int at = below(630);
      const int runs = below(1000);
      launches.AddLaunch(thread, i, at);
      if (i % 7 == 0) continue;  // its kernel is not in the profile
      launches.AddKernel(i, {runs, runs + 5});
      const KinetoLaunches::Range* best = nullptr;
      for (const bool own : {true, false}) {
        for (const KinetoLaunches::Range& range : ranges) {
          if ((range.thread == thread) != own || range.time.start_ns > at || range.time.end_ns < at) continue;
          if (best == nullptr || range.time.start_ns > best->time.start_ns) best = &range;
        }
        if (best != nullptr) break;
      }
      if (best == nullptr) continue;
      std::optional<TimeSpan>& span = expected[static_cast<size_t>(best - ranges.data())];
      if (!span) span = TimeSpan{runs, runs + 5};
      span->start_ns = std::min<int64_t>(span->start_ns, runs);
      span->end_ns = std::max<int64_t>(span->end_ns, runs + 5);
    }
    const auto spans = launches.SpansOf(ranges);
    for (size_t i = 0; i < ranges.size(); ++i) {
      ASSERT_EQ(spans[i].has_value(), expected[i].has_value()) << "seed " << seed << ", range " << i;
      if (!spans[i]) continue;
      EXPECT_EQ(spans[i]->start_ns, expected[i]->start_ns);
      EXPECT_EQ(spans[i]->end_ns, expected[i]->end_ns);
    }
  }
}

}  // namespace
}  // namespace c4::traces
