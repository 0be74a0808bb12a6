#include "service/log.h"

#include <gmock/gmock.h>
#include <thread>

#include <nlohmann/json.hpp>

#include "c4/v1/c4p.pb.h"
#include "service/config.h"
#include "service/grpc_log.h"
#include "tests/unit/service/temporary_directory.h"

namespace c4::service {
namespace {

using testing::HasSubstr;

std::vector<std::string> Lines(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

TEST(Log, JsonLinesParseWhateverTheyHold) {
  const std::string message = "a \"quoted\" \\ line\nwith \t control \x01 and \xff bytes";
  const auto json = nlohmann::json::parse(JsonLogLine("t", LogLevel::kWarning, "c4a", "c4-scan", message));
  EXPECT_EQ(json["level"], "warning");
  EXPECT_EQ(json["program"], "c4a");
  EXPECT_EQ(json["thread"], "c4-scan");
  EXPECT_EQ(json["message"], "a \"quoted\" \\ line\nwith \t control \x01 and ? bytes");
}

// A peer may send as many as it likes.
TEST(Log, TextsOfPeersThatAreNoUtf8AreNoWarnings) {
  RouteGrpcLog();
  testing::internal::CaptureStderr();
  v1::Hop hop;
  EXPECT_FALSE(hop.ParseFromString("\x1a\x02\xff\xfe"));
  FlushLog();
  EXPECT_THAT(testing::internal::GetCapturedStderr(), testing::IsEmpty());
}

TEST(Log, FileLevelAndFormat) {
  const test::TemporaryDirectory directory;
  const std::string file = directory.File("log");
  ASSERT_TRUE(InitLog({.level = "warning", .format = "text", .file = file}, "c4a").ok());
  LogInfo("not to be seen");
  LogWarning("first ", 1, "\nsecond ", std::string_view("2"));
  ASSERT_TRUE(InitLog({.level = "debug", .format = "json", .file = file}, "c4a").ok());
  LogDebug("now seen");
  FlushLog();
  const std::vector<std::string> lines = Lines(test::ReadWhole(file));
  ASSERT_EQ(lines.size(), 2u);  // appended, and no line forged by a line end in the text
  EXPECT_THAT(lines[0], HasSubstr(" warning c4a: first 1 second 2"));
  EXPECT_EQ(nlohmann::json::parse(lines[1])["message"], "now seen");
}

TEST(Log, WrongOptionsAreRefused) {
  EXPECT_FALSE(InitLog({.level = "loud"}, "x").ok());
  EXPECT_FALSE(InitLog({.format = "xml"}, "x").ok());
  const absl::Status status = InitLog({.file = "/proc/nowhere/log"}, "x");
  EXPECT_THAT(std::string(status.message()), HasSubstr("/proc/nowhere/log"));
}

TEST(Log, LinesOfManyThreadsAreNotTorn) {
  const test::TemporaryDirectory directory;
  const std::string file = directory.File("log");
  ASSERT_TRUE(InitLog({.format = "json", .file = file}, "c4a").ok());
  std::vector<std::thread> threads;
  threads.reserve(4);
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([t] {
      for (int i = 0; i < 200; ++i)
        LogInfo(std::string(static_cast<size_t>(50 + i), static_cast<char>('a' + t)));
    });
  }
  for (std::thread& thread : threads) thread.join();
  FlushLog();
  const std::vector<std::string> lines = Lines(test::ReadWhole(file));
  EXPECT_EQ(lines.size(), 800u);
  for (const std::string& line : lines) EXPECT_TRUE(nlohmann::json::accept(line)) << line;
}

// A full disk must not stop a daemon.
TEST(Log, AFullDiskIsBorne) {
  ASSERT_TRUE(InitLog({.file = "/dev/full"}, "c4a").ok());
  for (int i = 0; i < 10; ++i) LogInfo("nobody will read this");
  ASSERT_TRUE(InitLog({}, "c4a").ok());
}

}  // namespace
}  // namespace c4::service
