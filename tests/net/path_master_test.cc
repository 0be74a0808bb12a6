// The path master in a job on an emulated fabric, over real sockets and the kernel's own hash: it puts the
// queue pairs evenly onto the spines; killed, stopped and started again it costs the job nothing and knows
// everything again, as does another that leads in its place.
#include <algorithm>
#include <array>
#include <cstring>
#include <fstream>
#include <gtest/gtest.h>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "fabric/emulator/command.h"
#include "fabric/emulator/fabric.h"
#include "fabric/emulator/oracle.h"
#include "fabric/emulator/topology.h"
#include "service/free_port.h"
#include "service/token.h"
#include "tests/service/etcd_cluster.h"

namespace c4::net_test {
namespace {

using service_test::Binary;
using service_test::Clock;
using service_test::CommandResult;
using service_test::EtcdCluster;
using service_test::Eventually;
using service_test::Json;
using service_test::Process;
using service_test::RunC4;
using service_test::RunningJob;
using service_test::Seconds;

constexpr int kRanks = 4;
constexpr int kLowestPort = 20000;  // of those that a master gives out by default
constexpr int kHighestPort = 28191;

class PathMasterTest : public testing::Test {
 protected:
  void SetUp() override {
    if (const absl::Status rights = fabric::CheckRights(); !rights.ok()) GTEST_SKIP() << rights;
    absl::StatusOr<fabric::Fabric> up = fabric::Fabric::Up(spec_);
    ASSERT_TRUE(up.ok()) << up.status();
    fabric_.emplace(*std::move(up));
  }
  virtual void StartJob() {
    job_.emplace(kRanks, std::vector<std::string>{"--fabric", spec_.name}, Program());
    ASSERT_TRUE(job_->AwaitAtWork(20, Seconds(20)));
  }
  void StartJobAndLearn() {
    StartJob();
    ASSERT_TRUE(Eventually(Seconds(20), [&] { return AllKnown(); })) << Paths().dump(2);
  }
  void TearDown() override {
    job_.reset();
    fabric::Fabric::Down(spec_.name).IgnoreError();
  }

  static std::vector<std::string> Program() {
    return {Binary("all_reduce_perf"), "-b", "256K", "-e", "256K", "-N", "0", "--pause-ms", "10"};
  }
  Json Paths() const {
    const CommandResult result = RunC4({"paths", "--json", "--run-dir", job_->base_dir()});
    return result.exit_code == 0 ? Json::parse(result.output) : Json::object();
  }
  // Tuple and spine of the queue pairs that cross the spines, as the master tells it; nothing as long as not
  // each is on a path that it knows, and on a port that it gave out or `any_port`.
  std::map<std::string, int> Crossing(bool any_port = false) const {
    std::map<std::string, int> found;
    for (const Json& connection : Paths().value("connections", Json::array())) {
      for (const Json& queue_pair : connection["queue_pairs"]) {
        if (queue_pair["use"] != "live" || queue_pair["links"].empty()) return {};
        for (const Json& link : queue_pair["links"]) {
          const auto name = link.get<std::string>();
          const size_t at = name.find(">spine");
          if (at == std::string::npos) continue;
          const auto port = queue_pair["tuple"]["source_port"].get<int>();
          if (!any_port && (port < kLowestPort || port > kHighestPort)) return {};
          found[queue_pair["tuple"].dump()] = std::stoi(name.substr(at + 6));
        }
      }
    }
    return found;
  }
  // Of the newest advice to each connection.
  std::map<std::string, uint64_t> Epochs() const {
    std::map<std::string, uint64_t> epochs;
    for (const Json& connection : Paths().value("connections", Json::array())) {
      epochs[connection["connection"].get<std::string>()] = connection["epoch"].get<uint64_t>();
    }
    return epochs;
  }
  static std::string WholeFile(const std::string& path) {
    std::ifstream file(path);
    return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  }
  // As many on one spine as on the other.
  bool AllKnown() const {
    const std::map<std::string, int> crossing = Crossing();
    const auto first =
        std::count_if(crossing.begin(), crossing.end(), [](const auto& entry) { return entry.second == 0; });
    return !crossing.empty() && 2 * static_cast<size_t>(first) == crossing.size();
  }
  void ExpectGoesOn() const {
    const uint64_t before = job_->LeastFinished();
    EXPECT_TRUE(Eventually(Seconds(5), [&] { return job_->LeastFinished() > before + 20; }))
        << "the job stands still after " << before << " operations";
  }

  fabric::FabricSpec spec_{.name = absl::StrCat("pm", getpid() % 100000),
                           .leaves = 2,
                           .spines = 2,
                           .hosts_per_leaf = 2,
                           .rate_mbps = 200};
  std::optional<fabric::Fabric> fabric_;
  std::optional<RunningJob> job_;
};

TEST_F(PathMasterTest, WhatItTellsIsWhatTheKernelDoes) {
  StartJobAndLearn();
  for (const auto& [text, spine] : Crossing()) {
    const Json tuple = Json::parse(text);
    const absl::StatusOr<std::vector<fabric::Path>> paths =
        fabric::PathsOf(spec_, {{.source = tuple["source"].get<std::string>(),
                                 .source_port = tuple["source_port"].get<int>(),
                                 .destination = tuple["destination"].get<std::string>(),
                                 .destination_port = tuple["destination_port"].get<int>()}});
    ASSERT_TRUE(paths.ok()) << paths.status();
    EXPECT_EQ(paths->front().spine, spine) << text;
  }
}

// Over IPv4 (false) and IPv6 (true), judged by what the spines' own counters see: each queue pair's packets
// cross the spine that the master names, and no other. After a silent cut all are on the other one, where
// some still wait for work.
class PathMasterCountersTest : public PathMasterTest, public testing::WithParamInterface<bool> {
 protected:
  PathMasterCountersTest() { spec_.ipv6 = GetParam(); }

  // Packets of each tuple (a text of Crossing) that spine `spine` forwards within a second.
  std::map<std::string, uint64_t> Counted(int spine, const std::map<std::string, int>& crossing) const {
    const std::string ns = fabric::SpineNamespace(spec_, spine);
    std::string rules =
        "add table inet seen\ndelete table inet seen\ntable inet seen { chain every { type filter hook "
        "forward priority 0;\n";
    const char* const ip = spec_.ipv6 ? "ip6" : "ip";
    for (const auto& [text, predicted] : crossing) {
      const Json tuple = Json::parse(text);
      absl::StrAppend(&rules, ip, " saddr ", tuple["source"].get<std::string>(), " ", ip, " daddr ",
                      tuple["destination"].get<std::string>(), " tcp sport ", tuple["source_port"].get<int>(),
                      " tcp dport ", tuple["destination_port"].get<int>(), " counter\n");
    }
    const absl::Status made = fabric::RunNft({ns, rules + "}; }\n"});
    EXPECT_TRUE(made.ok()) << made;
    std::this_thread::sleep_for(Seconds(1));
    const absl::StatusOr<std::string> listed =
        fabric::RunCommand({"nft", "list", "table", "inet", "seen"}, "", ns);
    EXPECT_TRUE(listed.ok()) << listed.status();
    std::map<std::string, uint64_t> counted;
    size_t at = 0;
    for (const auto& [text, predicted] : crossing) {  // in the order of the rules
      at = listed.value_or("").find("counter packets ", at);
      if (at == std::string::npos) break;
      counted[text] = std::stoull(listed->substr(at += strlen("counter packets ")));
    }
    EXPECT_EQ(counted.size(), crossing.size()) << listed.value_or("");
    return counted;
  }
  void ExpectAsCounted(bool all_carry) const {
    const std::map<std::string, int> crossing = Crossing(true);
    ASSERT_FALSE(crossing.empty());
    for (int spine = 0; spine < spec_.spines; ++spine) {
      for (const auto& [text, packets] : Counted(spine, crossing)) {
        const bool here = crossing.at(text) == spine;
        EXPECT_TRUE(packets > 0 ? here : !here || !all_carry)
            << packets << " on spine" << spine << " " << text;
      }
    }
  }
};

TEST_P(PathMasterCountersTest, WhatItTellsIsWhatTheSpinesCount) {
  StartJobAndLearn();
  ExpectAsCounted(true);
  ASSERT_TRUE(fabric_->Cut("leaf0-spine0").ok());
  ASSERT_TRUE(Eventually(Seconds(30), [&] {
    const std::map<std::string, int> crossing = Crossing(true);
    return !crossing.empty() &&
           std::all_of(crossing.begin(), crossing.end(), [](const auto& entry) { return entry.second == 1; });
  })) << Paths().dump(2);
  ExpectAsCounted(false);
  ExpectGoesOn();
}

INSTANTIATE_TEST_SUITE_P(Ip, PathMasterCountersTest, testing::Bool(),
                         [](const auto& version) { return version.param ? "v6" : "v4"; });

TEST_F(PathMasterTest, KilledItComesBackAndKnowsEverythingAgain) {
  StartJobAndLearn();
  const std::map<std::string, int> before = Crossing();
  const std::map<std::string, uint64_t> epochs = Epochs();
  const pid_t victim = job_->DaemonPid("c4p_master");
  ASSERT_GT(victim, 0);
  ASSERT_EQ(kill(victim, SIGKILL), 0);
  ExpectGoesOn();
  ASSERT_TRUE(Eventually(Seconds(10), [&] {
    const pid_t now = job_->DaemonPid("c4p_master");
    return now > 0 && now != victim;
  })) << "it was not started again";
  EXPECT_TRUE(Eventually(Seconds(20), [&] { return AllKnown(); })) << Paths().dump(2);
  // What is in use stays where it is: nobody is moved because a master has forgotten.
  EXPECT_EQ(Crossing(), before);
  // It had not forgotten: nobody was told anything anew.
  EXPECT_EQ(Epochs(), epochs);
  const std::string log = WholeFile(job_->LogDir() + "/c4p_master.log");
  const size_t at = log.find("going on from what was written down: ");
  ASSERT_NE(at, std::string::npos) << log;
  EXPECT_GE(std::stoi(log.substr(at + strlen("going on from what was written down: "))), kRanks) << log;
  ExpectGoesOn();
}

// A job that begins while the master hangs waits for its answer as long as C4_PATH_WAIT_MS says, no longer.
TEST_F(PathMasterTest, AJobThatBeginsWhileItHangsRunsOnPortsOfTheKernel) {
  StartJobAndLearn();
  const pid_t master = job_->DaemonPid("c4p_master");
  ASSERT_GT(master, 0);
  ASSERT_EQ(kill(master, SIGSTOP), 0);
  const auto begun = Clock::now();
  const CommandResult second =
      RunC4({"run", "-n", std::to_string(kRanks), "--fabric", spec_.name, "--c4p", "--run-dir",
             job_->base_dir(), "--", Binary("all_reduce_perf"), "-b", "256K", "-e", "256K", "-n", "5"},
            {}, Seconds(20));
  EXPECT_EQ(second.exit_code, 0) << second.errors;
  printf("a job beside a path master that hangs took %.1f s\n", Seconds(Clock::now() - begun).count());
  ExpectGoesOn();
  ASSERT_EQ(kill(master, SIGCONT), 0);
  EXPECT_TRUE(Eventually(Seconds(20), [&] { return AllKnown(); })) << Paths().dump(2);
}

// Switches that hash addresses alone: no port leads elsewhere, and nobody is moved in vain.
TEST_F(PathMasterTest, PortsThatDoNotSteerAreSaid) {
  for (int leaf = 0; leaf < spec_.leaves; ++leaf) {
    const absl::Status set =
        fabric::WriteSysctls(fabric::LeafNamespace(spec_, leaf), {{"ipv4/fib_multipath_hash_policy", "0"}});
    ASSERT_TRUE(set.ok()) << set;
  }
  StartJob();
  std::string notes;
  EXPECT_TRUE(Eventually(Seconds(20), [&] {
    const CommandResult result = RunC4({"topology", "--json", "--run-dir", job_->base_dir()});
    if (result.exit_code == 0) notes = Json::parse(result.output)["notes"].dump(1);
    return notes.find("source ports do not steer") != std::string::npos;
  })) << notes;
  ExpectGoesOn();
}

// By `c4 paths drain` and `undrain`: the queue pairs leave the link and come back, and the job goes on.
TEST_F(PathMasterTest, ADrainMovesQueuePairsOffTheLinkAndAnUndrainBringsThemBack) {
  StartJobAndLearn();
  const auto say = [&](std::vector<std::string> words) {
    words.insert(words.begin(), "paths");
    words.insert(words.end(), {"--json", "--run-dir", job_->base_dir()});
    return RunC4(words);
  };
  const std::map<std::string, int> before = Crossing();
  const CommandResult would = say({"drain", "leaf0-spine0", "--dry-run"});
  ASSERT_EQ(would.exit_code, 0) << would.errors;
  EXPECT_GT(Json::parse(would.output)["to_come"].get<int>(), 0) << would.output;
  EXPECT_EQ(Crossing(), before) << "a dry run moved something";
  const CommandResult drained = say({"drain", "leaf0-spine0", "--why", "a test"});
  ASSERT_EQ(drained.exit_code, 0) << drained.errors;
  EXPECT_TRUE(Eventually(Seconds(20), [&] {
    const std::map<std::string, int> crossing = Crossing(true);
    return !crossing.empty() &&
           std::all_of(crossing.begin(), crossing.end(), [](const auto& entry) { return entry.second == 1; });
  })) << Paths().dump(2);
  ExpectGoesOn();
  const CommandResult refused = say({"drain", "spine1"});
  EXPECT_EQ(refused.exit_code, 1);
  EXPECT_NE(refused.output.find("would have no link left"), std::string::npos) << refused.output;
  ASSERT_EQ(say({"undrain", "leaf0-spine0"}).exit_code, 0);
  EXPECT_TRUE(Eventually(Seconds(20), [&] { return AllKnown(); })) << Paths().dump(2);
  ExpectGoesOn();
  const Json history = Json::parse(say({"history", "--most", "0"}).output)["events"];
  const auto moved = std::count_if(history.begin(), history.end(), [](const Json& event) {
    return event["kind"] == "moved" && event["why"] == "leaf0-spine0: drained: a test";
  });
  EXPECT_GT(moved, 0) << history.dump(2);
}

// All links of a leaf die in silence: the master says what is cut off, the job waits, and goes on when they
// are back.
TEST_F(PathMasterTest, WhereNoPathIsLeftItSaysSoAndTheJobWaits) {
  StartJobAndLearn();
  const std::vector<std::string> links = {"leaf1-spine0", "leaf1-spine1"};
  for (const std::string& link : links) ASSERT_TRUE(fabric_->Cut(link).ok());
  Json down = Json::array();
  EXPECT_TRUE(Eventually(Seconds(25), [&] {
    const CommandResult result = RunC4({"topology", "--json", "--run-dir", job_->base_dir()});
    const Json told = Json::parse(result.output, nullptr, /*allow_exceptions=*/false);
    down = Json::array();
    for (const Json& link : told.value("links", Json::array())) {
      if (!link["up"].get<bool>()) down.push_back(link["name"]);
    }
    return down.size() >= 4;  // both directions of each
  })) << down;
  const uint64_t before = job_->LeastFinished();
  EXPECT_NE(RunC4({"paths", "--json", "--run-dir", job_->base_dir()}).output.find("no path is left"),
            std::string::npos);
  EXPECT_LE(job_->LeastFinished(), before + 1);
  for (const std::string& link : links) ASSERT_TRUE(fabric_->Heal(link).ok());
  EXPECT_TRUE(Eventually(Seconds(20), [&] { return job_->LeastFinished() > before + 20; }));
}

// Two masters over a real etcd, whose places the agents are told: the one that leads is killed.
class PathMastersTest : public PathMasterTest {
 protected:
  void SetUp() override {
    if (!EtcdCluster::Installed()) GTEST_SKIP() << service_test::kNoEtcd;
    PathMasterTest::SetUp();
    if (!fabric_) return;
    etcd_.emplace(1);
    std::ofstream(File("key")) << *service::NewKeyLine() << "\n";
    ASSERT_EQ(chmod(File("key").c_str(), 0600), 0);
    std::ofstream(File("topology.json")) << fabric::TopologyFile(spec_);
    const std::string host = fabric::ManagementRootAddress(fabric_->management_block());
    std::mt19937 random{std::random_device()()};
    for (size_t i = 0; i < 2; ++i) places_.push_back(absl::StrCat(host, ":", *service::FreePort(&random)));
  }
  void StartJob() override {
    job_.emplace(kRanks, std::vector<std::string>{"--fabric", spec_.name, "--key-file", File("key")},
                 Program(),
                 std::vector<std::string>{absl::StrCat("C4A_PATH_MASTER=", places_[0], ",", places_[1])},
                 [this](const std::string& base_dir) {
                   base_dir_ = base_dir;
                   for (size_t i = 0; i < 2; ++i) {
                     StartMaster(i);
                     EXPECT_TRUE(Eventually(Seconds(20), [&] {
                       return Says(i, i == 0 ? "serving paths" : "standing by");
                     })) << masters_[i]->Errors();
                   }
                 });
    ASSERT_TRUE(job_->AwaitAtWork(20, Seconds(20)));
  }
  void TearDown() override {
    for (const auto& master : masters_) {
      if (master != nullptr) master->Signal(SIGTERM);
    }
    for (const auto& master : masters_) {
      if (master == nullptr) continue;
      EXPECT_TRUE(master->Wait(Seconds(10)));
      if (HasFailure()) printf("--- a path master\n%s", master->Errors().c_str());
    }
    PathMasterTest::TearDown();
  }
  std::string File(const std::string& name) const { return scratch_.path() + "/" + name; }
  void StartMaster(size_t at) {
    masters_[at] = std::make_unique<Process>(
        std::vector<std::string>{Binary("c4p_master"), "--listen", places_[at], "--http-address",
                                 "127.0.0.1:0", "--directory", base_dir_ + "/masters", "--key-file",
                                 File("key"), "--topology", File("topology.json"), "--store", etcd_->Place()},
        std::vector<std::string>(), File(absl::StrCat("master", at, ".", ++starts_)));
  }
  bool Says(size_t at, const std::string& what) const {
    return masters_[at]->Errors().find(what) != std::string::npos;
  }
  // How many agents are in session with it.
  int InSession(size_t at) const {
    const std::string log = masters_[at]->Errors();
    int found = 0;
    for (size_t i = log.find("is in session"); i != std::string::npos; i = log.find("is in session", i + 1))
      ++found;
    return found;
  }

  service_test::ScratchDir scratch_;
  std::optional<EtcdCluster> etcd_;
  std::string base_dir_;
  std::vector<std::string> places_;
  std::array<std::unique_ptr<Process>, 2> masters_;
  int starts_ = 0;
};

TEST_F(PathMastersTest, TheLeaderIsKilledAndTheOtherMovesNothing) {
  StartJobAndLearn();
  const std::map<std::string, int> before = Crossing();
  const std::map<std::string, uint64_t> epochs = Epochs();
  for (size_t leader = 0; leader < 2; ++leader) {  // there and back
    const size_t other = 1 - leader;
    const auto killed = Clock::now();
    masters_[leader]->Signal(SIGKILL);
    ASSERT_TRUE(Eventually(Seconds(20), [&] { return Says(other, "serving paths"); }))
        << masters_[other]->Errors();
    const double serves_s = Seconds(Clock::now() - killed).count();
    ASSERT_TRUE(Eventually(Seconds(20), [&] { return InSession(other) >= kRanks; }))
        << masters_[other]->Errors();
    printf(
        "another master serves %.2f s after the leader was killed, all agents are in session after %.2f s\n",
        serves_s, Seconds(Clock::now() - killed).count());
    EXPECT_LE(serves_s, 3);
    ExpectGoesOn();
    EXPECT_TRUE(Eventually(Seconds(20), [&] { return AllKnown(); })) << Paths().dump(2);
    EXPECT_EQ(Crossing(), before);
    EXPECT_EQ(Epochs(), epochs) << "nobody was told anything anew";
    ASSERT_TRUE(masters_[leader]->Wait(Seconds(10)));
    StartMaster(leader);
    ASSERT_TRUE(Eventually(Seconds(20), [&] { return Says(leader, "standing by"); }))
        << masters_[leader]->Errors();
  }
}

// One that hung and goes on has nothing to say any more.
TEST_F(PathMastersTest, TheLeaderHangsAndTheOtherMovesNothing) {
  StartJobAndLearn();
  const std::map<std::string, int> before = Crossing();
  const auto hung = Clock::now();
  masters_[0]->Signal(SIGSTOP);
  ASSERT_TRUE(Eventually(Seconds(30), [&] { return Says(1, "serving paths") && InSession(1) >= kRanks; }))
      << masters_[1]->Errors();
  printf("all agents are in session with another master %.2f s after the leader hung\n",
         Seconds(Clock::now() - hung).count());
  ExpectGoesOn();
  masters_[0]->Signal(SIGCONT);
  ASSERT_TRUE(masters_[0]->Wait(Seconds(20)));
  EXPECT_EQ(masters_[0]->exit_code(), 1);
  EXPECT_TRUE(Eventually(Seconds(20), [&] { return AllKnown(); })) << Paths().dump(2);
  EXPECT_EQ(Crossing(), before);
}

}  // namespace
}  // namespace c4::net_test
