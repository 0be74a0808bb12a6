// The shared library, through its public header, as a data loader has it.
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <limits>
#include <vector>

#include "analysis/include/c4/redistribution.h"

namespace {

using testing::HasSubstr;

struct Dealt {
  c4_redistribution_result_t result = C4_REDISTRIBUTION_OK;
  std::vector<int32_t> rank;
  std::vector<int32_t> batch;
  c4_redistribution_gain_t gain{};
};

c4_redistribution_options_t Options(int dp_size, int micro_batches) {
  c4_redistribution_options_t options = C4_REDISTRIBUTION_OPTIONS_INITIALIZER;
  options.dp_size = dp_size;
  options.micro_batches = micro_batches;
  return options;
}

Dealt Deal(const c4_redistribution_options_t& options, const std::vector<uint32_t>& tokens, Dealt from = {}) {
  const bool placed = !from.rank.empty();
  from.rank.resize(tokens.size(), -7);
  from.batch.resize(tokens.size(), -7);
  from.result = c4_redistribute(&options, tokens.data(), tokens.size(), placed ? 1 : 0, from.rank.data(),
                                from.batch.data(), &from.gain);
  return from;
}

TEST(RedistributionLibrary, DealsTheLongestOutFirstAndTellsTheGain) {
  // As they come: 9 + 1 on the one rank, 1 + 1 on the other; dealt out: 9 on the one, the rest on the other.
  const Dealt dealt = Deal(Options(2, 1), {9, 1, 1, 1});
  ASSERT_EQ(dealt.result, C4_REDISTRIBUTION_OK);
  EXPECT_EQ(dealt.rank, (std::vector<int32_t>{0, 1, 1, 1}));
  EXPECT_EQ(dealt.batch, (std::vector<int32_t>{0, 0, 0, 0}));
  EXPECT_DOUBLE_EQ(dealt.gain.step_before, 10);
  EXPECT_DOUBLE_EQ(dealt.gain.step_after, 9);
  EXPECT_DOUBLE_EQ(dealt.gain.speedup, 10.0 / 9);
  EXPECT_EQ(dealt.gain.fullest_tokens, 9U);
  EXPECT_STREQ(c4_redistribution_error(), "");
}

TEST(RedistributionLibrary, CountsThePipelineAndTheSquare) {
  c4_redistribution_options_t options = Options(1, 2);
  options.pp_size = 3;
  options.per_token_squared = 0.5;
  // Costs 4 and 12: one after the other, and the larger twice more.
  const Dealt dealt = Deal(options, {2, 4});
  ASSERT_EQ(dealt.result, C4_REDISTRIBUTION_OK);
  EXPECT_DOUBLE_EQ(dealt.gain.step_after, 4 + 12 + 2 * 12);
}

TEST(RedistributionLibrary, CountsTheGainFromWhereTheSequencesStand) {
  Dealt now;
  now.rank = {1, 1, 1, 1};
  now.batch = {0, 0, 0, 0};
  const Dealt dealt = Deal(Options(2, 1), {3, 3, 3, 3}, now);
  EXPECT_DOUBLE_EQ(dealt.gain.step_before, 12);
  EXPECT_DOUBLE_EQ(dealt.gain.speedup, 2);
}

TEST(RedistributionLibrary, SaysWhenMicroBatchesCannotBeKeptToTheirRoom) {
  c4_redistribution_options_t options = Options(1, 2);
  options.most_tokens = 5;
  EXPECT_EQ(Deal(options, {5, 5}).gain.fullest_tokens, 5U);
  EXPECT_EQ(Deal(options, {5, 5, 5}).gain.fullest_tokens, 10U);
}

TEST(RedistributionLibrary, GivesTheSameAnswerEachTime) {
  std::vector<uint32_t> tokens(5000);
  uint32_t state = 1;
  for (uint32_t& count : tokens) count = (state = state * 1664525 + 1013904223) >> 20;
  const Dealt first = Deal(Options(16, 8), tokens);
  for (int i = 0; i < 3; ++i) {
    const Dealt again = Deal(Options(16, 8), tokens);
    EXPECT_EQ(again.rank, first.rank);
    EXPECT_EQ(again.batch, first.batch);
  }
  EXPECT_GT(first.gain.speedup, 1);
}

TEST(RedistributionLibrary, NoSequencesAreNoWork) {
  const c4_redistribution_options_t options = Options(2, 2);
  c4_redistribution_gain_t gain;
  EXPECT_EQ(c4_redistribute(&options, nullptr, 0, 0, nullptr, nullptr, &gain), C4_REDISTRIBUTION_OK);
  EXPECT_EQ(gain.speedup, 1);
  const std::vector<uint32_t> empty = {0, 0};
  EXPECT_EQ(Deal(options, empty).gain.speedup, 1);
}

TEST(RedistributionLibrary, RefusesWithASentenceAndWritesNothing) {
  const auto refused = [](const c4_redistribution_options_t& options, const char* why) {
    const Dealt dealt = Deal(options, {1, 2});
    EXPECT_EQ(dealt.result, C4_REDISTRIBUTION_BAD_ARGUMENT) << why;
    EXPECT_EQ(dealt.rank, (std::vector<int32_t>{-7, -7})) << why;
    EXPECT_THAT(c4_redistribution_error(), HasSubstr(why));
  };
  refused(Options(0, 1), "dp_size, micro_batches and pp_size");
  refused(Options(1, -1), "dp_size, micro_batches and pp_size");
  refused(Options(1 << 20, 1 << 20), "beyond what a job can have");
  refused(Options(std::numeric_limits<int32_t>::max(), 1), "beyond what a job can have");
  c4_redistribution_options_t options = Options(1, 1);
  options.size -= 8;
  refused(options, "options.size");
  options = Options(1, 1);
  options.per_token = std::numeric_limits<double>::quiet_NaN();
  refused(options, "per_token");
  options.per_token = 0;
  refused(options, "above 0");

  Dealt now;
  now.rank = {0, 2};
  now.batch = {0, 0};
  EXPECT_EQ(Deal(Options(2, 1), {1, 2}, now).result, C4_REDISTRIBUTION_BAD_ARGUMENT);
  EXPECT_THAT(c4_redistribution_error(), HasSubstr("present places"));
  EXPECT_EQ(c4_redistribute(nullptr, nullptr, 0, 0, nullptr, nullptr, nullptr),
            C4_REDISTRIBUTION_BAD_ARGUMENT);
  options = Options(1, 1);
  EXPECT_EQ(c4_redistribute(&options, nullptr, 2, 0, nullptr, nullptr, nullptr),
            C4_REDISTRIBUTION_BAD_ARGUMENT);
}

TEST(RedistributionLibrary, ShowsNothingButItsTwoFunctions) {
  Dl_info info;
  ASSERT_NE(dladdr(reinterpret_cast<void*>(&c4_redistribute), &info), 0);
  EXPECT_THAT(info.dli_fname, HasSubstr("libc4_whatif.so"));
  void* library = dlopen(info.dli_fname, RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(library, nullptr);
  EXPECT_NE(dlsym(library, "c4_redistribution_error"), nullptr);
  // The C++ function beneath.
  EXPECT_EQ(dlsym(library, "_ZN2c46whatif7InOrderEmRKNS0_10BatchShapeE"), nullptr);
  dlclose(library);
}

}  // namespace
