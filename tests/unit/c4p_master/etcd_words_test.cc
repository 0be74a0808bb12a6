// What a path master says to etcd and understands of it; the real one has its own test
// (tests/service/path_leader_test.cc).
#include "c4p_master/state/etcd_words.h"

#include <gmock/gmock.h>

#include "absl/strings/escaping.h"

namespace c4::c4p {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::string Base64(const std::string& text) {
  return absl::Base64Escape(text);
}

TEST(EtcdWordsTest, PlacesAreReadAndOthersRefused) {
  const auto place = ParseEtcdPlace("etcd://10.0.0.1:2379,etcd-2:2380/cluster7");
  ASSERT_TRUE(place.ok()) << place.status();
  EXPECT_THAT(place->endpoints, ElementsAre("http://10.0.0.1:2379", "http://etcd-2:2380"));
  EXPECT_EQ(place->prefix, "cluster7/");
  EXPECT_EQ(ParseEtcdPlace("etcd://[::1]:2379")->prefix, "c4p/");
  for (const char* const text :
       {"etcd://", "etcd://host", "etcd://host:0", "etcd://host:99999", "etcd://:2379", "etcd://a:1,,b:2",
        "etcd://user:secret@host:2379", "http://host:2379"}) {
    const auto refused = ParseEtcdPlace(text);
    ASSERT_FALSE(refused.ok()) << text;
    EXPECT_THAT(std::string(refused.status().message()), HasSubstr("etcd://10.0.0.1:2379"));
  }
}

TEST(EtcdWordsTest, ALeaseIsWrittenOnlyOverTheOneThatWasSeen) {
  Leadership::Step step;
  step.write = true;
  step.record = {"me", 12, 3};
  step.revision = 44;
  const std::string renewal = EtcdWriteLease("p/", step);
  EXPECT_THAT(renewal, HasSubstr(R"("modRevision":"44")"));
  EXPECT_THAT(renewal, HasSubstr(Base64("p/leader")));
  EXPECT_THAT(renewal, testing::Not(HasSubstr(Base64("p/epoch"))));
  step.takes = true;
  EXPECT_THAT(EtcdWriteLease("p/", step), HasSubstr(Base64("p/epoch"))) << "the fence moves with the lease";
  EXPECT_THAT(EtcdWrite("p/", 12, {{"connection/a", "x"}, {"host/b", std::nullopt}}),
              testing::AllOf(HasSubstr(Base64("p/epoch")), HasSubstr(Base64("12")),
                             HasSubstr(Base64("p/state/connection/a")), HasSubstr("requestDeleteRange")));
}

TEST(EtcdWordsTest, AnswersAreRead) {
  EXPECT_EQ(ReadEtcdLease(R"({"header":{"revision":"9"}})")->revision, 0) << "there is none yet";
  const std::string record = R"({"header":{},"kvs":[{"key":")" + Base64("p/leader") + R"(","value":")" +
                             Base64(R"({"holder":"other","epoch":"77","renewals":"5"})") +
                             R"(","mod_revision":"31"}]})";
  const auto seen = ReadEtcdLease(record);
  ASSERT_TRUE(seen.ok()) << seen.status();
  EXPECT_EQ(seen->record, (LeaseRecord{"other", 77, 5}));
  EXPECT_EQ(seen->revision, 31);
  EXPECT_FALSE(ReadEtcdWritten(R"({"header":{"revision":"32"}})")->written);
  EXPECT_TRUE(ReadEtcdWritten(R"({"header":{"revision":"32"},"succeeded":true})")->written);
  EXPECT_EQ(ReadEtcdWritten(R"({"header":{"revision":"32"},"succeeded":true})")->revision, 32);

  const std::string zero("a\0b", 3);
  const auto page = ReadEtcdPage("p/", R"({"header":{},"more":true,"kvs":[{"key":")" + Base64("p/state/k") +
                                           R"(","value":")" + Base64(zero) + R"("}]})");
  ASSERT_TRUE(page.ok()) << page.status();
  EXPECT_THAT(page->records, ElementsAre(std::pair<std::string, std::string>("k", zero)));
  EXPECT_EQ(page->next, std::string("p/state/k\0", 10));
  EXPECT_EQ(ReadEtcdPage("p/", R"({"header":{}})")->next, "");
  EXPECT_EQ(ReadEtcdError(R"({"error":"etcdserver: no leader","code":14})"), "etcdserver: no leader");
}

TEST(EtcdWordsTest, WhatIsNoAnswerIsSaid) {
  for (const char* const text :
       {"", "[]", "<html>", R"({"kvs":[]})", R"({"header":{},"kvs":[{"key":"cC9zdGF0ZS9r","value":"!"}]})",
        R"({"header":{},"kvs":[{"key":"ZWxzZXdoZXJl","value":""}]})"}) {
    EXPECT_FALSE(ReadEtcdPage("p/", text).ok()) << text;
  }
  EXPECT_FALSE(ReadEtcdWritten(R"({"header":{},"succeeded":true})").ok()) << "a write without a revision";
  EXPECT_EQ(ReadEtcdLease(R"({"header":{},"kvs":[{"value":"AAAA"}]})").status().code(),
            absl::StatusCode::kDataLoss)
      << "no lease";
}

}  // namespace
}  // namespace c4::c4p
