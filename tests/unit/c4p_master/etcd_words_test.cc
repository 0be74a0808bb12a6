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

TEST(EtcdWordsTest, ByTls) {
  const auto place = ParseEtcdPlace("etcds://etcd-1:2379,etcd-2:2379");
  ASSERT_TRUE(place.ok()) << place.status();
  EXPECT_THAT(place->endpoints, ElementsAre("https://etcd-1:2379", "https://etcd-2:2379"));
}

// The texts are those of etcd 3.4.23.
TEST(EtcdWordsTest, ErrorsSayWhatToDo) {
  EtcdPlace place;
  const auto explained = [&](int status, const std::string& body) {
    return ExplainEtcdError(place, "http://e:1", status, body);
  };
  const auto said = [](const std::string& error, int code) {
    return R"({"error":")" + error + R"(","message":")" + error + R"(","code":)" + std::to_string(code) + "}";
  };
  const absl::Status full = explained(429, said("etcdserver: mvcc: database space exceeded", 8));
  EXPECT_TRUE(absl::IsResourceExhausted(full));
  EXPECT_THAT(std::string(full.message()), HasSubstr("`etcdctl alarm disarm`"));
  const std::string nobody =
      said("etcdserver: user name is empty", 3) + "Grpc-Trailer-Content-Type: application/grpc";
  EXPECT_TRUE(absl::IsPermissionDenied(explained(400, nobody)));
  EXPECT_THAT(std::string(explained(400, nobody).message()), HasSubstr("--store-user-file"));
  place.user = "c4";
  EXPECT_TRUE(absl::IsUnauthenticated(explained(400, nobody))) << "it logs in";
  EXPECT_TRUE(absl::IsUnauthenticated(explained(401, said("etcdserver: invalid auth token", 16))));
  const absl::Status wrong =
      explained(400, said("etcdserver: authentication failed, invalid user ID or password", 3));
  EXPECT_TRUE(absl::IsPermissionDenied(wrong));
  EXPECT_THAT(std::string(wrong.message()), HasSubstr("user c4"));
  const absl::Status denied = explained(403, said("etcdserver: permission denied", 7));
  EXPECT_TRUE(absl::IsPermissionDenied(denied));
  EXPECT_THAT(std::string(denied.message()), HasSubstr("readwrite --prefix=true c4p/"));
  EXPECT_TRUE(absl::IsNotFound(explained(412, said("etcdserver: authentication is not enabled", 9))));
  EXPECT_TRUE(
      absl::IsOutOfRange(explained(400, said("etcdserver: mvcc: required revision has been compacted", 11))));
  EXPECT_TRUE(absl::IsUnavailable(explained(503, said("etcdserver: no leader", 14))));
  EXPECT_TRUE(absl::IsUnavailable(explained(502, "<html>Bad Gateway</html>"))) << "a proxy's";
  EXPECT_TRUE(absl::IsFailedPrecondition(explained(404, "Not Found")));
  EXPECT_TRUE(absl::IsFailedPrecondition(explained(200, "<html>welcome</html>")));
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
