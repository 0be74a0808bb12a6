// Work requests complete in order; one completion may end several; what is lost is lost for the times only.
#include "ccl/tap/request_queue.h"

#include <deque>
#include <random>

#include "gtest/gtest.h"

namespace c4::tap {
namespace {

using Request = RequestQueue::Request;

TEST(RequestQueue, ASignaledRequestEndsThoseBeforeIt) {
  RequestQueue queue(8);
  queue.Push({.id = 1, .posted_ticks = 10, .bytes = 100, .signaled = false});
  queue.Push({.id = 1, .posted_ticks = 20, .bytes = 200, .signaled = false});
  queue.Push({.id = 7, .posted_ticks = 30, .bytes = 300, .signaled = true});
  const RequestQueue::Ended ended = queue.Complete(7, false);
  EXPECT_EQ(ended.requests, 3U);
  EXPECT_EQ(ended.bytes, 600U);
  EXPECT_EQ(ended.posted_ticks, 30U);
  EXPECT_EQ(queue.open(), 0U);
}

TEST(RequestQueue, AfterAnErrorEachCompletesByItself) {
  RequestQueue queue(8);
  queue.Push({.id = 1, .bytes = 100, .signaled = false});
  queue.Push({.id = 2, .bytes = 200, .signaled = true});
  EXPECT_EQ(queue.Complete(1, true).bytes, 100U);
  EXPECT_EQ(queue.Complete(2, true).bytes, 200U);
}

TEST(RequestQueue, AnIdOfSomebodyElseEndsNothing) {
  RequestQueue queue(8);
  queue.Push({.id = 1, .signaled = true});
  EXPECT_EQ(queue.Complete(2, false).requests, 0U);
  EXPECT_EQ(queue.open(), 1U);
  EXPECT_EQ(RequestQueue().Complete(1, false).requests, 0U);
}

TEST(RequestQueue, RefusedRequestsAreTakenBack) {
  RequestQueue queue(4);
  for (uint64_t id = 0; id < 3; ++id) queue.Push({.id = id, .signaled = true});
  queue.TakeBack(2);
  queue.Push({.id = 9, .signaled = true});
  EXPECT_EQ(queue.Complete(0, false).requests, 1U);
  EXPECT_EQ(queue.Complete(9, false).requests, 1U);
  queue.TakeBack(5);  // more than there are
  EXPECT_EQ(queue.open(), 0U);
}

TEST(RequestQueue, MoreThanExpectedAreCountedAndNotTimed) {
  RequestQueue queue(2);
  for (uint64_t id = 0; id < 5; ++id) queue.Push({.id = id, .signaled = true});
  EXPECT_EQ(queue.untimed(), 3U);
  EXPECT_EQ(queue.Complete(3, false).requests, 1U);
  EXPECT_EQ(queue.Complete(4, false).requests, 1U);
}

// Beside a plain model, over random programs.
TEST(RequestQueue, IsWhatAModelSays) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    std::mt19937_64 random(seed);
    RequestQueue queue(16);
    std::deque<Request> model;
    for (int step = 0; step < 500; ++step) {
      if (random() % 2 == 0 && model.size() < 16) {
        const Request request{random() % 3, static_cast<uint64_t>(step), random() % 1000, random() % 4 == 0};
        queue.Push(request);
        model.push_back(request);
        continue;
      }
      const uint64_t id = random() % 3;
      const bool failed = random() % 8 == 0;
      RequestQueue::Ended expected;
      size_t end = 0;
      while (end < model.size() && !failed && !model[end].signaled) ++end;
      if (end < model.size() && model[end].id == id) {
        for (size_t i = 0, ending = end + 1; i < ending; ++i, model.pop_front()) {
          ++expected.requests;
          expected.bytes += model.front().bytes;
          expected.posted_ticks = model.front().posted_ticks;
        }
      }
      const RequestQueue::Ended ended = queue.Complete(id, failed);
      ASSERT_EQ(ended.requests, expected.requests) << seed;
      ASSERT_EQ(ended.bytes, expected.bytes) << seed;
      ASSERT_EQ(ended.posted_ticks, expected.posted_ticks) << seed;
      ASSERT_EQ(queue.open(), model.size()) << seed;
    }
  }
}

}  // namespace
}  // namespace c4::tap
