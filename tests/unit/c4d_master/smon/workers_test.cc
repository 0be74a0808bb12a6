// SMon's threads: what is sent, that it can be cut off, and that an analysis survives the end.
#include <chrono>
#include <thread>

#include "c4d_master/job_state.h"
#include "c4d_master/smon/smon_workers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/service/temporary_directory.h"

namespace c4::c4d {
namespace {

using std::chrono::steady_clock;
using ::testing::HasSubstr;

Delivery Command(Notification::Kind kind, const std::string& script) {
  Delivery delivery;
  delivery.notification.kind = kind;
  delivery.notification.number = 7;
  delivery.rule.command = {"/bin/sh", "-c", script};
  delivery.rule.timeout_ns = 20 * kSecondNs;
  delivery.body = R"({"a":1})";
  return delivery;
}

std::vector<Delivered> Await(SmonWorkers* workers) {
  for (int i = 0; i < 1000; ++i) {
    std::vector<Delivered> results = workers->TakeDelivered();
    if (!results.empty()) return results;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return {};
}

TEST(SmonWorkersTest, ACommandGetsTheNotification) {
  const test::TemporaryDirectory directory;
  SmonWorkers workers;
  workers.Deliver(Command(Notification::Kind::kFiring, "cat > " + directory.File("told")));
  const std::vector<Delivered> results = Await(&workers);
  ASSERT_EQ(results.size(), 1U);
  EXPECT_EQ(results[0].notification.number, 7U);
  EXPECT_TRUE(results[0].outcome.ok()) << results[0].outcome;
  EXPECT_EQ(test::ReadWhole(directory.File("told")), "{\"a\":1}\n");
}

TEST(SmonWorkersTest, WhatFailsIsTriedAgainButATestIsNot) {
  const test::TemporaryDirectory directory;
  SmonWorkers workers(absl::Milliseconds(300));
  // Fails the first time, and counts.
  const std::string script = "echo x >> " + directory.File("count") + "; [ $(wc -l < " +
                             directory.File("count") + ") -ge 2 ] || { echo not yet >&2; exit 1; }";
  workers.Deliver(Command(Notification::Kind::kTest, script));
  std::vector<Delivered> results = Await(&workers);
  ASSERT_EQ(results.size(), 1U);
  EXPECT_THAT(std::string(results[0].outcome.message()), HasSubstr("not yet"));
  directory.Write("count", "");
  const auto begin = steady_clock::now();
  workers.Deliver(Command(Notification::Kind::kFiring, script));
  results = Await(&workers);
  ASSERT_EQ(results.size(), 1U);
  EXPECT_TRUE(results[0].outcome.ok()) << results[0].outcome;
  EXPECT_GE(steady_clock::now() - begin, std::chrono::milliseconds(300));
}

TEST(SmonWorkersTest, ARuleThatHangsHoldsUpNoOther) {
  SmonWorkers workers;
  workers.Deliver(Command(Notification::Kind::kFiring, "sleep 20"));
  Delivery other = Command(Notification::Kind::kFiring, "true");
  other.notification.rule = 1;
  other.notification.number = 8;
  workers.Deliver(other);
  const std::vector<Delivered> results = Await(&workers);
  ASSERT_EQ(results.size(), 1U);
  EXPECT_EQ(results[0].notification.number, 8U);
  EXPECT_TRUE(results[0].outcome.ok()) << results[0].outcome;
}

TEST(SmonWorkersTest, StopCutsNotificationsOff) {
  SmonWorkers workers;
  const auto begin = steady_clock::now();
  workers.Deliver(Command(Notification::Kind::kFiring, "sleep 20"));
  workers.Deliver(Command(Notification::Kind::kFiring, "sleep 20"));
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  workers.Stop();
  EXPECT_LT(steady_clock::now() - begin, std::chrono::seconds(5));
  EXPECT_TRUE(workers.TakeDelivered().empty()) << "it counts as given up";
}

TEST(SmonWorkersTest, AnAnalysisIsStillThereAfterStop) {
  SmonWorkers workers;
  workers.Analyse(3, ProfiledJob());
  workers.Stop();
  const std::vector<Analysed> results = workers.TakeAnalysed();
  ASSERT_EQ(results.size(), 1U);
  EXPECT_EQ(results[0].session, 3U);
  EXPECT_FALSE(results[0].report.ok()) << "nothing was recorded";
}

}  // namespace
}  // namespace c4::c4d
