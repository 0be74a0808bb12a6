// Keys, tokens, the identity in a certificate's URI, and which files are taken for secrets.
#include "service/token.h"

#include <gmock/gmock.h>
#include <sys/stat.h>
#include <unistd.h>

#include "service/clock.h"
#include "service/reloaded_file.h"
#include "tests/unit/service/temporary_directory.h"

namespace c4::service {
namespace {

using testing::HasSubstr;

constexpr int64_t kNow = 1'800'000'000;

TokenKeys Keys(int count = 1) {
  std::string text;
  for (int i = 0; i < count; ++i) text += *NewKeyLine() + "\n";
  const auto keys = ParseKeys(text, "test");
  EXPECT_TRUE(keys.ok()) << keys.status();
  return *keys;
}

TokenClaims Agent() {
  return {.identity = {.role = Role::kAgent, .host = "node7", .job = "j \"1\"", .uid = 1000},
          .not_before_s = kNow,
          .expires_s = kNow + 600};
}

std::string Why(const absl::StatusOr<TokenClaims>& verified) {
  return std::string(verified.status().message());
}

TEST(Token, SaysWhoForHowLong) {
  const TokenKeys keys = Keys();
  const auto token = IssueToken(keys[0], Agent());
  ASSERT_TRUE(token.ok()) << token.status();
  const auto claims = VerifyToken(keys, *token, kNow + 1);
  ASSERT_TRUE(claims.ok()) << claims.status();
  EXPECT_EQ(claims->identity, Agent().identity);
  EXPECT_EQ(claims->key_id, keys[0].id);
}

TEST(Token, ClocksMayDifferByTheSkewAndNoMore) {
  const TokenKeys keys = Keys();
  const std::string token = *IssueToken(keys[0], Agent());
  EXPECT_TRUE(VerifyToken(keys, token, kNow - kClockSkewS).ok());
  EXPECT_THAT(Why(VerifyToken(keys, token, kNow - kClockSkewS - 1)), HasSubstr("not valid yet"));
  EXPECT_TRUE(VerifyToken(keys, token, kNow + 600 + kClockSkewS - 1).ok());
  EXPECT_THAT(Why(VerifyToken(keys, token, kNow + 600 + kClockSkewS)), HasSubstr("expired"));
}

// Every character of it counts.
TEST(Token, AChangedTokenIsRefused) {
  const TokenKeys keys = Keys();
  const std::string token = *IssueToken(keys[0], Agent());
  for (size_t at = 0; at < token.size(); ++at) {
    std::string changed = token;
    changed[at] = changed[at] == 'A' ? 'B' : 'A';
    EXPECT_FALSE(VerifyToken(keys, changed, kNow).ok()) << at;
  }
  for (const size_t length : {size_t{0}, size_t{4}, size_t{5}, token.size() / 2, token.size() - 2}) {
    EXPECT_FALSE(VerifyToken(keys, token.substr(0, length), kNow).ok()) << length;
  }
  EXPECT_FALSE(VerifyToken(keys, token + ".", kNow).ok());
  EXPECT_FALSE(VerifyToken(keys, std::string(100000, 'c'), kNow).ok());
}

TEST(Token, OfAnotherKeyOrWithItsNameIsRefused) {
  const TokenKeys ours = Keys();
  TokenKeys theirs = Keys();
  EXPECT_THAT(Why(VerifyToken(ours, *IssueToken(theirs[0], Agent()), kNow)),
              HasSubstr("no key that is known here"));
  theirs[0].id = ours[0].id;
  EXPECT_THAT(Why(VerifyToken(ours, *IssueToken(theirs[0], Agent()), kNow)),
              HasSubstr("no key that is known here"));
}

TEST(Token, KeysAreChangedWithoutAGap) {
  const TokenKeys keys = Keys(2);  // the new one before the old one
  EXPECT_NE(keys[0].id, keys[1].id);
  EXPECT_TRUE(VerifyToken(keys, *IssueToken(keys[1], Agent()), kNow).ok());
  EXPECT_FALSE(VerifyToken({keys[0]}, *IssueToken(keys[1], Agent()), kNow).ok());
}

TEST(Token, LivesNeitherForEverNorBackwards) {
  const TokenKeys keys = Keys();
  TokenClaims claims = Agent();
  claims.expires_s = claims.not_before_s + kLongestTokenS + 1;
  EXPECT_FALSE(IssueToken(keys[0], claims).ok());
  claims.expires_s = claims.not_before_s;
  EXPECT_FALSE(IssueToken(keys[0], claims).ok());
  claims = Agent();
  claims.identity.job = "not\xff utf8";
  EXPECT_FALSE(IssueToken(keys[0], claims).ok());
}

TEST(Keys, OnlyWholeLinesOfKeys) {
  EXPECT_FALSE(ParseKeys("", "f").ok());
  EXPECT_FALSE(ParseKeys("\n\n", "f").ok());
  EXPECT_FALSE(ParseKeys("hunter2\n", "f").ok());
  EXPECT_FALSE(ParseKeys("c4k1.00", "f").ok());
  std::string line = *NewKeyLine();
  EXPECT_TRUE(ParseKeys(line + "\r\n\n  " + line, "f").ok());
  line.back() = 'x';
  EXPECT_FALSE(ParseKeys(line, "f").ok());
}

TEST(SecretFile, OthersMustNotReachIt) {
  const test::TemporaryDirectory directory;
  const std::string path = directory.Write("key", "secret");
  for (const mode_t mode : {0644, 0640, 0604, 0620, 0660}) {
    ASSERT_EQ(chmod(path.c_str(), mode), 0);
    EXPECT_THAT(std::string(ReadSecretFile(path, 100).status().message()), HasSubstr("chmod 600 " + path))
        << mode;
  }
  for (const mode_t mode : {0600, 0400}) {
    ASSERT_EQ(chmod(path.c_str(), mode), 0);
    EXPECT_EQ(*ReadSecretFile(path, 100), "secret");
  }
  EXPECT_FALSE(ReadSecretFile(path, 5).ok());
  EXPECT_FALSE(ReadSecretFile(directory.path(), 100).ok());
  EXPECT_FALSE(ReadSecretFileOf(path, 100, static_cast<int64_t>(geteuid()) + 1).ok());
  ASSERT_EQ(symlink(path.c_str(), directory.File("link").c_str()), 0);
  EXPECT_FALSE(ReadSecretFileOf(directory.File("link"), 100, geteuid()).ok());
  ASSERT_EQ(mkfifo(directory.File("fifo").c_str(), 0600), 0);
  EXPECT_FALSE(ReadSecretFile(directory.File("fifo"), 100).ok());
}

TEST(SecretFile, OfAnotherUserIsRefused) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can give a file away";
  const test::TemporaryDirectory directory;
  const std::string path = directory.Write("key", "secret");
  ASSERT_EQ(chmod(path.c_str(), 0600), 0);
  ASSERT_EQ(chown(path.c_str(), 12345, 12345), 0);
  EXPECT_THAT(std::string(ReadSecretFile(path, 100).status().message()), HasSubstr("uid 12345"));
  EXPECT_EQ(*ReadSecretFileOf(path, 100, 12345), "secret");
}

TEST(ReloadedFile, TakesWhatIsPutInItsPlaceAndKeepsTheGood) {
  const test::TemporaryDirectory directory;
  const std::string path = directory.Write("value", "one");
  const auto read = [](const std::string& at) -> absl::StatusOr<std::string> {
    std::string text = test::ReadWhole(at);
    if (text == "bad") return absl::InvalidArgumentError("bad");
    return text;
  };
  const auto file = ReloadedFile<std::string>::Open(path, read);
  ASSERT_TRUE(file.ok());
  EXPECT_EQ(*(*file)->Get(), "one");
  const auto becomes = [&](const std::string& wanted) {
    const int64_t until_ns = SystemClock().MonotonicNs() + 10'000'000'000;
    while (*(*file)->Get() != wanted && SystemClock().MonotonicNs() < until_ns) usleep(50'000);
    return *(*file)->Get();
  };
  directory.Write("next", "two");
  ASSERT_EQ(rename(directory.File("next").c_str(), path.c_str()), 0);
  EXPECT_EQ(becomes("two"), "two");
  directory.Write("value", "bad");
  usleep(1'100'000);
  EXPECT_EQ(*(*file)->Get(), "two");
  directory.Write("value", "three");
  EXPECT_EQ(becomes("three"), "three");
}

TEST(IdentityUri, ThereAndBack) {
  const Identity identities[] = {
      {.role = Role::kAgent, .host = "node7.example", .known_by = KnownBy::kCertificate},
      {.role = Role::kJob, .job = "a/b c%", .known_by = KnownBy::kCertificate},
      {.role = Role::kJobMaster, .job = "j", .known_by = KnownBy::kCertificate},
      {.role = Role::kPathMaster, .known_by = KnownBy::kCertificate},
      {.role = Role::kOperator, .name = "ann", .known_by = KnownBy::kCertificate},
      {.role = Role::kReader, .known_by = KnownBy::kCertificate}};
  for (const Identity& identity : identities) {
    const auto read = IdentityFromUri(IdentityUri(identity));
    ASSERT_TRUE(read.ok() && read->has_value()) << IdentityUri(identity) << read.status();
    EXPECT_EQ(**read, identity);
  }
  EXPECT_EQ(IdentityUri(identities[1]), "c4://role/job/a%2Fb%20c%25");
}

TEST(IdentityUri, MalformedOnesNameNobody) {
  EXPECT_FALSE(IdentityFromUri("spiffe://cluster/agent")->has_value());
  for (const char* uri :
       {"c4://", "c4://role/", "c4://role/root", "c4://role/agent", "c4://role/agent/", "c4://role/job",
        "c4://role/agent/a/b", "c4://role/agent/%2", "c4://role/agent/%zz", "c4://role/path-master/x",
        "c4://two", "c4://role/Agent/a", "c4://role/operator/a b"}) {
    EXPECT_FALSE(IdentityFromUri(uri).ok()) << uri;
  }
}

}  // namespace
}  // namespace c4::service
