// The page about one verdict, as text and as JSON.
#include "cli/text/incident_text.h"

#include <cstdlib>
#include <ctime>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "absl/strings/str_split.h"
#include "cli/text/screen.h"

namespace c4::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using Json = nlohmann::json;

constexpr int64_t kSecond = 1'000'000'000;
constexpr int64_t kNow = 1'700'000'000 * kSecond;

v1::Verdict Crash() {
  v1::Verdict verdict;
  verdict.set_id("abcdef01-3");
  verdict.set_job("llm-pretrain-42");
  verdict.set_syndrome(v1::SYNDROME_CRASH);
  verdict.set_state(v1::VERDICT_STATE_CONFIRMED);
  verdict.mutable_culprit()->set_kind(v1::CULPRIT_KIND_RANK);
  verdict.mutable_culprit()->set_rank(2);
  verdict.mutable_culprit()->mutable_process()->set_pid(4711);
  verdict.mutable_culprit()->mutable_process()->set_host("node17");
  verdict.mutable_culprit()->set_state(v1::PROCESS_STATE_GONE);
  for (const uint32_t waiting : {0U, 1U, 3U}) verdict.add_waiting(waiting);
  verdict.set_operation(410);
  verdict.set_since_unix_ns(kNow - 60 * kSecond);
  verdict.set_suspected_unix_ns(kNow - 58 * kSecond);
  verdict.set_confirmed_unix_ns(kNow - 57 * kSecond);
  verdict.set_confirmed_by("gone");
  verdict.set_confidence(0.99);
  verdict.set_suggested_action(std::string("isolate node17 and restart the job without it, ") +
                               "then look at what its kernel's log says of the GPU");
  v1::Evidence* evidence = verdict.add_evidence();
  evidence->set_kind("process-state");
  evidence->set_text("rank 2 is process 4711 on node17 (trainer): gone for 57.0 s");
  evidence = verdict.add_evidence();
  evidence->set_kind("hardware");
  evidence->set_text("a sentence that stands in the page once");
  v1::HardwareSign* sign = verdict.add_hardware();
  sign->set_host("node17");
  sign->set_kind("xid");
  sign->set_device("GPU 3");
  sign->set_number(79);
  sign->set_text("Xid 79, the GPU has fallen off the bus");
  sign->set_unix_ns(verdict.since_unix_ns() - 1200 * kSecond / 1000);
  return verdict;
}

v1::ConnectionRef Connection() {
  v1::ConnectionRef ref;
  ref.set_from_rank(1);
  ref.set_to_rank(2);
  ref.set_from_host("node16");
  ref.set_to_host("node17");
  ref.set_communicator_id(7);
  ref.set_channel(1);
  ref.set_index(3);
  return ref;
}

class IncidentTextTest : public ::testing::Test {
 protected:
  void SetUp() override {
    setenv("TZ", "UTC", 1);
    tzset();
  }
};

TEST_F(IncidentTextTest, OnePageOf80Columns) {
  v1::Verdict verdict = Crash();
  *verdict.mutable_culprit()->add_connections() = Connection();
  const std::string page =
      IncidentText(verdict, {{1, 2, 3, {"node16>leaf0", "leaf0>spine1", "leaf1<spine1"}}}, kNow);
  const std::vector<std::string> lines = absl::StrSplit(page, '\n');
  EXPECT_LE(lines.size(), 40U) << page;
  for (const std::string& line : lines) EXPECT_LE(TextColumns(line), 80U) << line;
  EXPECT_THAT(page, HasSubstr("INCIDENT abcdef01-3 of job llm-pretrain-42\n"));
  EXPECT_THAT(page, HasSubstr("  CONFIRMED crash: rank 2 (pid 4711 on node17) is gone\n"));
  EXPECT_THAT(page, HasSubstr("  onset 22:12:20, suspected +2.0 s, confirmed +3.0 s\n"));
  EXPECT_THAT(
      page,
      HasSubstr("LIKELY CAUSE\n  GPU 3 of node17: Xid 79, the GPU has fallen off the bus, 1.2 s before\n"
                "  class: CUDA error\n"));
  EXPECT_THAT(page,
              HasSubstr("HARDWARE of node16, node17, from 60 s before the onset to 30 s after\n"
                        "  xid: GPU 3 of node17: Xid 79, the GPU has fallen off the bus, 1.2 s before\n"));
  EXPECT_THAT(page, HasSubstr("  process-state: rank 2 is process 4711"));
  EXPECT_THAT(page, Not(HasSubstr("stands in the page once")));
  EXPECT_THAT(page, HasSubstr("queue pair 3: node16>leaf0 leaf0>spine1"));
  EXPECT_THAT(page, HasSubstr("WHAT TO DO\n  isolate node17"));
}

TEST_F(IncidentTextTest, NoneWasSeen) {
  v1::Verdict verdict = Crash();
  verdict.clear_hardware();
  verdict.set_state(v1::VERDICT_STATE_CLEARED);
  verdict.set_cleared_unix_ns(kNow);
  const std::string page = IncidentText(verdict, {}, kNow);
  EXPECT_THAT(page, HasSubstr("LIKELY CAUSE\n  none was seen\n  class: ACK timeout\n"));
  EXPECT_THAT(page, HasSubstr("  nothing was told\n"));
  EXPECT_THAT(page, HasSubstr("cleared +60.0 s"));
  EXPECT_THAT(page, HasSubstr("WHAT WAS TO DO"));
  EXPECT_THAT(page, Not(HasSubstr("PATHS")));
}

TEST_F(IncidentTextTest, Json) {
  const Json json = Json::parse(IncidentJson(Crash(), {{1, 2, 3, {"leaf0>spine1"}}}));
  EXPECT_EQ(json["verdict"]["id"], "abcdef01-3");
  EXPECT_EQ(json["verdict"]["hardware"][0]["number"], 79);
  EXPECT_EQ(json["verdict"]["hardware"][0]["times"], 1);
  EXPECT_EQ(json["likely_cause"]["class"], "CUDA error");
  EXPECT_EQ(json["likely_cause"]["sign"], 0);
  EXPECT_EQ(json["hosts"], Json::array({"node17"}));
  EXPECT_EQ(json["paths"][0]["links"][0], "leaf0>spine1");
  v1::Verdict verdict = Crash();
  verdict.clear_hardware();
  verdict.set_syndrome(v1::SYNDROME_COMMUNICATION_SLOW);
  const Json none = Json::parse(IncidentJson(verdict, {}));
  EXPECT_TRUE(none["likely_cause"]["class"].is_null());
  EXPECT_TRUE(none["likely_cause"]["sign"].is_null());
  EXPECT_EQ(none["likely_cause"]["text"], "none was seen");
}

TEST(FindVerdict, ByIdByItsEndAndTheNewest) {
  v1::ListVerdictsReply reply;
  reply.set_job("job");
  EXPECT_FALSE(FindVerdict(reply, "").ok());
  const auto add = [&](const std::string& id, int64_t since, int64_t confirmed) {
    v1::Verdict* const verdict = reply.add_verdicts();
    verdict->set_id(id);
    verdict->set_since_unix_ns(since);
    verdict->set_confirmed_unix_ns(confirmed);
  };
  add("aa-1", 10, 11);
  add("aa-13", 20, 21);
  add("bb-1", 30, 0);
  EXPECT_EQ((*FindVerdict(reply, ""))->id(), "aa-13");
  EXPECT_EQ((*FindVerdict(reply, "aa-1"))->id(), "aa-1");
  EXPECT_EQ((*FindVerdict(reply, "13"))->id(), "aa-13");
  EXPECT_THAT(FindVerdict(reply, "1").status().message(), HasSubstr("aa-1, bb-1"));
  EXPECT_THAT(FindVerdict(reply, "3").status().message(), HasSubstr("has no verdict 3"));
}

TEST(PathsOf, OnlyThoseOfTheVerdict) {
  v1::Verdict verdict;
  *verdict.mutable_culprit()->add_connections() = Connection();
  v1::ListPathsReply reply;
  for (const uint32_t channel : {0U, 1U}) {
    v1::ConnectionStatus* const status = reply.add_connections();
    status->set_from_rank(1);
    status->set_to_rank(2);
    status->set_communicator_id(7);
    status->set_channel(channel);
    for (const uint32_t index : {2U, 3U}) {
      v1::QueuePairStatus* const pair = status->add_queue_pairs();
      pair->set_index(index);
      pair->add_links("link" + std::to_string(channel) + std::to_string(index));
    }
  }
  const auto paths = PathsOf(verdict, reply);
  ASSERT_EQ(paths.size(), 1U);
  EXPECT_EQ(paths[0].links, std::vector<std::string>{"link13"});
}

TEST_F(IncidentTextTest, QueuePairsThatWereMovedStandOnThePage) {
  v1::Verdict verdict = Crash();
  v1::Intervention* const one = verdict.add_interventions();
  one->set_id("abcdef01-3/1");
  one->set_begun_unix_ns(kNow - 40 * kSecond);
  one->set_ended_unix_ns(kNow - 20 * kSecond);
  one->set_outcome("settled");
  one->add_lines("moved 1 queue pair of rank 0 to rank 1 from spine0 to spine1: 52.0 -> 1.0 times");
  for (int i = 0; i < 30; ++i) {
    v1::MovedQueuePair* const move = one->add_moves();
    move->set_unix_ns(kNow - 38 * kSecond);
    move->set_role(i % 2 == 0 ? "suspect" : "control");
    move->set_to_rank(1);
    move->add_new_links("leaf0>spine1");
    move->add_new_links("leaf1<spine1");
    move->set_back(i == 1);
  }
  const std::string page = IncidentText(verdict, {}, kNow);
  EXPECT_THAT(page, HasSubstr("QUEUE PAIRS WERE MOVED\n  experiment abcdef01-3/1"));
  EXPECT_THAT(page, HasSubstr("over after 20.0 s"));
  std::string flat = page;  // a sentence goes on in the next line
  for (size_t at = 0; (at = flat.find("\n    ")) != std::string::npos;) flat.replace(at, 5, " ");
  EXPECT_THAT(flat, HasSubstr("52.0 -> 1.0 times"));
  EXPECT_THAT(page, HasSubstr("+2.0 s suspect, rank 0 to rank 1"));
  EXPECT_THAT(flat, HasSubstr("back to leaf0>spine1"));
  EXPECT_THAT(page, HasSubstr("and 6 more moves: --json"));
  for (const auto& line : absl::StrSplit(page, '\n')) EXPECT_LE(line.size(), 80U) << line;
  one->set_ended_unix_ns(0);
  EXPECT_THAT(IncidentText(verdict, {}, kNow), HasSubstr("it is under way"));
  EXPECT_EQ(Json::parse(IncidentJson(verdict, {}))["verdict"]["interventions"][0]["moves"].size(), 30U);
}

}  // namespace
}  // namespace c4::cli
