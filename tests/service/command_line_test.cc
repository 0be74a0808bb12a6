// Bad command lines and what cannot be reached: a message that says what to do, and the exit code of the
// manual (docs/cli.md).
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <iterator>
#include <regex>
#include <set>
#include <signal.h>
#include <thread>

#include "cli/base/process.h"
#include "tests/service/harness.h"

namespace c4::service_test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

struct Case {
  std::vector<std::string> arguments;
  int exit_code;
  std::string message;
};

TEST(CommandLineTest, TwoJobsOfOneNameAreToldApart) {
  RunningJob job(2, {"--job", "twice"}, {"sleep", "60"});
  ASSERT_TRUE(Eventually(Seconds(10), [&] { return job.MasterEntry().contains("pid"); }));
  const std::vector<std::string> again = {"run", "-n", "2", "--run-dir", job.base_dir(), "--job"};
  std::vector<std::string> same = again;
  same.insert(same.end(), {"twice", "--", "true"});
  const CommandResult refused = RunC4(same);
  EXPECT_EQ(refused.exit_code, 125);
  EXPECT_THAT(refused.errors, HasSubstr("job 'twice' has a master already"));
  EXPECT_THAT(refused.errors, HasSubstr("--job"));
  std::vector<std::string> other = again;
  other.insert(other.end(), {"other", "--", "true"});
  EXPECT_EQ(RunC4(other).exit_code, 0);
}

// By somebody in a hurry: what has come until then is in the file, whole.
TEST(CommandLineTest, CtrlCEndsARecordingInOrder) {
  RunningJob job(2, {}, {Binary("all_reduce_perf"), "-b", "1M", "-e", "1M", "-N", "0", "--pause-ms", "5"});
  ASSERT_TRUE(job.AwaitAtWork(20, Seconds(20)));
  const ScratchDir scratch;
  const std::string file = scratch.path() + "/cut.c4rec";
  Process record({Binary("c4"), "record", "--run-dir", job.base_dir(), "-o", file}, {},
                 scratch.path() + "/record");
  std::this_thread::sleep_for(Seconds(3));
  record.Signal(SIGINT);
  ASSERT_TRUE(record.Wait(Seconds(5)));
  EXPECT_EQ(record.exit_code(), 0) << record.Errors();
  EXPECT_THAT(record.Output(), HasSubstr("batches in "));
  const CommandResult replayed = RunC4({"replay", file});
  EXPECT_EQ(replayed.exit_code, 0) << replayed.errors;
  EXPECT_THAT(replayed.errors, Not(HasSubstr("breaks off")));
  EXPECT_THAT(replayed.output, HasSubstr(" batches, "));
  EXPECT_THAT(replayed.output, Not(::testing::ContainsRegex("(^|\n)0 batches, ")));
}

TEST(CommandLineTest, SaysWhatIsWrong) {
  const std::vector<Case> cases = {
      {{}, 64, "usage: c4 VERB"},
      {{"frobnicate"}, 64, "there is no verb 'frobnicate'"},
      {{"run"}, 64, "-n N"},
      {{"run", "-n", "4"}, 64, "-- PROGRAM"},
      {{"run", "-n", "4", "--"}, 64, "-- PROGRAM"},
      {{"run", "-n", "4", "train"}, 64, "after `--`"},
      {{"run", "-n", "0", "--", "true"}, 64, "--ranks"},
      {{"run", "-n", "x", "--", "true"}, 64, "--ranks"},
      {{"run", "-n", "2", "--wrong", "--", "true"}, 64, "--wrong"},
      {{"run", "-n", "2", "--master", "host", "--", "true"}, 64, "host:port"},
      {{"run", "-n", "2", "--master", "host:1", "--no-monitor", "--", "true"}, 64, "exclude each other"},
      {{"run", "-n", "2", "--no-monitor", "--", "no-such-program"}, 127, "no-such-program"},
      {{"run", "-n", "2", "--no-monitor", "--", "/etc/passwd"}, 126, "/etc/passwd"},
      {{"verdicts", "--wrong"}, 64, "--wrong"},
      {{"verdicts", "word"}, 64, "word"},
      {{"verdicts"}, 3, "c4 run"},
      {{"verdicts", "--watch"}, 3, "c4 run"},
      {{"verdicts", "--job", "mine"}, 3, "mine"},
      {{"verdicts", "--master", "127.0.0.1:1"}, 3, "127.0.0.1:1"},
      {{"verdicts", "--token-file", "/no/such/file"}, 3, "no job"},
      {{"verdicts", "--master", "127.0.0.1:1", "--token-file", "/no/such/file"}, 3, "/no/such/file"},
      {{"status"}, 3, "c4 run"},
      {{"status", "--json", "--wrong"}, 64, "--wrong"},
      {{"status", "--watch"}, 3, "c4 run"},
      {{"matrix"}, 3, "c4 run"},
      {{"matrix", "--by", "switch"}, 64, "rank, nic or qp"},
      {{"level"}, 64, "coarse"},
      {{"level", "loud"}, 64, "'loud' is no level"},
      {{"alerts", "unsilence", "x"}, 64, "no number"},
      {{"smon"}, 64, "run, list or show"},
      {{"smon", "frobnicate"}, 64, "run, list or show"},
      {{"smon", "list"}, 3, "c4 run"},
      {{"smon", "run", "--steps", "0"}, 64, "--steps"},
      {{"smon", "show", "x"}, 64, "no number"},
      {{"alerts", "silence"}, 64, "NAME=PATTERN is required"},
      {{"alerts", "frobnicate"}, 64, "list, ack, silence"},
      {{"alerts", "test"}, 64, "NAME is required"},
      {{"record"}, 64, "-o FILE"},
      {{"record", "-o", "/no/such/folder/file"}, 3, "c4 run"},
      {{"replay"}, 64, "FILE is required: c4 replay [OPTIONS] FILE"},
      {{"replay", "/no/such/file"}, 64, "/no/such/file"},
      {{"replay", "/etc/passwd"}, 64, "no recording"},
      {{"env", "--json", "--markdown"}, 64, "exclude"},
      {{"demo", "--ranks", "2"}, 64, "--ranks"},
      {{"install"}, 64, "name the folder, or give --pip"},
      {{"install", "--pip", "/lib"}, 64, "name the folder, or give --pip"},
      {{"install", "/lib", "--python", "python3"}, 64, "--python goes with --pip"},
      {{"install", "/lib", "--undo", "--library", "x"}, 64, "exclude"},
      {{"install", "/no/such/folder"}, 1, "/no/such/folder"},
      {{"install", "/etc/passwd"}, 1, "is no folder"},
      {{"install", "/proc"}, 1, "has no libnccl.so.2"},
      {{"install", "/proc", "--undo"}, 1, "has no libnccl.so.2"},
      {{"install", "/proc", "--library", "/etc/passwd"}, 1, "no ELF file"},
      {{"install", "--pip", "--python", "no-such-python"}, 1, "no-such-python"},
      {{"doctor", "--wrong"}, 64, "--wrong"},
  };
  const ScratchDir scratch;
  for (const Case& c : cases) {
    std::string words = "c4";
    for (const std::string& word : c.arguments) words += " " + word;
    SCOPED_TRACE(words);
    const CommandResult result =
        RunC4(c.arguments.empty() ? std::vector<std::string>{"--no-verb"} : c.arguments,
              {"C4_RUN_DIR=" + scratch.path()});
    EXPECT_EQ(result.exit_code, c.exit_code) << result.errors;
    EXPECT_THAT(result.errors, HasSubstr(c.message));
    EXPECT_EQ(result.output, "");
  }
}

TEST(CommandLineTest, HelpAndVersionAreNoErrors) {
  for (const std::vector<std::string>& arguments : {std::vector<std::string>{"--help"},
                                                    {"--version"},
                                                    {"run", "--help"},
                                                    {"verdicts", "-h"},
                                                    {"status", "--help"},
                                                    {"env", "--help"},
                                                    {"demo", "--help"}}) {
    const CommandResult result = RunC4(arguments);
    EXPECT_EQ(result.exit_code, 0) << arguments.front();
    EXPECT_NE(result.output, "") << arguments.front();
    EXPECT_EQ(result.errors, "") << arguments.front();
  }
}

TEST(CommandLineTest, EnvIsJson) {
  const CommandResult result = RunC4({"env", "--json"}, {"C4_ENGINE=host", "C4_RUNDIR=/x"});
  EXPECT_EQ(result.exit_code, 0);
  const Json json = Json::parse(result.output, nullptr, /*allow_exceptions=*/false);
  ASSERT_TRUE(json.is_object()) << result.output;
  bool seen = false;
  for (const Json& knob : json["knobs"]) {
    if (knob["name"] != "C4_ENGINE") continue;
    seen = true;
    EXPECT_EQ(knob["value"], "host");
  }
  EXPECT_TRUE(seen);
  ASSERT_EQ(json["unknown"].size(), 1U);
  EXPECT_EQ(json["unknown"][0]["meant"], "C4_RUN_DIR");
}

// Of each daemon: what its --help says it reads is what `c4 env` shows, no more and no less.
TEST(CommandLineTest, EnvHoldsTheDaemonsVariables) {
  const CommandResult result = RunC4({"env", "--json"});
  const Json json = Json::parse(result.output, nullptr, /*allow_exceptions=*/false);
  ASSERT_TRUE(json.is_object()) << result.output;
  const ScratchDir scratch;
  for (const auto& [program, prefix] :
       {std::pair("c4a", "C4A_"), std::pair("c4d_master", "C4D_"), std::pair("c4p_master", "C4P_")}) {
    SCOPED_TRACE(program);
    std::set<std::string> shown;
    for (const Json& knob : json["knobs"]) {
      if (knob["name"].get<std::string>().starts_with(prefix)) shown.insert(knob["name"]);
    }
    Process daemon({Binary(program), "--help"}, {"PATH=/usr/bin:/bin"}, scratch.path() + "/" + program);
    ASSERT_TRUE(daemon.Wait(Seconds(10)));
    const std::string help = daemon.Output();
    std::set<std::string> read;
    const std::regex name(std::string(prefix) + "[A-Z0-9_]+");
    for (auto match = std::sregex_iterator(help.begin(), help.end(), name); match != std::sregex_iterator();
         ++match) {
      read.insert(match->str());
    }
    EXPECT_GT(read.size(), 10U);
    EXPECT_EQ(shown, read);
  }
}

// A Dockerfile that has installed C4, and nothing runs yet: no agent is missed.
TEST(CommandLineTest, DoctorOfAnImageMissesNoAgent) {
  const ScratchDir scratch;
  const std::string library = Binary("../lib/libnccl.so.2");
  const std::vector<std::string> environment = {"C4_RUN_DIR=" + scratch.path() + "/none"};
  const CommandResult image = RunC4({"doctor", "--image", "--library", library}, environment);
  EXPECT_EQ(image.exit_code, 0) << image.output;
  EXPECT_THAT(image.output, testing::Not(HasSubstr("agent")));
  const CommandResult node = RunC4({"doctor", "--library", library}, environment);
  EXPECT_EQ(node.exit_code, 1) << node.output;
}

TEST(CommandLineTest, HealSaysWhatItHeals) {
  RunningJob job(3, {"--job", "healed"},
                 {Binary("all_reduce_perf"), "-b", "1M", "-e", "1M", "-N", "0", "--pause-ms", "5"});
  ASSERT_TRUE(job.AwaitAtWork(5, Seconds(20)));
  const ScratchDir scratch;
  const std::string plan_path = scratch.path() + "/plan";
  const std::vector<std::string> where = {"--run-dir", job.base_dir(), "--plan", plan_path};
  const auto inject = [&where](std::vector<std::string> words) {
    words.insert(words.begin(), "inject");
    words.insert(words.end(), where.begin(), where.end());
    return RunC4(words);
  };
  EXPECT_THAT(inject({"heal"}).output, HasSubstr("nothing was in force"));
  EXPECT_THAT(inject({"stop", "2"}).output, HasSubstr("stop rank2"));  // a bare number is that rank
  const pid_t stopped = job.Counters(2).pid;
  EXPECT_TRUE(Eventually(Seconds(2), [&] { return cli::IsStopped(stopped); }));
  const CommandResult healed = inject({"heal"});
  EXPECT_EQ(healed.exit_code, 0) << healed.errors;
  EXPECT_THAT(healed.output, HasSubstr("heal: rank2 (stopped)"));
  EXPECT_FALSE(cli::IsStopped(stopped));
  std::ifstream plan(plan_path);
  const std::string lines((std::istreambuf_iterator<char>(plan)), std::istreambuf_iterator<char>());
  EXPECT_THAT(lines, HasSubstr(R"("healed":[{"kind":"stopped","target":"rank2"}])"));
}

TEST(CommandLineTest, ADeadMastersEntryIsSaid) {
  const ScratchDir scratch;
  ASSERT_EQ(RunC4({"run", "-n", "1", "--no-monitor", "--run-dir", scratch.path(), "--", "mkdir", "-p",
                   scratch.path() + "/masters"})
                .exit_code,
            0);
  std::ofstream(scratch.path() + "/masters/gone.json")
      << R"({"job":"gone","address":"127.0.0.1:1","http_address":"","epoch":1,"pid":999999999,"host":"h"})";
  const CommandResult result = RunC4({"verdicts", "--run-dir", scratch.path()});
  EXPECT_EQ(result.exit_code, 3);
  EXPECT_THAT(result.errors, HasSubstr("127.0.0.1:1"));
}

TEST(CommandLineTest, SeveralJobsAreListed) {
  const ScratchDir scratch;
  const std::vector<std::string> command = {"sleep", "60"};
  Process first(
      {Binary("c4"), "run", "-n", "1", "--job", "one", "--run-dir", scratch.path(), "--", "sleep", "60"},
      {"PATH=/usr/bin:/bin"}, scratch.path() + "/first");
  Process second(
      {Binary("c4"), "run", "-n", "1", "--job", "two", "--run-dir", scratch.path(), "--", "sleep", "60"},
      {"PATH=/usr/bin:/bin"}, scratch.path() + "/second");
  EXPECT_TRUE(Eventually(Seconds(15), [&] {
    const CommandResult result = RunC4({"verdicts", "--run-dir", scratch.path()});
    return result.exit_code == 3 && result.errors.find("one, two; choose with --job") != std::string::npos;
  }));
  // `sleep` has no communicator: no agent has anything to report.
  const CommandResult two = RunC4({"verdicts", "--run-dir", scratch.path(), "--job", "two"});
  EXPECT_EQ(two.exit_code, 3);
  EXPECT_THAT(two.output, HasSubstr("job two: no agent has reported a process"));

  // The same name twice would mix two jobs up.
  const CommandResult twice =
      RunC4({"run", "-n", "1", "--job", "one", "--run-dir", scratch.path(), "--", "true"});
  EXPECT_EQ(twice.exit_code, 125);
  EXPECT_THAT(twice.errors, HasSubstr("job 'one' has a master already"));
  for (Process* process : {&first, &second}) {
    process->Signal(SIGTERM);
    EXPECT_TRUE(process->Wait(Seconds(15)));
  }
}

}  // namespace
}  // namespace c4::service_test
