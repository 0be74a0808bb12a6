// What the launcher of an elastic job answers its master.
#include "cli/launch/elastic.h"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

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
