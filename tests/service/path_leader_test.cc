// Path masters that stand in for each other, with a real etcd: one leads, another takes over when it is
// killed or hangs, and a leader that comes back to life ends. Skipped where there is no etcd.
#include <chrono>
#include <filesystem>
#include <fstream>
#include <future>
#include <gmock/gmock.h>
#include <optional>
#include <regex>
#include <signal.h>
#include <thread>

#include "absl/strings/escaping.h"
#include "c4p_master/state/etcd_state.h"
#include "tests/service/etcd_cluster.h"
#include "tests/service/path_master.h"

namespace c4::service_test {
namespace {

using c4p::EtcdState;
using c4p::StateChange;
using c4p::StateRecords;
using testing::HasSubstr;

class PathLeaderTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!EtcdCluster::Installed()) GTEST_SKIP() << kNoEtcd;
  }
  void StartEtcd(int members, std::vector<std::string> flags = {}) {
    etcd_.emplace(members, std::move(flags));
  }
  std::unique_ptr<Process> StartMaster(const std::string& name, const std::vector<std::string>& more = {},
                                       const std::string& store = {}) {
    std::vector<std::string> settings = {"--store", store.empty() ? etcd_->Place() : store};
    settings.insert(settings.end(), more.begin(), more.end());
    const std::string run_dir = scratch_.path() + "/" + name;
    return StartPathMaster(run_dir, run_dir + "/masters", settings);
  }
  std::string UserFile(const std::string& name, const std::string& text) {
    const std::string path = scratch_.path() + "/" + name;
    std::ofstream(path) << text << "\n";
    std::filesystem::permissions(path,
                                 std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
    return path;
  }
  // Of keys and values that etcd's gateway takes.
  static std::string Base64(const std::string& text) { return absl::Base64Escape(text); }
  static bool Serves(const Process& master) {
    return master.Errors().find("serving paths") != std::string::npos;
  }
  std::unique_ptr<EtcdState> Contend(const std::string& self, uint64_t wished,
                                     absl::Duration compact_every = absl::Minutes(5)) {
    auto state = std::make_unique<EtcdState>(EtcdState::Options{*c4p::ParseEtcdPlace(etcd_->Place()), self,
                                                                wished, c4p::LeaseTimes(), compact_every});
    state->SetPost([](const std::function<void()>& task) {
      task();
      return true;
    });
    return state;
  }
  static bool Leads(EtcdState* state, Seconds limit) {
    const auto until = Clock::now() + limit;
    return state->AwaitLeadership([&] { return Clock::now() > until; }).ok();
  }
  static absl::Status Write(EtcdState* state, std::vector<StateChange> changes) {
    std::promise<absl::Status> told;
    state->Write(std::move(changes), [&](const absl::Status& status) { told.set_value(status); });
    return told.get_future().get();
  }

  ScratchDir scratch_;
  std::optional<EtcdCluster> etcd_;
};

TEST_F(PathLeaderTest, WhatOneWroteTheNextReadsAndTheFirstWritesNoMore) {
  StartEtcd(1);
  std::vector<StateChange> changes;
  StateRecords expected;
  for (int i = 0; i < 1234; ++i) {
    const std::string key = "connection/" + std::to_string(i);
    const std::string value = std::string("\0\xff", 2) + std::string(static_cast<size_t>(i), 'x');
    changes.push_back({key, value});
    expected[key] = value;
  }
  auto first = Contend("first", 100);
  ASSERT_TRUE(Leads(first.get(), Seconds(10)));
  EXPECT_EQ(first->epoch(), 100u);
  ASSERT_TRUE(Write(first.get(), changes).ok());
  ASSERT_TRUE(Write(first.get(), {{"connection/7", std::nullopt}}).ok());
  expected.erase("connection/7");
  EXPECT_EQ(*first->Load(), expected);
  auto second = Contend("second", 50);
  EXPECT_FALSE(Leads(second.get(), Seconds(3))) << "the first renews";
  first.reset();
  ASSERT_TRUE(Leads(second.get(), Seconds(10)));
  EXPECT_EQ(second->epoch(), 101u) << "though its clock says less";
  EXPECT_EQ(*second->Load(), expected);
}

TEST_F(PathLeaderTest, AnotherServesSoonAfterTheLeaderIsKilled) {
  StartEtcd(1);
  std::vector<std::unique_ptr<Process>> masters;
  masters.push_back(StartMaster("a"));
  ASSERT_TRUE(Eventually(Seconds(20), [&] { return Serves(*masters[0]); })) << masters[0]->Errors();
  masters.push_back(StartMaster("b"));
  masters.push_back(StartMaster("c"));
  ASSERT_TRUE(Eventually(Seconds(20), [&] {
    return masters[1]->Errors().find("standing by") != std::string::npos &&
           masters[2]->Errors().find("standing by") != std::string::npos;
  })) << masters[1]->Errors();
  std::this_thread::sleep_for(Seconds(2));
  EXPECT_FALSE(Serves(*masters[1]) || Serves(*masters[2])) << "there is one leader";
  masters[0]->Signal(SIGKILL);
  const auto killed = Clock::now();
  ASSERT_TRUE(Eventually(Seconds(20), [&] { return Serves(*masters[1]) || Serves(*masters[2]); }));
  const double after_s = Seconds(Clock::now() - killed).count();
  printf("another master serves %.2f s after the leader was killed\n", after_s);
  EXPECT_LE(after_s, 3);
  std::this_thread::sleep_for(Seconds(1));
  EXPECT_NE(Serves(*masters[1]), Serves(*masters[2]));
}

TEST_F(PathLeaderTest, ALeaderThatHungEndsWhenItGoesOn) {
  StartEtcd(1);
  const std::unique_ptr<Process> first = StartMaster("a");
  ASSERT_TRUE(Eventually(Seconds(20), [&] { return Serves(*first); })) << first->Errors();
  const std::unique_ptr<Process> second = StartMaster("b");
  first->Signal(SIGSTOP);
  ASSERT_TRUE(Eventually(Seconds(20), [&] { return Serves(*second); })) << second->Errors();
  first->Signal(SIGCONT);
  ASSERT_TRUE(first->Wait(Seconds(20)));
  EXPECT_EQ(first->exit_code(), 1) << "so that it is started again";
  EXPECT_THAT(first->Errors(), HasSubstr("leads no more"));
  EXPECT_FALSE(second->Wait(Seconds(1)));
}

// Of three members one may go. Without two nobody leads; with two again somebody does, and knows what was
// written.
TEST_F(PathLeaderTest, AQuorumThatIsLostAndBack) {
  StartEtcd(3);
  auto first = Contend("first", 100);
  ASSERT_TRUE(Leads(first.get(), Seconds(20)));
  ASSERT_TRUE(Write(first.get(), {{"connection/1", "kept"}}).ok());
  etcd_->Kill(1);
  etcd_->Kill(2);
  ASSERT_TRUE(Eventually(Seconds(20), [&] { return !first->leading().ok(); }));
  EXPECT_THAT(std::string(first->leading().message()), HasSubstr("could not be renewed in time"));
  EXPECT_FALSE(Write(first.get(), {{"connection/2", "never said"}}).ok());
  first.reset();
  auto second = Contend("second", 50);
  EXPECT_FALSE(Leads(second.get(), Seconds(4))) << "without a quorum";
  etcd_->Start(1);
  ASSERT_TRUE(etcd_->AwaitQuorum(Seconds(40)));
  ASSERT_TRUE(Leads(second.get(), Seconds(20)));
  EXPECT_EQ(second->epoch(), 101u);
  const auto records = second->Load();
  ASSERT_TRUE(records.ok()) << records.status();
  ASSERT_TRUE(records->contains("connection/1"));
  EXPECT_EQ(records->at("connection/1"), "kept");
}

// The quota is reached while one leads: what was answered for is kept, what cannot be written down is
// refused, the leader says what to do, and somebody goes on when there is room again.
TEST_F(PathLeaderTest, AnEtcdThatIsFullLosesNothing) {
  StartEtcd(1, {"--quota-backend-bytes", "1048576"});
  auto first = Contend("first", 100);
  ASSERT_TRUE(Leads(first.get(), Seconds(20)));
  const std::string filler = Base64(std::string(50'000, 'x'));
  size_t kept = 0;
  absl::Status status;
  while (kept < 200 && status.ok()) {
    (void)etcd_->Call("/v3/kv/put", R"({"key":")" + Base64("filler" + std::to_string(kept)) +
                                        R"(","value":")" + filler + R"("})");
    status = Write(first.get(), {{"connection/" + std::to_string(kept), "kept"}});
    kept += status.ok() ? 1 : 0;
  }
  ASSERT_FALSE(status.ok()) << "the quota is no quota";
  EXPECT_GT(kept, 3u);
  EXPECT_THAT(std::string(status.message()), HasSubstr("is out of space"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("alarm disarm"));
  EXPECT_THAT(std::string(first->leading().message()), HasSubstr("alarm disarm"));
  EXPECT_FALSE(Write(first.get(), {{"connection/late", "never said"}}).ok());
  first.reset();
  const std::unique_ptr<Process> master = StartMaster("a");
  ASSERT_TRUE(
      Eventually(Seconds(20), [&] { return master->Errors().find("is out of space") != std::string::npos; }));
  std::this_thread::sleep_for(Seconds(2));
  EXPECT_EQ(master->Errors().find("is out of space"), master->Errors().rfind("is out of space"))
      << "said once";
  EXPECT_FALSE(Serves(*master));
  master->Signal(SIGKILL);
  ASSERT_TRUE(master->Wait(Seconds(10)));

  // As the message says.
  const std::string gone =
      etcd_->Call("/v3/kv/deleterange",
                  R"({"key":")" + Base64("filler") + R"(","range_end":")" + Base64("filles") + R"("})");
  std::smatch revision;
  ASSERT_TRUE(std::regex_search(gone, revision, std::regex(R"re("revision":"([0-9]+)")re"))) << gone;
  (void)etcd_->Call("/v3/kv/compaction", R"({"revision":")" + revision[1].str() + R"(","physical":true})");
  (void)etcd_->Call("/v3/maintenance/defragment", "{}");
  const std::string alarms = etcd_->Call("/v3/maintenance/alarm", R"({"action":"GET"})");
  std::smatch member;
  ASSERT_TRUE(std::regex_search(alarms, member, std::regex(R"re("memberID":"([0-9]+)")re"))) << alarms;
  const std::string disarmed =
      etcd_->Call("/v3/maintenance/alarm",
                  R"({"action":"DEACTIVATE","alarm":"NOSPACE","memberID":")" + member[1].str() + R"("})");
  EXPECT_THAT(disarmed, testing::Not(HasSubstr("error")));
  auto second = Contend("second", 50);
  ASSERT_TRUE(Leads(second.get(), Seconds(20)));
  const auto records = second->Load();
  ASSERT_TRUE(records.ok()) << records.status();
  EXPECT_FALSE(records->contains("connection/late"));
  for (size_t i = 0; i < kept; ++i) EXPECT_TRUE(records->contains("connection/" + std::to_string(i))) << i;
}

// Stopped, an etcd is as slow as can be: the leader is none any more before anybody else could be, and what
// it decided meanwhile is told to nobody.
TEST_F(PathLeaderTest, AnEtcdThatHangsLosesNothing) {
  StartEtcd(1);
  auto first = Contend("first", 100);
  ASSERT_TRUE(Leads(first.get(), Seconds(20)));
  ASSERT_TRUE(Write(first.get(), {{"connection/1", "kept"}}).ok());
  etcd_->Signal(0, SIGSTOP);
  const absl::Status held = Write(first.get(), {{"connection/2", "never said"}});
  EXPECT_THAT(std::string(held.message()), HasSubstr("did not answer within"));
  EXPECT_FALSE(first->leading().ok());
  etcd_->Signal(0, SIGCONT);
  auto second = Contend("second", 50);
  ASSERT_TRUE(Leads(second.get(), Seconds(20)));
  EXPECT_TRUE(second->Load()->contains("connection/1"));
  EXPECT_FALSE(Write(first.get(), {{"connection/3", "never said"}}).ok()) << "once lost is lost";
  EXPECT_FALSE(second->Load()->contains("connection/3"));
}

TEST_F(PathLeaderTest, AnEtcdWithUsers) {
  StartEtcd(1);
  for (const auto& [path, body] : std::vector<std::pair<std::string, std::string>>{
           {"user/add", R"({"name":"root","password":"r"})"},
           {"role/add", R"({"name":"root"})"},
           {"user/grant", R"({"user":"root","role":"root"})"},
           {"user/add", R"({"name":"paths","password":"of:glory"})"},
           {"user/add", R"({"name":"guest","password":"g"})"},
           {"role/add", R"({"name":"paths"})"},
           {"role/grant", R"({"name":"paths","perm":{"permType":"READWRITE","key":")" + Base64("c4p/") +
                              R"(","range_end":")" + Base64("c4p0") + R"("}})"},
           {"user/grant", R"({"user":"paths","role":"paths"})"},
           {"enable", "{}"}}) {
    EXPECT_THAT(etcd_->Call("/v3/auth/" + path, body), testing::Not(HasSubstr("error"))) << path;
  }
  const auto refused = [&](const std::string& name, const std::vector<std::string>& more) {
    const std::unique_ptr<Process> master = StartMaster(name, more);
    EXPECT_TRUE(master->Wait(Seconds(20))) << master->Errors();
    EXPECT_EQ(master->exit_code(), 1);
    return master->Errors();
  };
  EXPECT_THAT(refused("none", {}), HasSubstr("give it as --store-user-file"));
  EXPECT_THAT(refused("wrong", {"--store-user-file", UserFile("wrong.txt", "paths:of")}),
              HasSubstr("refuses its user paths"));
  EXPECT_THAT(refused("guest", {"--store-user-file", UserFile("guest.txt", "guest:g")}),
              HasSubstr("does not let its user guest use the keys below c4p/"));
  EXPECT_THAT(refused("odd", {"--store-user-file", UserFile("odd.txt", "paths")}),
              HasSubstr("NAME:PASSWORD"));
  const std::unique_ptr<Process> master =
      StartMaster("right", {"--store-user-file", UserFile("right.txt", "paths:of:glory")});
  EXPECT_TRUE(Eventually(Seconds(20), [&] { return Serves(*master); })) << master->Errors();
  EXPECT_THAT(master->Errors(), testing::Not(HasSubstr("of:glory"))) << "a password in the log";
  // Its member is started again, and knows no token any more.
  etcd_->Kill(0);
  etcd_->Start(0);
  const std::unique_ptr<Process> next =
      StartMaster("next", {"--store-user-file", scratch_.path() + "/right.txt"});
  EXPECT_TRUE(Eventually(Seconds(20), [&] { return Serves(*next) || !master->Wait(Seconds(0)); }));
}

TEST_F(PathLeaderTest, WhatIsNoEtcdIsSaid) {
  StartEtcd(1);
  const std::unique_ptr<Process> master = StartMaster("a");
  ASSERT_TRUE(Eventually(Seconds(20), [&] { return Serves(*master); })) << master->Errors();
  // Its page answers HTTP, and is no etcd.
  const std::string errors = master->Errors();
  std::smatch page;
  ASSERT_TRUE(std::regex_search(errors, page, std::regex("HTTP on 127.0.0.1:([0-9]+)"))) << errors;
  const std::unique_ptr<Process> lost = StartMaster("b", {}, "etcd://127.0.0.1:" + page[1].str());
  ASSERT_TRUE(lost->Wait(Seconds(20))) << lost->Errors();
  EXPECT_EQ(lost->exit_code(), 1);
  EXPECT_THAT(lost->Errors(), HasSubstr("is no etcd of version 3.4 or later"));
}

TEST_F(PathLeaderTest, TheLeaderCompactsTheHistory) {
  StartEtcd(1);
  auto leader = Contend("leader", 100, absl::Seconds(1));
  ASSERT_TRUE(Leads(leader.get(), Seconds(20)));
  for (int i = 0; i < 20; ++i) ASSERT_TRUE(Write(leader.get(), {{"connection/1", std::to_string(i)}}).ok());
  const std::string then = R"({"revision":"3","key":")" + Base64("c4p/leader") + R"("})";
  EXPECT_THAT(etcd_->Call("/v3/kv/range", then), HasSubstr("kvs"));
  EXPECT_TRUE(Eventually(Seconds(20), [&] {
    return etcd_->Call("/v3/kv/range", then).find("has been compacted") != std::string::npos;
  }));
  EXPECT_EQ(leader->Load()->at("connection/1"), "19");
  EXPECT_TRUE(leader->leading().ok());
}

}  // namespace
}  // namespace c4::service_test
