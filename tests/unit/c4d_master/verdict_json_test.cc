// The forms in which people and programs read a verdict. The JSON is a contract: names and types are
// checked field by field.
#include "service/verdict_json.h"

#include <vector>

#include <nlohmann/json.hpp>

#include "c4/v1/c4d.pb.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace c4::service {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::json;

v1::Verdict Example() {
  v1::Verdict verdict;
  verdict.set_id("abcdef01-1");
  verdict.set_job("job");
  verdict.set_syndrome(v1::SYNDROME_NON_COMMUNICATION_HANG);
  verdict.set_state(v1::VERDICT_STATE_CONFIRMED);
  v1::Culprit* culprit = verdict.mutable_culprit();
  culprit->set_kind(v1::CULPRIT_KIND_RANK);
  culprit->set_rank(2);
  culprit->mutable_process()->set_host("host7");
  culprit->mutable_process()->set_pid(4711);
  culprit->mutable_process()->set_boot_id("00112233445566778899aabbccddeeff");
  culprit->mutable_process()->set_start_time_ticks(1234567);
  culprit->set_state(v1::PROCESS_STATE_STOPPED);
  culprit->set_wait_channel("do_signal_stop");
  culprit->set_last_call("operation 410");
  verdict.set_communicator_id(0xA1);
  verdict.set_operation(410);
  for (const uint32_t rank : {0U, 1U, 3U}) verdict.add_waiting(rank);
  verdict.set_confidence(0.99);
  verdict.set_since_unix_ns(1'700'000'000'250'000'000);
  verdict.set_suspected_unix_ns(1'700'000'002'250'000'000);
  verdict.set_confirmed_unix_ns(1'700'000'002'500'000'000);
  verdict.set_confirmed_by("stopped");
  verdict.set_policy_version("54b4b530");
  v1::Evidence* evidence = verdict.add_evidence();
  evidence->set_kind("process-state");
  evidence->set_text("rank 2 is stopped");
  v1::HardwareSign* sign = verdict.add_hardware();
  sign->set_host("host7");
  sign->set_kind("xid");
  sign->set_device("GPU 3");
  sign->set_number(79);
  sign->set_text("Xid 79");
  sign->set_address("10.0.0.7");
  sign->set_unix_ns(1'699'999'999'500'000'000);
  verdict.set_suggested_action("kill -CONT");
  return verdict;
}

TEST(VerdictJsonTest, EveryFieldOfTheContract) {
  const Json json = Json::parse(VerdictJson(Example()));
  EXPECT_EQ(json, Json::parse(R"({
    "id": "abcdef01-1", "job": "job", "syndrome": "non-communication hang", "state": "confirmed",
    "culprit": {"kind": "rank", "rank": 2, "host": "host7", "pid": 4711,
                "boot_id": "00112233445566778899aabbccddeeff", "start_time_ticks": 1234567,
                "process_state": "stopped", "wait_channel": "do_signal_stop", "last_call": "operation 410",
                "nic": "", "connections": [], "candidates": [], "cable": "", "links": []},
    "communicator": "0x00000000000000a1", "operation": 410, "waiting": [0, 1, 3], "confidence": 0.99,
    "since_unix_s": 1700000000.25, "suspected_unix_s": 1700000002.25, "confirmed_unix_s": 1700000002.5,
    "cleared_unix_s": null, "confirmed_by": "stopped", "policy_version": "54b4b530",
    "evidence": [{"kind": "process-state", "text": "rank 2 is stopped"}],
    "hardware": [{"host": "host7", "kind": "xid", "device": "GPU 3", "number": 79, "text": "Xid 79", "times": 1,
                  "address": "10.0.0.7", "unix_s": 1699999999.5}],
    "interventions": [], "suggested_action": "kill -CONT"})"));
}

TEST(VerdictJsonTest, WhatHasNotHappenedIsNull) {
  v1::Verdict verdict = Example();
  verdict.set_state(v1::VERDICT_STATE_SUSPECTED);
  verdict.set_confirmed_unix_ns(0);
  const Json json = Json::parse(VerdictJson(verdict));
  EXPECT_EQ(json["state"], "suspected");
  EXPECT_TRUE(json["confirmed_unix_s"].is_null());
}

TEST(VerdictJsonTest, BrokenTextBecomesText) {
  v1::Verdict verdict = Example();
  verdict.mutable_culprit()->set_wait_channel("\xff\xfe");
  EXPECT_FALSE(Json::parse(VerdictJson(verdict), nullptr, false).is_discarded());
}

TEST(VerdictJsonTest, Lists) {
  v1::ListVerdictsReply list;
  list.set_job("job");
  list.set_master_epoch(0x123);
  *list.add_verdicts() = Example();
  const Json json = Json::parse(VerdictListJson(list, 2));
  EXPECT_EQ(json["job"], "job");
  EXPECT_EQ(json["master_epoch"], "0x0000000000000123");
  EXPECT_EQ(json["verdicts"][0]["culprit"]["rank"], 2);

  v1::GetStatusReply status;
  status.set_job("job");
  v1::AgentStatus* agent = status.add_agents();
  agent->set_host("host7");
  agent->set_last_batch_age_ns(250'000'000);
  v1::RankStatus* rank = status.add_ranks();
  rank->set_rank(1);
  rank->mutable_health()->set_state(v1::PROCESS_STATE_BLOCKED);
  rank->set_finished(7);
  const Json status_json = Json::parse(StatusJson(status));
  EXPECT_EQ(status_json["agents"][0]["last_batch_age_s"], 0.25);
  EXPECT_EQ(status_json["ranks"][0]["process_state"], "blocked");
  EXPECT_EQ(status_json["ranks"][0]["finished"], 7);
}

TEST(VerdictTextTest, OneLine) {
  v1::Verdict verdict = Example();
  EXPECT_EQ(VerdictLine(verdict, verdict.since_unix_ns() + 2'345'000'000),
            "CONFIRMED non-communication hang: rank 2 (pid 4711 on host7) is stopped; ranks 0, 1, 3 wait in "
            "operation "
            "410 for 2.3 s");
  verdict.set_state(v1::VERDICT_STATE_CLEARED);
  verdict.set_cleared_unix_ns(verdict.since_unix_ns() + 9'000'000'000);
  EXPECT_EQ(VerdictLine(verdict, verdict.since_unix_ns() + 3'600'000'000'000),
            "CLEARED non-communication hang: rank 2 (pid 4711 on host7) was stopped; ranks 0, 1, 3 waited in "
            "operation "
            "410 for 9.0 s");
}

TEST(VerdictTextTest, SeveralLines) {
  const v1::Verdict verdict = Example();
  const std::string text = VerdictText(verdict, verdict.since_unix_ns());
  EXPECT_THAT(
      text, HasSubstr("\n  verdict abcdef01-1 of job job, communicator 0x00000000000000a1, confidence 0.99, "
                      "confirmed by: stopped\n"));
  EXPECT_THAT(text, HasSubstr("\n  process-state: rank 2 is stopped\n"));
  EXPECT_THAT(text, HasSubstr("\n  what to do: kill -CONT\n"));
}

TEST(VerdictTextTest, RankLists) {
  const auto text = [](const std::vector<uint32_t>& ranks) { return RankListText(ranks); };
  EXPECT_EQ(text({}), "no rank");
  EXPECT_EQ(text({3}), "rank 3");
  EXPECT_EQ(text({0, 1, 3}), "ranks 0, 1, 3");
  EXPECT_EQ(text({0, 1, 2, 3, 7, 9, 10}), "ranks 0-3, 7, 9, 10");
  std::vector<uint32_t> even;
  for (uint32_t rank = 0; rank < 200; rank += 2) even.push_back(rank);
  EXPECT_EQ(text(even), "ranks 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22 and 88 more");
}

TEST(VerdictTextTest, WordsForUnknownNumbers) {
  EXPECT_EQ(SyndromeWord(99), "unknown");
  EXPECT_EQ(SyndromeWord(-1), "unknown");
  EXPECT_EQ(ProcessStateWord(v1::PROCESS_STATE_GONE), "gone");
  EXPECT_EQ(FunctionWord(v1::FUNCTION_RECV), "recv");
  EXPECT_EQ(CulpritKindWord(v1::CULPRIT_KIND_AMBIGUOUS), "ambiguous");
  EXPECT_EQ(DataTypeWord(9), "bfloat16");
  EXPECT_EQ(ReductionWord(77), "custom");
}

// A link between switches, and several of which it is one.
TEST(VerdictJsonTest, LinksByName) {
  v1::Verdict verdict = Example();
  verdict.set_syndrome(v1::SYNDROME_PATH_LOST);
  verdict.clear_waiting();
  v1::Culprit* culprit = verdict.mutable_culprit();
  culprit->Clear();
  culprit->set_kind(v1::CULPRIT_KIND_LINK);
  culprit->set_rank(-1);
  culprit->set_cable("leaf0-spine1");
  culprit->add_links("leaf0>spine1");
  culprit->add_links("leaf0<spine1");
  v1::ConnectionRef* ref = culprit->add_connections();
  ref->set_from_rank(0);
  ref->set_to_rank(4);
  const Json json = Json::parse(VerdictJson(verdict));
  EXPECT_EQ(json["syndrome"], "path lost");
  EXPECT_EQ(json["culprit"]["kind"], "link");
  EXPECT_EQ(json["culprit"]["cable"], "leaf0-spine1");
  EXPECT_EQ(json["culprit"]["links"], Json::parse(R"(["leaf0>spine1", "leaf0<spine1"])"));
  EXPECT_THAT(
      VerdictLine(verdict, 1'700'000'003'250'000'000),
      HasSubstr("path lost: link leaf0-spine1, over which go 1 queue pair (rank 0 to rank 4) for 3.0 s"));
  culprit->set_kind(v1::CULPRIT_KIND_AMBIGUOUS);
  EXPECT_THAT(VerdictLine(verdict, 1'700'000'003'250'000'000),
              HasSubstr("ambiguous, perhaps the link leaf0-spine1, over which go 1 queue pair"));
  // The two directions of a cable are one link.
  culprit->add_links("leaf1>spine1");
  EXPECT_THAT(
      VerdictLine(verdict, 1'700'000'003'250'000'000),
      HasSubstr("ambiguous, one of the links leaf0-spine1, leaf1-spine1, over which go 1 queue pair"));
}

}  // namespace
}  // namespace c4::service
