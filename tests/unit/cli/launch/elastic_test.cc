// What the launcher of an elastic job answers its master.
#include "cli/launch/elastic.h"

#include <algorithm>
#include <gmock/gmock.h>
#include <set>

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"

namespace c4::cli {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::json;

class ElasticTest : public testing::Test {
 protected:
  Json Ask(const std::string& line) {
    return Json::parse(job_.Answer(line, incarnation_, failed_,
                                   [this](const ElasticJob::Restart& restart) -> absl::StatusOr<double> {
                                     if (!fails_.ok()) return fails_;
                                     ++restarts_;
                                     incarnation_ = restart.incarnation;
                                     return 5.5;
                                   }));
  }

  ElasticJob job_{{"host0", "host1", "host2"}, {0, 0, 1, 1}};
  int incarnation_ = 0;
  bool failed_ = false;
  int restarts_ = 0;
  absl::Status fails_;
};

TEST_F(ElasticTest, ANodeIsTakenOutAndItsRanksGoElsewhere) {
  EXPECT_EQ(Ask(R"({"verb": "isolate", "node": "host1", "command": 1})")["outcome"], "done");
  const Json look = Ask(R"({"verb": "look"})");
  EXPECT_EQ(look["nodes"][1], (Json{{"name", "host1"}, {"state", "isolated"}, {"in_use", true}}));
  EXPECT_EQ(look["nodes"][2], (Json{{"name", "host2"}, {"state", "free"}, {"in_use", false}}));
  const std::string restart =
      R"({"verb": "restart", "command": 2, "from": 0, "to": 1, "replace": [{"node": "host1", "backup": "host2"}]})";
  EXPECT_EQ(Ask(restart), (Json{{"outcome", "done"}, {"checkpoint_unix_s", 5.5}}));
  EXPECT_EQ(job_.host_of_rank(), (std::vector<int>{0, 0, 2, 2}));
  EXPECT_FALSE(Ask(R"({"verb": "look"})").contains("failed"));
  failed_ = true;
  EXPECT_EQ(Ask(R"({"verb": "look"})")["failed"], 1);
  // Nobody knew what became of it, and it is asked for again.
  EXPECT_EQ(Ask(restart)["outcome"], "done");
  EXPECT_EQ(restarts_, 1);
  EXPECT_EQ(Ask(R"({"verb": "give-back", "node": "host1"})")["outcome"], "done");
}

// As onto a host whose network is dead, which nobody can tell while no rank has met another.
TEST_F(ElasticTest, AJobThatDoesNotComeUpGoesElsewhere) {
  ElasticJob job{{"h0", "h1", "h2", "h3", "h4", "h5"}, {0, 1, 2, 3}};
  int incarnation = 0;
  std::set<int> left;  // hosts that were left out once
  const auto restart = [&](const std::string& more) {
    const Json answer = Json::parse(
        job.Answer(absl::StrCat(R"({"verb": "restart", "command": )", incarnation + 10, R"(, "to": )",
                                incarnation + 1, more, "}"),
                   incarnation, true, [&](const ElasticJob::Restart& wanted) -> absl::StatusOr<double> {
                     incarnation = wanted.incarnation;
                     return 0;
                   }));
    EXPECT_EQ(answer["outcome"], "done") << answer;
    const std::vector<int> hosts = job.host_of_rank();
    EXPECT_EQ(std::set<int>(hosts.begin(), hosts.end()).size(), 4U) << "each rank has a host of its own";
    for (int host = 0; host < 4; ++host) {
      if (std::find(hosts.begin(), hosts.end(), host) == hosts.end()) left.insert(host);
    }
  };
  restart(R"(, "incident": 7)");
  EXPECT_EQ(job.host_of_rank(), (std::vector<int>{0, 1, 2, 3})) << "the first time where it was";
  restart(R"(, "incident": 7)");
  EXPECT_EQ(job.host_of_rank(), (std::vector<int>{4, 5, 2, 3}));
  restart(R"(, "incident": 7)");
  EXPECT_EQ(left, (std::set<int>{0, 1, 2, 3})) << "each of them has been left out by now";
  const std::vector<int> before = job.host_of_rank();
  restart(R"(, "incident": 8)");
  restart("");
  restart("");
  EXPECT_EQ(job.host_of_rank(), before) << "of another incident, or where none is said";
}

TEST_F(ElasticTest, WhatIsLateOrWrongIsRefused) {
  incarnation_ = 3;
  const auto why = [this](const std::string& line) {
    const Json answer = Ask(line);
    EXPECT_EQ(answer["outcome"], "refused") << answer;
    return answer.value("text", "");
  };
  EXPECT_THAT(why(R"({"verb": "restart", "command": 9, "to": 3})"), HasSubstr("not above 3"));
  EXPECT_THAT(
      why(R"({"verb": "restart", "command": 9, "to": 4, "replace": [{"node": "host1", "backup": "host0"}]})"),
      HasSubstr("host0 is not free"));
  EXPECT_THAT(why(R"({"verb": "restart", "command": 9, "to": 4, "replace": [7]})"), HasSubstr("not there"));
  Ask(R"({"verb": "isolate", "node": "host0"})");
  EXPECT_THAT(why(R"({"verb": "restart", "command": 9, "to": 4})"), HasSubstr("host0, which is isolated"));
  Ask(R"({"verb": "give-back", "node": "host0"})");
  fails_ = absl::UnavailableError("no room");
  EXPECT_THAT(why(R"({"verb": "restart", "command": 9, "to": 4})"), HasSubstr("no room"));
  EXPECT_EQ(job_.host_of_rank(), (std::vector<int>{0, 0, 1, 1}));
  EXPECT_THAT(why(R"({"verb": "isolate", "node": "host9"})"), HasSubstr("no host host9"));
  EXPECT_THAT(why(R"({"verb": "check", "node": "host1"})"), HasSubstr("by hand"));
  EXPECT_THAT(why(R"({"verb": "reboot"})"), HasSubstr("no verb"));
  EXPECT_THAT(why("nonsense"), HasSubstr("no JSON"));
}

TEST(ElasticFileTest, TheUsersRulesWithOurDriver) {
  const Json json = Json::parse(*ElasticRecoveryFile(R"({"mode": "manual"})", "/s"));
  EXPECT_EQ(json["mode"], "manual");
  EXPECT_EQ(json["driver"]["local"], "/s");
  EXPECT_EQ(Json::parse(*ElasticRecoveryFile("", "/s"))["mode"], "automatic");
  EXPECT_FALSE(ElasticRecoveryFile("[]", "/s").ok());
  EXPECT_FALSE(ElasticRecoveryFile(R"({"driver": {}})", "/s").ok());
}

}  // namespace
}  // namespace c4::cli
