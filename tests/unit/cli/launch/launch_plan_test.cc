#include "cli/launch/launch_plan.h"

#include <algorithm>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include "cli/base/process.h"
#include "cli/launch/fabric_job.h"

namespace c4::cli {
namespace {

using std::chrono::milliseconds;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

LaunchOptions Options(int ranks) {
  LaunchOptions options;
  options.ranks = ranks;
  options.command = {"train"};
  return options;
}

LaunchPlan Plan() {
  return {.job = "job-1",
          .run_dir = "/dev/shm/c4/run-1",
          .log_dir = "/var/log/c4/job-1",
          .key_file = "/dev/shm/c4/run-1/job.key",
          .directory = "/dev/shm/c4/masters",
          .library_dir = "/opt/c4/lib",
          .binary_dir = "/opt/c4/bin",
          .master_port = 21000,
          .communicator_port = 22000};
}

// Of wait(2): how a process that `code` or `signal` ended is reported.
int Exited(int code) {
  return code << 8;
}
int Signalled(int signal) {
  return signal;
}

TEST(CheckLaunchOptionsTest, AnElasticJobNeedsAFabricAndItsMonitor) {
  LaunchOptions options = Options(4);
  options.spares = 2;
  EXPECT_THAT(std::string(CheckLaunchOptions(options).message()), HasSubstr("--elastic; give that"));
  options.elastic = true;
  EXPECT_THAT(std::string(CheckLaunchOptions(options).message()), HasSubstr("needs --fabric"));
  options.fabric = "2x2x2";
  EXPECT_TRUE(CheckLaunchOptions(options).ok());
  options.restarts = 1;
  EXPECT_THAT(std::string(CheckLaunchOptions(options).message()), HasSubstr("exclude each other"));
  options.restarts = 0;
  options.monitor = false;
  EXPECT_THAT(std::string(CheckLaunchOptions(options).message()), HasSubstr("and the monitor"));
}

TEST(CheckLaunchOptionsTest, SaysWhatIsMissing) {
  EXPECT_TRUE(CheckLaunchOptions(Options(4)).ok());
  EXPECT_THAT(std::string(CheckLaunchOptions(Options(0)).message()), HasSubstr("-n N"));
  EXPECT_FALSE(CheckLaunchOptions(Options(-1)).ok());
  EXPECT_FALSE(CheckLaunchOptions(Options(4097)).ok());

  LaunchOptions no_program = Options(2);
  no_program.command.clear();
  EXPECT_THAT(std::string(CheckLaunchOptions(no_program).message()), HasSubstr("-- PROGRAM"));

  LaunchOptions contradiction = Options(2);
  contradiction.monitor = false;
  contradiction.master = "host:1";
  EXPECT_FALSE(CheckLaunchOptions(contradiction).ok());

  LaunchOptions no_port = Options(2);
  no_port.master = "host";
  EXPECT_THAT(std::string(CheckLaunchOptions(no_port).message()), HasSubstr("host:port"));

  LaunchOptions long_name = Options(2);
  long_name.job.assign(128, 'x');
  EXPECT_FALSE(CheckLaunchOptions(long_name).ok());
}

TEST(CheckLaunchOptionsTest, CertificatesAreForDaemonsOfItsOwn) {
  LaunchOptions options = Options(2);
  options.tls = true;
  EXPECT_TRUE(CheckLaunchOptions(options).ok());
  LaunchOptions joins = options;
  joins.master = "host:1";
  EXPECT_THAT(std::string(CheckLaunchOptions(joins).message()), HasSubstr("--tls"));
  LaunchOptions unmonitored = options;
  unmonitored.monitor = false;
  EXPECT_FALSE(CheckLaunchOptions(unmonitored).ok());
  LaunchOptions another_key = options;
  another_key.key_file = "/etc/c4/cluster.key";
  EXPECT_THAT(std::string(CheckLaunchOptions(another_key).message()), HasSubstr("C4_KEY_FILE"));
}

TEST(RanksPerHostTest, FillsHostAfterHost) {
  const auto hosts_of = [](const std::string& text, int ranks) {
    std::vector<int> hosts;
    const std::vector<int> counts = text.empty() ? std::vector<int>() : *ParseRanksPerHost(text);
    for (int rank = 0; rank < ranks; ++rank) hosts.push_back(HostOfRank(rank, counts, 4));
    return hosts;
  };
  EXPECT_THAT(hosts_of("", 6), ElementsAre(0, 1, 2, 3, 0, 1));
  EXPECT_THAT(hosts_of("2", 5), ElementsAre(0, 0, 1, 1, 2));
  EXPECT_THAT(hosts_of("3,1", 6), ElementsAre(0, 0, 0, 1, 2, 3));
  EXPECT_THAT(hosts_of("1,2,1", 5), ElementsAre(0, 1, 1, 2, 3));
}

TEST(RanksPerHostTest, RefusesWhatIsNoCount) {
  for (const char* text : {"0", "8,", ",8", "-1", "4097", "8;1", "a"}) {
    EXPECT_THAT(ParseRanksPerHost(text).status().message(), HasSubstr("1 to 4096")) << text;
  }
}

TEST(RankEnvironmentTest, SetsWhatTheLibraryAndTheFrameworksRead) {
  const std::vector<std::string> environment =
      RankEnvironment({"HOME=/root", "RANK=77", "LD_LIBRARY_PATH=/usr/local/lib"}, Options(4), Plan(), 2);
  for (const char* entry : {"C4_JOB_ID=job-1", "C4_RUN_DIR=/dev/shm/c4/run-1", "C4_ENGINE=host", "RANK=2",
                            "WORLD_SIZE=4", "LOCAL_RANK=2", "LOCAL_WORLD_SIZE=4", "MASTER_ADDR=127.0.0.1",
                            "MASTER_PORT=21000", "NCCL_COMM_ID=127.0.0.1:22000", "NCCL_SOCKET_IFNAME=lo",
                            "LD_LIBRARY_PATH=/opt/c4/lib:/usr/local/lib", "HOME=/root"}) {
    EXPECT_THAT(environment, Contains(entry)) << entry;
  }
  EXPECT_THAT(environment, Not(Contains("RANK=77")));
}

TEST(RankEnvironmentTest, KeepsTheUsersEngine) {
  const std::vector<std::string> environment = RankEnvironment({"C4_ENGINE=vendor"}, Options(1), Plan(), 0);
  EXPECT_THAT(environment, Contains("C4_ENGINE=vendor"));
  EXPECT_EQ(std::ranges::count_if(environment, [](const auto& e) { return e.starts_with("C4_ENGINE="); }), 1);
}

TEST(RankEnvironmentTest, WithoutAnAgentRanksDoNotLookForOne) {
  LaunchPlan plan = Plan();
  EXPECT_THAT(RankEnvironment({}, Options(1), plan, 0), Not(Contains("C4_CONTROL=0")));
  plan.agent = false;
  EXPECT_THAT(RankEnvironment({}, Options(1), plan, 0), Contains("C4_CONTROL=0"));
  EXPECT_THAT(RankEnvironment({"C4_CONTROL=1"}, Options(1), plan, 0), Not(Contains("C4_CONTROL=0")));
}

TEST(RankEnvironmentTest, TheTapIsPreloadedBehindWhatTheUserPreloads) {
  LaunchOptions options = Options(1);
  EXPECT_THAT(RankEnvironment({}, options, Plan(), 0), Not(Contains(HasSubstr("LD_PRELOAD"))));
  options.tap = true;
  EXPECT_THAT(RankEnvironment({}, options, Plan(), 0), Contains("LD_PRELOAD=/opt/c4/lib/libc4_verbs.so"));
  EXPECT_THAT(RankEnvironment({"LD_PRELOAD=libasan.so.8"}, options, Plan(), 0),
              Contains("LD_PRELOAD=libasan.so.8:/opt/c4/lib/libc4_verbs.so"));
}

TEST(RankEnvironmentTest, AnEmptySearchPathGetsNoEmptyEntry) {
  // An empty entry would mean the current directory.
  EXPECT_THAT(RankEnvironment({}, Options(1), Plan(), 0), Contains("LD_LIBRARY_PATH=/opt/c4/lib"));
}

TEST(DaemonArgumentsTest, AgentGoesToTheGivenMasterOnly) {
  LaunchOptions options = Options(1);
  EXPECT_THAT(AgentArguments(options, Plan()), Not(Contains("--master")));
  options.master = "10.0.0.1:15141";
  const std::vector<std::string> arguments = AgentArguments(options, Plan());
  const auto master = std::ranges::find(arguments, "--master");
  ASSERT_NE(master, arguments.end());
  EXPECT_EQ(*(master + 1), "10.0.0.1:15141");
}

TEST(DaemonArgumentsTest, MasterSitsOnAnyPortAndStoresWhereLogsAreKept) {
  EXPECT_THAT(
      MasterArguments(Plan()),
      ElementsAre("--job", "job-1", "--listen", "127.0.0.1:0", "--http-address", "127.0.0.1:0", "--directory",
                  "/dev/shm/c4/masters", "--store", "/var/log/c4/job-1/c4d.db", "--audit",
                  "/var/log/c4/job-1/c4d.audit.jsonl", "--key-file", "/dev/shm/c4/run-1/job.key"));
  LaunchPlan of_a_user = Plan();
  of_a_user.owner_uid = 1000;
  const std::vector<std::string> arguments = MasterArguments(of_a_user);
  EXPECT_EQ((std::vector<std::string>(arguments.end() - 2, arguments.end())),
            (std::vector<std::string>{"--owner-uid", "1000"}));
}

TEST(DaemonArgumentsTest, TheMasterHearsThatTheJobAsksForExperiments) {
  LaunchPlan plan = Plan();
  EXPECT_THAT(MasterArguments(plan), Not(Contains("--intervene"))) << "off by default";
  plan.intervene = true;
  EXPECT_THAT(MasterArguments(plan), Contains("--intervene"));
  LaunchOptions options = Options(1);
  options.intervene = true;
  EXPECT_TRUE(CheckLaunchOptions(options).ok());
  options.master = "10.0.0.1:15141";
  EXPECT_THAT(std::string(CheckLaunchOptions(options).message()), testing::HasSubstr("--intervene"));
  options.master.clear();
  options.monitor = false;
  EXPECT_THAT(std::string(CheckLaunchOptions(options).message()), testing::HasSubstr("--intervene"));
}

TEST(BackOffTest, DoublesUpToTheLongest) {
  BackOff back_off;
  EXPECT_EQ(back_off.Ended(milliseconds(5)), milliseconds(100));
  EXPECT_EQ(back_off.Ended(milliseconds(5)), milliseconds(200));
  EXPECT_EQ(back_off.Ended(milliseconds(5)), milliseconds(400));
  for (int i = 0; i < 100; ++i) EXPECT_LE(back_off.Ended(milliseconds(5)), BackOff::kLongest);
  EXPECT_EQ(back_off.Ended(milliseconds(5)), BackOff::kLongest);
}

TEST(BackOffTest, ALongLifeStartsAgain) {
  BackOff back_off;
  for (int i = 0; i < 5; ++i) (void)back_off.Ended(milliseconds(5));
  EXPECT_EQ(back_off.Ended(BackOff::kLongLife), milliseconds(100));
}

TEST(BackOffTest, TellsAnEndAtOnceFromTheEndOfALife) {
  BackOff back_off;
  (void)back_off.Ended(milliseconds(5));
  EXPECT_TRUE(back_off.quick());
  (void)back_off.Ended(BackOff::kQuick);
  EXPECT_FALSE(back_off.quick());
}

TEST(BackOffTest, ReportsOnceThatItKeepsFailing) {
  BackOff back_off;
  (void)back_off.Ended(milliseconds(5));
  (void)back_off.Ended(milliseconds(5));
  EXPECT_FALSE(back_off.ShouldReport());
  (void)back_off.Ended(milliseconds(5));
  EXPECT_TRUE(back_off.ShouldReport());
  (void)back_off.Ended(milliseconds(5));
  EXPECT_FALSE(back_off.ShouldReport());
}

TEST(FirstFailureTest, TheOneThatASignalEndedIsTheCause) {
  // Rank 2 was killed; 0 and 1 exited because of that, and were all found at one look.
  const std::optional<RankEnd> first =
      FirstFailure({{0, Exited(3)}, {1, Exited(3)}, {2, Signalled(SIGKILL)}, {3, Signalled(SIGTERM)}});
  ASSERT_TRUE(first.has_value());
  EXPECT_EQ(first->rank, 2);
}

TEST(FirstFailureTest, RanksThatEndedInOrderAreNone) {
  EXPECT_FALSE(FirstFailure({}).has_value());
  EXPECT_FALSE(FirstFailure({{0, Exited(0)}, {1, Exited(0)}}).has_value());
  EXPECT_EQ(FirstFailure({{0, Exited(0)}, {1, Exited(1)}})->rank, 1);
}

TEST(DescribeEndsTest, TheFailedRankComesFirst) {
  EXPECT_EQ(DescribeEnds({2, Signalled(SIGKILL)}, {{0, Exited(1)},
                                                   {1, Signalled(SIGTERM)},
                                                   {2, Signalled(SIGKILL)},
                                                   {3, Exited(1)},
                                                   {4, Signalled(SIGTERM)}}),
            "rank 2 was ended by signal 9 (SIGKILL); ranks 1, 4 were ended by signal 15 (SIGTERM); "
            "ranks 0, 3 exited with code 1");
  EXPECT_EQ(DescribeEnds({0, Exited(3)}, {{0, Exited(3)}}), "rank 0 exited with code 3");
}

TEST(SetVariableTest, ReplacesAllEarlierSettings) {
  std::vector<std::string> environment = {"A=1", "AB=2", "A=3"};
  SetVariable(&environment, "A", "4");
  EXPECT_THAT(environment, ElementsAre("AB=2", "A=4"));
}

}  // namespace
}  // namespace c4::cli
