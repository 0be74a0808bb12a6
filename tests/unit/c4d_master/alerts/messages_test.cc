// What notifications say, and how webhooks are signed.
#include "c4d_master/alerts/messages.h"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

namespace c4::c4d {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::json;
using Kind = Notification::Kind;

constexpr int64_t kUnixNs = 1'700'000'000'250'000'000;

struct Fixture {
  Fixture() {
    alert.set_rule("down");
    alert.set_id("down/v-1");
    alert.set_verdict("v-1");
    alert.set_condition("verdict: crash, confirmed");
    alert.set_text("CONFIRMED crash: rank 3");
    alert.set_since_unix_ns(kUnixNs - 5 * kSecondNs);
    auto& labels = *alert.mutable_detail()->mutable_labels();
    labels["rule"] = "down";
    labels["job"] = "j";
    labels["host"] = "host1";
    alert.mutable_detail()->set_severity("page");
    alert.mutable_detail()->set_resolved_unix_ns(kUnixNs);
    verdict.set_id("v-1");
    verdict.set_suggested_action("isolate host1");
    for (int i = 0; i < 500; ++i) verdict.mutable_culprit()->add_connections()->set_from_rank(i);
    for (uint32_t i = 0; i < 500; ++i) verdict.add_waiting(i);
  }
  NotificationParts Parts(Kind kind) const {
    return {.job = "j", .kind = kind, .number = 7, .unix_ns = kUnixNs, .alert = &alert, .verdict = &verdict};
  }
  v1::Alert alert;
  v1::Verdict verdict;
};

TEST(AlertMessagesTest, ForWebhooksAndCommands) {
  const Fixture fixture;
  const Json json = Json::parse(NotificationJson(fixture.Parts(Kind::kFiring)));
  EXPECT_EQ(json["alert"], "down");
  EXPECT_EQ(json["what"], "firing");
  EXPECT_EQ(json["test"], false);
  EXPECT_EQ(json["number"], 7);
  EXPECT_EQ(json["unix_s"], 1'700'000'000.25);
  EXPECT_EQ(json["labels"]["host"], "host1");
  EXPECT_EQ(json["verdict"]["id"], "v-1");
  EXPECT_EQ(json["verdict"]["culprit"]["connections"].size(), 50U) << "a job of thousands fits";
  EXPECT_EQ(json["session"], nullptr);
  EXPECT_EQ(json["text"], "Job j, alert down (verdict: crash, confirmed) is firing: CONFIRMED crash: rank 3");
  NotificationParts test = {.job = "j", .kind = Kind::kTest};
  const Json of_test = Json::parse(NotificationJson(test));
  EXPECT_EQ(of_test["test"], true);
  EXPECT_EQ(of_test["alert"], nullptr);
  EXPECT_THAT(of_test["text"].get<std::string>(), HasSubstr("This is a test"));
}

TEST(AlertMessagesTest, ForAlertmanager) {
  const Fixture fixture;
  Json json = Json::parse(AlertmanagerJson(fixture.Parts(Kind::kFiring)));
  ASSERT_EQ(json.size(), 1U);
  EXPECT_EQ(json[0]["labels"]["alertname"], "down");
  EXPECT_EQ(json[0]["labels"]["job"], "j");
  EXPECT_EQ(json[0]["startsAt"], "2023-11-14T22:13:15.250Z");
  EXPECT_FALSE(json[0].contains("endsAt")) << "it has no end while it fires";
  EXPECT_EQ(json[0]["annotations"]["action"], "isolate host1");
  json = Json::parse(AlertmanagerJson(fixture.Parts(Kind::kResolved)));
  EXPECT_EQ(json[0]["endsAt"], "2023-11-14T22:13:20.250Z");
  // The same labels, or Alertmanager takes it for another one.
  EXPECT_EQ(json[0]["labels"], Json::parse(AlertmanagerJson(fixture.Parts(Kind::kFiring)))[0]["labels"]);
}

TEST(AlertMessagesTest, ForReceiversOfOtlp) {
  Fixture fixture;
  fixture.verdict.set_state(v1::VERDICT_STATE_CONFIRMED);
  const auto record_of = [&](Kind kind) {
    const Json json = Json::parse(OtlpLogJson(fixture.Parts(kind), "0.1.0"));
    EXPECT_EQ(json["resourceLogs"][0]["resource"]["attributes"][2]["value"]["stringValue"], "j");
    return json["resourceLogs"][0]["scopeLogs"][0]["logRecords"][0];
  };
  const Json record = record_of(Kind::kFiring);
  EXPECT_EQ(record["timeUnixNano"], "1700000000250000000") << "a text: JSON's numbers are too short for it";
  EXPECT_EQ(record["severityNumber"], 17);
  EXPECT_EQ(record["severityText"], "ERROR");
  EXPECT_EQ(record["body"]["stringValue"],
            "Job j, alert down (verdict: crash, confirmed) is firing: CONFIRMED crash: rank 3");
  std::map<std::string, Json> attributes;
  for (const Json& one : record["attributes"]) attributes[one["key"]] = one["value"];
  EXPECT_EQ(attributes["c4.what"]["stringValue"], "firing");
  EXPECT_EQ(attributes["c4.number"]["intValue"], "7");
  EXPECT_EQ(attributes["c4.host"]["stringValue"], "host1");
  EXPECT_EQ(attributes["c4.rule"]["stringValue"], "down");
  EXPECT_EQ(attributes["c4.alert"]["stringValue"], "down/v-1");
  EXPECT_EQ(attributes["c4.action"]["stringValue"], "isolate host1");
  EXPECT_EQ(record_of(Kind::kResolved)["severityText"], "INFO");
  fixture.verdict.set_state(v1::VERDICT_STATE_SUSPECTED);
  EXPECT_EQ(record_of(Kind::kFiring)["severityText"], "WARN");
  const Json test = Json::parse(OtlpLogJson({.job = "j\xff", .kind = Kind::kTest}, "0.1.0"));
  EXPECT_EQ(test["resourceLogs"][0]["scopeLogs"][0]["logRecords"][0]["severityText"], "INFO");
}

TEST(AlertMessagesTest, Signatures) {
  const auto headers = WebhookHeaders(7, "0123456789abcdef", R"({"a":1})", kUnixNs);
  EXPECT_EQ(headers.at("C4-Delivery"), "7");
  EXPECT_EQ(headers.at("C4-Timestamp"), "1700000000");
  // printf '%s' '1700000000.{"a":1}' | openssl dgst -sha256 -hmac 0123456789abcdef
  EXPECT_EQ(headers.at("C4-Signature"),
            "v1=9eb18f493f8ec135d9eb2dad817c369bb4e9cbfa818657897a7437c1cd8c3a23");
  EXPECT_FALSE(WebhookHeaders(7, "", "{}", kUnixNs).contains("C4-Signature"));
}

}  // namespace
}  // namespace c4::c4d
