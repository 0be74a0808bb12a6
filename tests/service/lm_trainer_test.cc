// The language model's trainer: what it learns does not depend on how the job is laid out, the same layout
// gives the same bits, a checkpoint goes on as if nothing had been, and it learns.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/service/harness.h"

namespace c4::service_test {
namespace {

using ::testing::HasSubstr;

struct Trained {
  int exit_code = -1;
  std::vector<double> losses;  // as reported
  std::string summary;         // the last line: the last loss and the state, to the bit
  std::string errors;
};

struct Layout {
  int data;
  int tensor;
  int pipeline;
};

// A model small enough for a test; later options win over these.
Trained Train(const Layout& layout, const std::vector<std::string>& options) {
  std::vector<std::string> command = {"run",
                                      "-n",
                                      std::to_string(layout.data * layout.tensor * layout.pipeline),
                                      "--no-monitor",
                                      "--",
                                      Binary("lm_trainer"),
                                      "--tensor",
                                      std::to_string(layout.tensor),
                                      "--pipeline",
                                      std::to_string(layout.pipeline),
                                      "--width",
                                      "32",
                                      "--hidden",
                                      "64",
                                      "--sequence",
                                      "32",
                                      "--batch",
                                      "2",
                                      "--report-every",
                                      "1"};
  command.insert(command.end(), options.begin(), options.end());
  const CommandResult result = RunC4(command, {"C4_ALGORITHM=ring"}, Seconds(100));
  Trained run;
  run.exit_code = result.exit_code;
  run.errors = result.errors;
  for (size_t at = 0; (at = result.output.find(": loss ", at)) != std::string::npos; ++at) {
    run.losses.push_back(std::stod(result.output.substr(at + 7)));
  }
  const size_t last = result.output.find(" iterations, loss ");
  if (last != std::string::npos) run.summary = result.output.substr(last);
  return run;
}

TEST(LmTrainerTest, EveryLayoutGivesTheLossesOfOneRank) {
  const std::vector<std::string> options = {"--iterations", "12", "--micro-batches", "6"};
  const Trained one = Train({1, 1, 1}, options);
  ASSERT_EQ(one.exit_code, 0) << one.errors;
  ASSERT_EQ(one.losses.size(), 12u);
  EXPECT_LT(one.losses.back(), one.losses.front() - 1.5);
  for (const Layout& layout : {Layout{2, 1, 1}, Layout{1, 4, 1}, Layout{1, 1, 4}, Layout{4, 2, 1},
                               Layout{4, 1, 2}, Layout{2, 2, 2}}) {
    const std::string name = std::to_string(layout.data) + " x " + std::to_string(layout.tensor) + " x " +
                             std::to_string(layout.pipeline);
    const Trained run = Train(layout, options);
    ASSERT_EQ(run.exit_code, 0) << name << ": " << run.errors;
    ASSERT_EQ(run.losses.size(), 12u) << name;
    for (size_t i = 0; i < run.losses.size(); ++i) {
      EXPECT_NEAR(run.losses[i], one.losses[i], 5e-5) << name << ", iteration " << i;
    }
  }
}

TEST(LmTrainerTest, TheSameLayoutGivesTheSameBitsAlsoFromACheckpoint) {
  const Trained first = Train({2, 2, 2}, {"--iterations", "10"});
  ASSERT_EQ(first.exit_code, 0) << first.errors;
  EXPECT_THAT(first.summary, HasSubstr("state "));
  const Trained again = Train({2, 2, 2}, {"--iterations", "10"});
  EXPECT_EQ(again.summary, first.summary);
  const Trained other = Train({2, 2, 2}, {"--iterations", "10", "--seed", "2"});
  EXPECT_NE(other.summary, first.summary);

  const ScratchDir scratch;
  const std::vector<std::string> kept = {"--resume", scratch.path(), "--checkpoint-every", "4"};
  std::vector<std::string> half = {"--iterations", "7"};
  half.insert(half.end(), kept.begin(), kept.end());
  EXPECT_EQ(Train({2, 2, 2}, half).exit_code, 0);
  std::vector<std::string> whole = {"--iterations", "10"};
  whole.insert(whole.end(), kept.begin(), kept.end());
  const Trained resumed = Train({2, 2, 2}, whole);
  EXPECT_EQ(resumed.losses.size(), 6u);  // from iteration 4 on
  EXPECT_EQ(resumed.summary, first.summary);
  const Trained another_job = Train({2, 1, 2}, whole);
  EXPECT_EQ(another_job.exit_code, 1);
  EXPECT_THAT(another_job.errors, HasSubstr("is not of this job"));
}

TEST(LmTrainerTest, ItLearnsTheText) {
  const Trained run = Train({1, 1, 2}, {"--iterations", "150"});
  ASSERT_EQ(run.exit_code, 0) << run.errors;
  EXPECT_GT(run.losses.front(), 5.4);  // a byte could be any
  EXPECT_LT(run.losses.back(), 2.3);   // it knows which letters follow which
}

TEST(LmTrainerTest, LayoutsThatCannotBeAreRefused) {
  const std::pair<std::vector<std::string>, const char*> wrong[] = {
      {{"--heads", "3"}, "--width 32 is no multiple of --heads 3"},
      {{"--micro-batches", "1"}, "2 replicas need as many --micro-batches, not 1"},
      {{"--layers", "1", "--pipeline", "2"}, "2 stages need as many --layers, not 1"},
      {{"--tensor", "2", "--heads", "1"}, "have to be multiples of --tensor 2"},
      {{"--pipeline", "3"}, "2 ranks cannot be divided into replicas of 3"},
      {{"--text", "/nonexistent"}, "cannot read /nonexistent: No such file or directory"},
      {{"--slow-file", "/nonexistent"}, "cannot read /nonexistent"},
      {{"--slow-file", "/proc/loadavg"}, "/proc/loadavg, line 1: RANK FACTOR FROM_S UNTIL_S is wanted"},
      {{"--sequence", "100000"}, "--sequence has to be less"},
      {{"--fast", "1"}, "--fast is no option"},
      {{"--layers"}, "--layers needs a number"},
      {{"--layers", "1.5"}, "--layers needs a whole number"},
  };
  for (const auto& [options, sentence] : wrong) {
    const Trained run = Train({2, 1, 1}, options);
    EXPECT_EQ(run.exit_code, 2) << sentence;
    EXPECT_THAT(run.errors, HasSubstr(sentence));
  }
}

}  // namespace
}  // namespace c4::service_test
