// Order within streams, between them by events, and who runs what: with drivers that only note that they ran.
#include "ccl/engine/host/stream.h"

#include <atomic>
#include <chrono>
#include <gtest/gtest.h>
#include <random>
#include <thread>

#include "ccl/include/c4/stream.h"

namespace c4::host {
namespace {

// Finishes what it was given when it is driven.
class NotingDriver : public Driver {
 public:
  explicit NotingDriver(Stream* stream) : stream_(stream) {}

  void Take(uint64_t ticket) { tickets_.push_back(ticket); }
  bool TryDrive(const std::function<bool()>& enough) override {
    if (busy) return false;
    while (!enough() && !tickets_.empty() && stream_->IsTurn(tickets_.front())) {
      ++driven;
      const uint64_t ticket = tickets_.front();
      tickets_.pop_front();
      stream_->Finish(ticket, Ok());
    }
    return true;
  }

  std::atomic<bool> busy{false};
  int driven = 0;

 private:
  Stream* stream_;
  std::deque<uint64_t> tickets_;
};

TEST(Stream, WhoWaitsRunsWhatNobodyElseDoes) {
  const auto stream = std::make_shared<Stream>(1);
  const auto driver = std::make_shared<NotingDriver>(stream.get());
  for (int i = 0; i < 3; ++i) driver->Take(stream->TakeTicket(driver));
  EXPECT_TRUE(stream->Synchronize().ok());
  EXPECT_EQ(driver->driven, 3);
  EXPECT_TRUE(stream->Synchronize().ok());  // of nothing
}

TEST(Stream, WaitsForAnotherThreadThatRunsItAlready) {
  const auto stream = std::make_shared<Stream>(1);
  const auto driver = std::make_shared<NotingDriver>(stream.get());
  driver->busy = true;
  const uint64_t ticket = stream->TakeTicket(driver);
  std::thread other([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    stream->Finish(ticket, Fail(ncclRemoteError, "gone"));
  });
  const Result result = stream->Synchronize();
  EXPECT_EQ(result.code(), ncclRemoteError);
  EXPECT_EQ(driver->driven, 0);
  other.join();
  EXPECT_TRUE(stream->Synchronize().ok()) << "a failure is told once";
}

TEST(Stream, ADriverThatIsGoneHoldsNobodyUp) {
  const auto stream = std::make_shared<Stream>(1);
  auto driver = std::make_shared<NotingDriver>(stream.get());
  const uint64_t ticket = stream->TakeTicket(driver);
  driver.reset();
  std::thread other([&] { stream->Finish(ticket, Ok()); });
  EXPECT_TRUE(stream->Synchronize().ok());
  other.join();
}

TEST(Stream, TicketsThatEndEarlyDoNotGoBeforeTheirTurn) {
  const auto stream = std::make_shared<Stream>(1);
  const uint64_t first = stream->TakeTicket({});
  const uint64_t second = stream->TakeTicket({});
  const uint64_t third = stream->TakeTicket({});
  stream->Finish(second, Ok());
  EXPECT_FALSE(stream->IsOver(second));
  EXPECT_FALSE(stream->IsTurn(third));
  stream->Finish(first, Ok());
  EXPECT_TRUE(stream->IsOver(second));
  EXPECT_TRUE(stream->IsTurn(third));
  EXPECT_FALSE(stream->WaitForTurn(third + 1, 1));
}

TEST(Stream, WhatComesAfterAWaitWaitsForTheEvent) {
  const auto one = std::make_shared<Stream>(1);
  const auto two = std::make_shared<Stream>(2);
  const uint64_t awaited = one->TakeTicket({});
  const uint64_t before = two->TakeTicket({});
  EXPECT_TRUE(two->WaitFor(one, awaited).ok());
  const uint64_t after = two->TakeTicket({});
  EXPECT_TRUE(two->IsTurn(before));
  two->Finish(before, Ok());
  EXPECT_FALSE(two->IsTurn(after));
  one->Finish(awaited, Ok());
  EXPECT_TRUE(two->IsTurn(after));
  EXPECT_TRUE(two->WaitFor(one, awaited).ok());  // over: no ticket more
  EXPECT_EQ(two->LastTicket(), after);
  EXPECT_TRUE(two->WaitFor(two, after).ok());  // its own: in order anyway
  EXPECT_EQ(two->LastTicket(), after);
}

// Streams that wait for each other's past, finished by many threads in any order: everything ends.
TEST(Stream, ManyStreamsWithEventsEnd) {
  for (unsigned seed = 1; seed <= 20; ++seed) {
    std::mt19937 random(seed);
    std::vector<std::shared_ptr<Stream>> streams;
    for (uint64_t i = 0; i < 5; ++i) streams.push_back(std::make_shared<Stream>(i));
    std::vector<std::pair<Stream*, uint64_t>> work;
    for (int i = 0; i < 200; ++i) {
      const auto& stream = streams[random() % 5];
      if (random() % 3 == 0) {
        const auto& other = streams[random() % 5];
        EXPECT_TRUE(stream->WaitFor(other, other->LastTicket()).ok());
      } else {
        work.emplace_back(stream.get(), stream->TakeTicket({}));
      }
    }
    std::shuffle(work.begin(), work.end(), random);
    std::atomic<size_t> next{0};
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([&] {
        for (size_t i = next++; i < work.size(); i = next++) work[i].first->Finish(work[i].second, Ok());
      });
    }
    for (const auto& stream : streams) EXPECT_TRUE(stream->Synchronize().ok()) << seed;
    for (std::thread& thread : threads) thread.join();
  }
}

TEST(StreamCalls, EventsAndQueries) {
  cudaStream_t stream = nullptr;
  c4Event_t event = nullptr;
  ASSERT_EQ(c4StreamCreate(&stream), ncclSuccess);
  ASSERT_EQ(c4EventCreate(&event), ncclSuccess);
  EXPECT_EQ(c4EventQuery(event), ncclSuccess) << "never recorded: over";
  EXPECT_EQ(c4StreamWaitEvent(stream, event), ncclSuccess);
  EXPECT_EQ(c4StreamQuery(stream), ncclSuccess);
  const std::shared_ptr<Stream> found = FindStream(stream);
  const uint64_t ticket = found->TakeTicket({});
  EXPECT_EQ(c4EventRecord(event, stream), ncclSuccess);
  EXPECT_EQ(c4StreamQuery(stream), ncclInProgress);
  EXPECT_EQ(c4EventQuery(event), ncclInProgress);
  EXPECT_EQ(c4StreamWaitEvent(nullptr, event), ncclSuccess);
  EXPECT_EQ(c4StreamQuery(nullptr), ncclInProgress);
  found->Finish(ticket, Ok());
  EXPECT_EQ(c4EventSynchronize(event), ncclSuccess);
  EXPECT_EQ(c4StreamSynchronize(nullptr), ncclSuccess);
  EXPECT_EQ(c4EventDestroy(event), ncclSuccess);
  EXPECT_EQ(c4EventDestroy(event), ncclInvalidArgument);
  EXPECT_EQ(c4EventQuery(event), ncclInvalidArgument);
  EXPECT_EQ(c4EventSynchronize(event), ncclInvalidArgument);
  EXPECT_EQ(c4EventRecord(event, stream), ncclInvalidArgument);
  EXPECT_EQ(c4StreamWaitEvent(stream, event), ncclInvalidArgument);
  EXPECT_EQ(c4EventCreate(nullptr), ncclInvalidArgument);
  EXPECT_EQ(c4StreamDestroy(stream), ncclSuccess);
  EXPECT_EQ(c4StreamQuery(stream), ncclInvalidArgument);
}

}  // namespace
}  // namespace c4::host
