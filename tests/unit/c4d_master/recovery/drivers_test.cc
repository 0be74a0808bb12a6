// The drivers over real programs, servers and sockets, and the thread that runs them.
#include <chrono>
#include <gmock/gmock.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <thread>
#include <unistd.h>

#include "c4d_master/recovery/executor.h"
#include "tests/support/webhook.h"
#include "tests/unit/service/temporary_directory.h"

namespace c4::c4d::recovery {
namespace {

using std::chrono::steady_clock;
using ::testing::HasSubstr;

Command Isolate() {
  return {.id = 7, .kind = Command::Kind::kIsolate, .incident = 1, .node = "n1", .reason = "verdict v"};
}

DriverConfig Exec(const std::string& script) {
  DriverConfig config;
  config.kind = DriverConfig::Kind::kExec;
  config.command = {"/bin/sh", "-c", script};
  return config;
}

TEST(DriversTest, AProgramIsAskedAndAnswers) {
  const test::TemporaryDirectory directory;
  const std::string asked = directory.File("asked");
  auto driver = MakeDriver(Exec("cat > " + asked + R"(; echo '{"outcome": "done"}')"), "j");
  EXPECT_EQ(driver->Run(Isolate(), absl::Seconds(10), {}).outcome, Event::Outcome::kDone);
  EXPECT_EQ(test::ReadWhole(asked), R"({"verb":"isolate","job":"j","command":7,"attempt":1,"incident":1,)"
                                    R"("reason":"verdict v","node":"n1"})"
                                    "\n");
  driver = MakeDriver(Exec(R"(echo '{"outcome": "refused", "text": "no such node"}')"), "j");
  EXPECT_EQ(driver->Run(Isolate(), absl::Seconds(10), {}).text, "no such node");
  // Answers half, fails, hangs.
  EXPECT_EQ(MakeDriver(Exec(R"(echo '{"outcome": "do')"), "j")->Run(Isolate(), absl::Seconds(10), {}).outcome,
            Event::Outcome::kUnknown);
  EXPECT_EQ(MakeDriver(Exec("exit 3"), "j")->Run(Isolate(), absl::Seconds(10), {}).outcome,
            Event::Outcome::kUnknown);
  EXPECT_EQ(MakeDriver(Exec("sleep 60"), "j")->Run(Isolate(), absl::Milliseconds(200), {}).outcome,
            Event::Outcome::kUnknown);
  const auto nodes = MakeDriver(Exec(R"(echo '{"nodes": [{"name": "a", "state": "free"}]}')"), "j")
                         ->Look(absl::Seconds(10), {});
  ASSERT_TRUE(nodes.ok()) << nodes.status();
  EXPECT_EQ(nodes->nodes.at(0).node, "a");
}

TEST(DriversTest, AWebhookRefusesOrIsAway) {
  DriverConfig config;
  config.kind = DriverConfig::Kind::kWebhook;
  config.webhook.allow_private = true;
  const test::Webhook refusing(403);
  config.webhook.url = refusing.Url();
  EXPECT_EQ(MakeDriver(config, "j")->Run(Isolate(), absl::Seconds(5), {}).outcome, Event::Outcome::kRefused);
  test::Webhook busy(503);
  config.webhook.url = busy.Url();
  config.webhook.secret = "0123456789abcdef";
  EXPECT_EQ(MakeDriver(config, "j")->Run(Isolate(), absl::Seconds(5), {}).outcome, Event::Outcome::kUnknown);
  EXPECT_EQ(busy.deliveries().at(0).headers.at("C4-Delivery"), "7");
  EXPECT_TRUE(busy.deliveries().at(0).headers.contains("C4-Signature"));
}

TEST(DriversTest, ASocketThatIsNotThereOrSaysNothing) {
  const test::TemporaryDirectory directory;
  DriverConfig config;
  config.kind = DriverConfig::Kind::kLocal;
  config.socket = directory.File("s");
  EXPECT_THAT(MakeDriver(config, "j")->Run(Isolate(), absl::Seconds(5), {}).text, HasSubstr("cannot reach"));
  const int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  config.socket.copy(address.sun_path, sizeof address.sun_path - 1);
  ASSERT_EQ(bind(listener, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  ASSERT_EQ(listen(listener, 4), 0);
  EXPECT_THAT(MakeDriver(config, "j")->Run(Isolate(), absl::Milliseconds(200), {}).text,
              HasSubstr("in time"));
  close(listener);
}

TEST(ExecutorTest, WhatIsNoLongerWantedIsCutOff) {
  Executor executor;
  executor.SetDriver(MakeDriver(
      Exec(R"(read line; case $line in *'"command":7,'*) sleep 60;; esac; echo '{"outcome": "done"}')"),
      "j"));
  const auto begin = steady_clock::now();
  executor.Run(Isolate(), absl::Seconds(60));
  Command next = Isolate();
  next.id = 8;
  executor.Run(next, absl::Seconds(60));
  std::vector<DriverResult> results;
  while (steady_clock::now() - begin < std::chrono::seconds(20)) {
    for (DriverResult& result : executor.Take()) results.push_back(std::move(result));
    if (!results.empty() && results.back().command == 8) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  ASSERT_FALSE(results.empty());
  EXPECT_EQ(results.back().command, 8U);
  EXPECT_EQ(results.back().reply.outcome, Event::Outcome::kDone);
  EXPECT_LT(steady_clock::now() - begin, std::chrono::seconds(20));
}

}  // namespace
}  // namespace c4::c4d::recovery
