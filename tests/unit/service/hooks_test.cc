// What hooks are made of: a POST to a real server of this process, and real commands.
#include <atomic>
#include <chrono>
#include <gmock/gmock.h>
#include <httplib.h>
#include <thread>

#include "service/http_post.h"
#include "service/run_command.h"
#include "tests/support/webhook.h"
#include "tests/unit/service/temporary_directory.h"

namespace c4::service {
namespace {

using std::chrono::steady_clock;
using test::Webhook;
using testing::AllOf;
using testing::HasSubstr;

TEST(HttpPost, DeliversJson) {
  Webhook webhook(204);
  EXPECT_TRUE(HttpPostJson(webhook.Url(), R"({"a":1})", absl::Seconds(5)).ok());
  ASSERT_EQ(webhook.deliveries().size(), 1);
  EXPECT_EQ(webhook.deliveries().front().body, R"({"a":1})");
  EXPECT_EQ(webhook.deliveries().front().type, "application/json");
}

TEST(HttpPost, TellsWhatMayBeTriedAgain) {
  const Webhook busy(503);
  EXPECT_TRUE(absl::IsUnavailable(HttpPostJson(busy.Url(), "{}", absl::Seconds(5))));
  const Webhook limited(429);
  EXPECT_TRUE(absl::IsUnavailable(HttpPostJson(limited.Url(), "{}", absl::Seconds(5))));
  const Webhook refusing(403);
  const absl::Status refused = HttpPostJson(refusing.Url(), "{}", absl::Seconds(5));
  EXPECT_TRUE(absl::IsFailedPrecondition(refused));
  EXPECT_THAT(std::string(refused.message()), AllOf(HasSubstr(refusing.Url()), HasSubstr("403")));
  // Moved elsewhere is not delivered.
  const Webhook moved(302);
  EXPECT_FALSE(HttpPostJson(moved.Url(), "{}", absl::Seconds(5)).ok());
  EXPECT_TRUE(absl::IsUnavailable(HttpPostJson("http://127.0.0.1:1/", "{}", absl::Seconds(1))));
}

// Sends a byte of its answer now and then, for ever.
TEST(HttpPost, AReceiverThatDripsIsLeft) {
  httplib::Server server;
  std::atomic<bool> ended = false;
  server.Post("/hook", [&ended](const httplib::Request&, httplib::Response& response) {
    response.set_chunked_content_provider("text/plain", [&ended](size_t, httplib::DataSink& sink) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      return !ended && sink.write("x", 1);
    });
  });
  const int port = server.bind_to_any_port("127.0.0.1");
  std::thread thread([&] { server.listen_after_bind(); });
  const std::string url = "http://127.0.0.1:" + std::to_string(port) + "/hook";
  const auto begin = steady_clock::now();
  EXPECT_TRUE(absl::IsUnavailable(HttpPostJson(url, "{}", absl::Milliseconds(200))));
  EXPECT_TRUE(absl::IsCancelled(HttpPostJson(url, "{}", absl::Seconds(60), [] { return true; })));
  EXPECT_LT(steady_clock::now() - begin, std::chrono::seconds(5));
  ended = true;
  server.stop();
  thread.join();
}

TEST(HttpPost, Addresses) {
  for (const char* good :
       {"http://h", "http://h/", "http://h:9000/a/b?c=d", "http://[::1]:80/x", "http://[::1]/"}) {
    EXPECT_TRUE(CheckHttpUrl(good).ok()) << good << ": " << CheckHttpUrl(good);
  }
  for (const char* bad :
       {"", "h", "https://h/", "ftp://h/", "http://", "http:///x", "http://h:x/", "http://h:0/",
        "http://h/a b", "http://h/\r\nX: y", "http://user@h/", "http://h?x"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(CheckHttpUrl(bad))) << bad;
  }
}

absl::Status Shell(const std::string& script, const std::string& input,
                   absl::Duration timeout = absl::Seconds(20), const std::function<bool()>& stop = {}) {
  return RunCommand({"/bin/sh", "-c", script, "sh", "two words"}, input, timeout, stop);
}

TEST(RunCommand, GivesWordsAndInput) {
  const test::TemporaryDirectory directory;
  // More than a pipe holds.
  const std::string input(300'000, 'x');
  const std::string file = directory.File("out");
  ASSERT_TRUE(Shell("{ echo \"$1\"; cat; } > " + file, input).ok());
  EXPECT_EQ(test::ReadWhole(file), "two words\n" + input);
  // One that does not read it.
  EXPECT_TRUE(Shell("exit 0", input).ok());
}

TEST(RunCommand, TellsHowItEnded) {
  EXPECT_THAT(std::string(Shell("echo too bad >&2; exit 3", "").message()),
              AllOf(HasSubstr("/bin/sh ended with 3"), HasSubstr("too bad")));
  EXPECT_THAT(std::string(Shell("kill -9 $$", "").message()), HasSubstr("signal 9"));
  EXPECT_THAT(std::string(RunCommand({"/no/such/program"}, "", absl::Seconds(5), {}).message()),
              HasSubstr("cannot start /no/such/program"));
  EXPECT_FALSE(RunCommand({}, "", absl::Seconds(5), {}).ok());
}

TEST(RunCommand, IsKilledWithItsChildrenWhenTheTimeIsUp) {
  const test::TemporaryDirectory directory;
  const std::string alive = directory.File("alive");
  const auto begin = steady_clock::now();
  // TERM would not be enough, and a child holds on.
  const absl::Status status =
      Shell("trap '' TERM; (sleep 0.5; echo x > " + alive + ") & sleep 60", "", absl::Milliseconds(100));
  EXPECT_TRUE(absl::IsDeadlineExceeded(status)) << status;
  EXPECT_LT(steady_clock::now() - begin, std::chrono::seconds(10));
  const absl::Status stopped = Shell("sleep 60", "", absl::Seconds(60), [] { return true; });
  EXPECT_TRUE(absl::IsCancelled(stopped)) << stopped;
  std::this_thread::sleep_for(std::chrono::milliseconds(700) - (steady_clock::now() - begin));
  EXPECT_FALSE(std::filesystem::exists(alive)) << "a child lives on";
}

}  // namespace
}  // namespace c4::service
