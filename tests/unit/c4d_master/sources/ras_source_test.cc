// RAS ports that answer, answer slowly, by half, or not at all: a server of the test on loopback.
#include <arpa/inet.h>
#include <atomic>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <mutex>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>

#include "c4d_master/sources/ras_client.h"
#include "c4d_master/sources/sources.h"
#include "tests/unit/c4d_master/sources/ras_text.h"

namespace c4::c4d {
namespace {

using ::testing::HasSubstr;

bool Never() {
  return false;
}

// Takes one connection after the other, reads until the request is whole, says `reply` and closes, or keeps
// silent.
class FakeRas {
 public:
  explicit FakeRas(std::string reply, bool closes = true) : reply_(std::move(reply)), closes_(closes) {
    listener_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{
        .sin_family = AF_INET, .sin_port = 0, .sin_addr = {htonl(INADDR_LOOPBACK)}, .sin_zero = {}};
    auto* const any = reinterpret_cast<sockaddr*>(&address);
    socklen_t size = sizeof(address);
    EXPECT_EQ(bind(listener_, any, size), 0);
    EXPECT_EQ(listen(listener_, 8), 0);
    EXPECT_EQ(getsockname(listener_, any, &size), 0);
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this] { Serve(); });
  }
  ~FakeRas() {
    stopping_ = true;
    thread_.join();
    close(listener_);
  }
  FakeRas(const FakeRas&) = delete;
  FakeRas& operator=(const FakeRas&) = delete;

  service::HostPort address() const { return {"127.0.0.1", port_}; }
  void SetReply(std::string reply, bool closes = true) {
    const std::lock_guard lock(mutex_);
    reply_ = std::move(reply);
    closes_ = closes;
  }
  int asked() const { return asked_; }

 private:
  bool Ready(int fd) const {
    pollfd entry = {.fd = fd, .events = POLLIN, .revents = 0};
    while (!stopping_) {
      if (poll(&entry, 1, 20) > 0) return true;
    }
    return false;
  }
  void Serve() {
    while (Ready(listener_)) {
      const int fd = accept(listener_, nullptr, nullptr);
      std::string request;
      char bytes[256];
      while (!request.ends_with("STATUS\n") && Ready(fd)) {
        const ssize_t got = recv(fd, bytes, sizeof(bytes), 0);
        if (got <= 0) break;
        request.append(bytes, static_cast<size_t>(got));
      }
      ++asked_;
      std::string reply;
      {
        const std::lock_guard lock(mutex_);
        reply = reply_;
      }
      for (size_t sent = 0; sent < reply.size();) {
        const ssize_t more = send(fd, reply.data() + sent, reply.size() - sent, MSG_NOSIGNAL);
        if (more <= 0) break;
        sent += static_cast<size_t>(more);
      }
      if (!closes_) (void)Ready(fd);  // until the other side leaves
      close(fd);
    }
  }

  std::mutex mutex_;
  std::string reply_;
  std::atomic<bool> closes_;
  int listener_ = -1;
  uint16_t port_ = 0;
  std::atomic<int> asked_ = 0;
  std::atomic<bool> stopping_ = false;
  std::thread thread_;
};

TEST(RasClientTest, TheWholeAnswerComes) {
  const std::string reply = RasReply({RasWorld(512, 640)});
  FakeRas ras(reply);
  const absl::StatusOr<std::string> got = AskRas(ras.address(), RasRequest(3), absl::Seconds(20), Never);
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_EQ(*got, reply);
}

TEST(RasClientTest, AnAnswerThatNeverEndsIsGivenUp) {
  FakeRas ras("SERVER PROTOCOL 2\nOK\n", /*closes=*/false);
  const absl::StatusOr<std::string> got =
      AskRas(ras.address(), RasRequest(3), absl::Milliseconds(300), Never);
  EXPECT_EQ(got.status().code(), absl::StatusCode::kDeadlineExceeded) << got.status();
}

// The kernel gave the connection to a process that is stopped; the next one meets another.
TEST(RasClientTest, WhoSaysNothingAtAllIsLeftAndThePortTriedAgain) {
  FakeRas ras("", /*closes=*/false);
  absl::StatusOr<std::string> got;
  std::thread asking([&] { got = AskRas(ras.address(), RasRequest(3), absl::Seconds(60), Never); });
  while (ras.asked() == 0) std::this_thread::yield();
  absl::SleepFor(absl::Milliseconds(200));  // it has its answer of nothing
  ras.SetReply("whole");
  asking.join();
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_EQ(*got, "whole");
}

TEST(RasClientTest, AnAnswerWithoutMeasureIsGivenUp) {
  FakeRas ras(std::string(kMostRasBytes + 1, ' '));
  const absl::StatusOr<std::string> got = AskRas(ras.address(), RasRequest(3), absl::Seconds(30), Never);
  EXPECT_EQ(got.status().code(), absl::StatusCode::kResourceExhausted) << got.status();
}

TEST(RasClientTest, WhoStopsIsNotHeldUp) {
  FakeRas ras("", /*closes=*/false);
  std::atomic<bool> stop = false;
  absl::StatusOr<std::string> got;
  std::thread asking(
      [&] { got = AskRas(ras.address(), RasRequest(3), absl::Seconds(3600), [&] { return stop.load(); }); });
  while (ras.asked() == 0) std::this_thread::yield();
  stop = true;
  asking.join();
  EXPECT_EQ(got.status().code(), absl::StatusCode::kCancelled) << got.status();
}

TEST(RasClientTest, NobodyAtThePortIsSaidWithWhatToDo) {
  service::HostPort address;
  {
    const FakeRas ras("");
    address = ras.address();
  }
  const absl::StatusOr<std::string> got = AskRas(address, RasRequest(3), absl::Seconds(20), Never);
  EXPECT_EQ(got.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(got.status().message()), HasSubstr("NCCL_RAS_ADDR"));
}

// The first address says half an answer: the other one is asked, until it fails too.
TEST(RasSourceTest, WhatOneAddressCannotSayTheNextSays) {
  const std::string whole = RasReply({RasWorld(4, 640)});
  FakeRas half(whole.substr(0, whole.size() / 2));
  FakeRas right(whole);
  std::atomic<int> batches = 0;
  RasSource source({.ras = {half.address(), right.address()}}, "job", 1,
                   [&](const std::vector<v1::TelemetryBatch>& given, Now) {
                     for (const v1::TelemetryBatch& batch : given) EXPECT_EQ(batch.processes(0).job(), "job");
                     batches += static_cast<int>(given.size());
                   });
  while (batches < 2) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  right.SetReply("");
  half.SetReply(whole);
  const int before = batches;
  while (batches < before + 4) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  source.Stop();
  const int at_end = batches;
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_EQ(batches, at_end);
}

}  // namespace
}  // namespace c4::c4d
