// Two hundred jobs that hang, of 8 to 512 ranks: the ranks to blame are named exactly, or said to be
// undecidable.
#include <algorithm>
#include <cstdio>
#include <gtest/gtest.h>
#include <iterator>
#include <set>

#include "analysis/dump_waits.h"
#include "tests/support/hung_job.h"
#include "traces/flight_recorder.h"

namespace c4::traces {
namespace {

using testing::DumpStyle;
using testing::HangFault;
using testing::HungJob;
using testing::HungJobOptions;

struct Sort {
  const char* name;
  std::vector<HangFault> faults;
  double lose_dumps;
};

struct Shape {
  int tensor;
  int data;
  int pipeline;
  bool default_only;
};

struct Judged {
  bool exact = false;
  bool undecided = false;  // and what is said of it holds
};

analysis::StalledRanks Analyse(const HungJob& job) {
  std::vector<analysis::RankDump> dumps;
  for (const HungJob::Dump& dump : job.dumps) {
    absl::StatusOr<analysis::RankDump> parsed =
        ParseFlightDump(dump.json, "nccl_trace_rank_" + std::to_string(dump.rank));
    EXPECT_TRUE(parsed.ok()) << parsed.status();
    if (parsed.ok()) dumps.push_back(*std::move(parsed));
  }
  return analysis::FindStalledRanks(dumps);
}

// Both sides in words, for whoever reads a failure.
std::string Told(const HungJob& job, const analysis::StalledRanks& found) {
  std::string text = "truth: ranks";
  for (const int rank : job.culprits) text += " " + std::to_string(rank);
  for (const std::string& group : job.stuck_groups) text += ", stuck " + group;
  text += "; found: ranks";
  for (const analysis::StalledRank& rank : found.stalled) {
    text += " " + std::to_string(rank.rank) + "(" + rank.group + "/" + std::to_string(rank.operation) + ")";
  }
  for (const analysis::StalledRank& rank : found.without_dump)
    text += ", no dump " + std::to_string(rank.rank);
  for (const auto& one : found.stuck) text += ", stuck " + one.group + "/" + std::to_string(one.operation);
  for (const auto& one : found.mismatched) {
    text += ", mismatch in " + one.group;
    for (const int rank : one.culprits) text += " " + std::to_string(rank);
  }
  for (const auto& cycle : found.cycles) text += ", cycle of " + std::to_string(cycle.size());
  return text;
}

Judged Judge(const HungJob& job, const analysis::StalledRanks& found) {
  std::set<int> named;
  std::set<int> candidates;
  bool tie = false;
  for (const analysis::StalledRank& rank : found.stalled) named.insert(rank.rank);
  for (const analysis::StalledRank& rank : found.without_dump)
    (found.without_dump_certain ? named : candidates).insert(rank.rank);
  for (const auto& mismatch : found.mismatched) {
    named.insert(mismatch.culprits.begin(), mismatch.culprits.end());
    tie = tie || mismatch.culprits.empty();
    if (!mismatch.culprits.empty()) continue;
    for (const auto& side : mismatch.sides) candidates.insert(side.ranks.begin(), side.ranks.end());
  }
  std::set<std::string> stuck;
  for (const auto& one : found.stuck) stuck.insert(one.group);
  const std::set<int> culprits(job.culprits.begin(), job.culprits.end());
  const std::set<std::string> hung(job.stuck_groups.begin(), job.stuck_groups.end());
  // One at fault for whom nobody waits yet may be named, and need not be.
  for (const int rank : job.latent) {
    named.erase(rank);
    candidates.erase(rank);
  }
  Judged judged;
  judged.exact = named == culprits && stuck == hung && candidates.empty() && found.cycles.empty();
  // What is named is to blame, and something is said to be open: candidates, or dumps that are missing.
  const bool nobody_wrong = std::includes(culprits.begin(), culprits.end(), named.begin(), named.end()) &&
                            std::includes(hung.begin(), hung.end(), stuck.begin(), stuck.end());
  judged.undecided = !judged.exact && nobody_wrong && (tie || !candidates.empty() || !found.missing.empty());
  return judged;
}

TEST(HungJobs, CulpritsAreExactOrSaidToBeUndecidable) {
  const Sort kSorts[] = {{"absent", {HangFault::kAbsent}, 0},
                         {"stuck", {HangFault::kStuck}, 0},
                         {"mismatched", {HangFault::kMismatch}, 0},
                         {"dead", {HangFault::kDead}, 0},
                         {"several", {HangFault::kAbsent, HangFault::kMismatch, HangFault::kAbsent}, 0},
                         {"stuck and absent", {HangFault::kStuck, HangFault::kAbsent}, 0},
                         {"two dead", {HangFault::kDead, HangFault::kDead}, 0},
                         {"half missing", {HangFault::kAbsent}, 0.5}};
  const Shape kShapes[] = {{1, 8, 1, true},  {2, 4, 1, false}, {2, 4, 2, false},
                           {4, 4, 1, false}, {1, 32, 1, true}, {4, 8, 1, false},
                           {4, 8, 2, false}, {8, 8, 4, false}, {8, 16, 4, false}};
  const DumpStyle kStyles[] = {DumpStyle::kWhole, DumpStyle::kOpen, DumpStyle::kRetired};
  uint64_t seed = 77000001;  // none of these was looked at while the rules were made
  size_t sets = 0;
  for (const Sort& sort : kSorts) {
    size_t exact = 0;
    size_t undecided = 0;
    constexpr size_t kOfASort = 25;
    for (size_t i = 0; i < kOfASort; ++i, ++seed, ++sets) {
      const Shape& shape = kShapes[i % std::size(kShapes)];
      const HungJobOptions options = {
          shape.tensor, shape.data,      shape.pipeline, shape.default_only,
          sort.faults,  sort.lose_dumps, seed,           kStyles[i / 2 % std::size(kStyles)]};
      const HungJob job = SimulateHang(options);
      const analysis::StalledRanks found = Analyse(job);
      const Judged judged = Judge(job, found);
      exact += judged.exact ? 1 : 0;
      undecided += judged.undecided ? 1 : 0;
      EXPECT_TRUE(judged.exact || judged.undecided)
          << sort.name << ", seed " << seed << ": " << Told(job, found);
      if (sort.lose_dumps == 0 && sort.faults.front() != HangFault::kDead) {
        EXPECT_TRUE(judged.exact) << sort.name << ", seed " << seed << ": " << Told(job, found);
      }
    }
    printf("%-18s %zu sets: %zu exact, %zu undecided\n", sort.name, kOfASort, exact, undecided);
  }
  EXPECT_EQ(sets, 200U);
}

}  // namespace
}  // namespace c4::traces
