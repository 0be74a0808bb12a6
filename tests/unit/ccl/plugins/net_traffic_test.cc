// Random traffic through the network plugin, as NCCL's core makes it: many connections and threads, sends
// that run ahead of one another by tag, receives that are larger than what comes, several at a time,
// registration beside it, and requests that are called for again. Every byte is checked, also those behind.
#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <deque>
#include <gtest/gtest.h>
#include <optional>
#include <random>
#include <thread>
#include <vector>

#include "tests/unit/ccl/plugins/nccl_core.h"

namespace c4::net::test {
namespace {

using Random = std::mt19937_64;

size_t Draw(Random* random, size_t below) {
  return static_cast<size_t>((*random)() % below);
}

// What sender `tag` says in its message `index`.
std::vector<char> MessageOf(uint64_t seed, int tag, size_t index) {
  Random random(seed * 1000003 + static_cast<uint64_t>(tag) * 7919 + index);
  constexpr size_t kSizes[] = {0, 1, 8, 1000, 4096, 40000, 131072, 131073, 300000};
  std::vector<char> message(Draw(&random, 3) == 0 ? kSizes[Draw(&random, std::size(kSizes))]
                                                  : Draw(&random, 2000));
  const uint64_t pattern = random();
  for (size_t i = 0; i < message.size(); ++i)
    message[i] = static_cast<char>((pattern >> (i % 8 * 8)) + i / 8);
  return message;
}

struct Sent {
  size_t wanted = 0;
  size_t posted = 0;
};
struct Send {
  std::vector<char> data;
  void* request = nullptr;
};
struct Receive {
  std::vector<std::vector<char>> buffers;
  std::vector<std::vector<char>> expected;
  void* request = nullptr;
};

// One connection's script: which tags its multi-receives name.
class Stream {
 public:
  Stream(Core* core, uint64_t seed, size_t receives, int tags, int most)
      : core_(core), seed_(seed), random_(seed), sent_(static_cast<size_t>(tags)) {
    for (size_t i = 0; i < receives; ++i) {
      groups_.emplace_back();
      for (size_t n = 1 + Draw(&random_, static_cast<size_t>(most)); n > 0; --n) {
        const auto tag = static_cast<int>(Draw(&random_, static_cast<size_t>(tags)));
        groups_.back().push_back(tag);
        ++sent_[static_cast<size_t>(tag)].wanted;
      }
    }
    counted_.resize(static_cast<size_t>(tags));
  }

  Ends ends;
  bool over() const { return groups_done_ == groups_.size() && sends_.empty(); }

  void Step() {
    if (Draw(&random_, 2) == 0) {
      PostReceive();
    } else {
      PostSend();
    }
    TestSends();
    TestReceives();
  }

 private:
  void PostReceive() {
    if (next_group_ == groups_.size() || receives_.size() == 8) return;
    if (!made_.has_value()) MakeReceive();
    std::vector<void*> data;
    std::vector<size_t> bytes;
    for (auto& buffer : made_->buffers) {
      data.push_back(buffer.data());
      bytes.push_back(buffer.size());
    }
    std::vector<int> tags = groups_[next_group_];
    void* request = data.size() == 1 && Draw(&random_, 2) == 0 ? abi::kOptionalCompletion : nullptr;
    ASSERT_EQ(core_->Receive(ends.receive, static_cast<int>(data.size()), data.data(), bytes.data(),
                             tags.data(), &request),
              ncclSuccess);
    if (request == nullptr) return;  // again, with the same
    made_->request = request;
    receives_.push_back(std::move(*made_));
    made_.reset();
    ++next_group_;
  }
  void MakeReceive() {
    made_.emplace();
    for (const int tag : groups_[next_group_]) {
      made_->expected.push_back(MessageOf(seed_, tag, counted_[static_cast<size_t>(tag)]++));
      made_->buffers.emplace_back(made_->expected.back().size() + Draw(&random_, 3) * 5000, '~');
    }
  }
  // Any tag that still has something to say, or what was not taken the last time.
  void PostSend() {
    if (sends_.size() >= 300) return;
    const int tag = retry_ >= 0 ? retry_ : static_cast<int>(Draw(&random_, sent_.size()));
    Sent& sent = sent_[static_cast<size_t>(tag)];
    if (sent.posted == sent.wanted) return;
    Send send;
    send.data = MessageOf(seed_, tag, sent.posted);
    send.request = reinterpret_cast<void*>(0x99);
    ASSERT_EQ(core_->Send(ends.send, send.data.data(), send.data.size(), tag, &send.request), ncclSuccess);
    // The core would go on with another sender meanwhile.
    retry_ = send.request == nullptr && Draw(&random_, 2) == 0 ? tag : -1;
    if (send.request == nullptr) return;
    ++sent.posted;
    sends_.push_back(std::move(send));
  }
  void TestSends() {
    for (auto it = sends_.begin(); it != sends_.end();) {
      int done = 0;
      int bytes = -1;
      ASSERT_EQ(core_->Test(it->request, &done, &bytes), ncclSuccess);
      if (done == 1) {
        ASSERT_EQ(bytes, static_cast<int>(it->data.size()));
        std::fill(it->data.begin(), it->data.end(), '#');  // it is ours again: nothing of it may be read late
        it = sends_.erase(it);
      } else {
        ++it;
      }
    }
  }
  void TestReceives() {
    while (!receives_.empty()) {
      Receive& receive = receives_.front();
      int done = 0;
      int bytes[kMostReceives] = {};
      ASSERT_EQ(core_->Test(receive.request, &done, bytes), ncclSuccess);
      if (done != 1) return;
      for (size_t i = 0; i < receive.buffers.size(); ++i) {
        const std::vector<char>& expected = receive.expected[i];
        const std::vector<char>& buffer = receive.buffers[i];
        ASSERT_EQ(bytes[i], static_cast<int>(expected.size())) << "message " << i << " of " << groups_done_;
        ASSERT_TRUE(std::equal(expected.begin(), expected.end(), buffer.begin()));
        ASSERT_TRUE(std::all_of(buffer.begin() + static_cast<long>(expected.size()), buffer.end(),
                                [](char c) { return c == '~'; }));
      }
      ++groups_done_;
      receives_.pop_front();
    }
  }

  Core* const core_;
  const uint64_t seed_;
  Random random_;
  std::vector<std::vector<int>> groups_;  // tags of each receive
  std::vector<Sent> sent_;                // by tag
  std::vector<size_t> counted_;           // messages of each tag that were received for
  size_t next_group_ = 0;
  size_t groups_done_ = 0;
  std::optional<Receive> made_;
  int retry_ = -1;
  std::deque<Send> sends_;
  std::deque<Receive> receives_;
};

void RunStreams(std::vector<std::unique_ptr<Stream>>* streams) {
  const uint64_t until_ns = MonotonicNs() + kPatienceNs;
  for (bool over = false; !over;) {
    over = true;
    for (auto& stream : *streams) {
      if (stream->over()) continue;
      stream->Step();
      if (testing::Test::HasFatalFailure()) return;
      over = over && stream->over();
    }
    ASSERT_LT(MonotonicNs(), until_ns) << "the traffic does not end";
  }
}

// A communicator of the core's: this thread sets up, registers and closes, another one sends and receives.
void RunCommunicator(int version, uint64_t seed, size_t connections) {
  const std::unique_ptr<Core> core = CoreOf(version);
  Random random(seed);
  void* context = nullptr;
  ASSERT_EQ(core->Init(&context), ncclSuccess);
  std::vector<std::unique_ptr<Stream>> streams;
  for (size_t i = 0; i < connections; ++i) {
    const auto most = static_cast<int>(1 + Draw(&random, 8));
    streams.push_back(std::make_unique<Stream>(core.get(), seed * 100 + i, 30, most + 2, most));
    ASSERT_NO_FATAL_FAILURE(streams.back()->ends.Connect(core.get(), context));
  }
  std::atomic<bool> over{false};
  std::thread progress([&] {
    RunStreams(&streams);
    over = true;
  });
  std::vector<char> memory(4096);
  while (!over) {
    void* handle = nullptr;
    Ends& ends = streams[Draw(&random, streams.size())]->ends;
    void* const comm = Draw(&random, 2) == 0 ? ends.send : ends.receive;
    EXPECT_EQ(core->Register(comm, memory.data(), memory.size(), abi::kHostPointer, &handle), ncclSuccess);
    EXPECT_NE(core->Register(comm, memory.data(), memory.size(), abi::kCudaPointer, &handle), ncclSuccess);
    EXPECT_EQ(core->Deregister(comm, handle), ncclSuccess);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  progress.join();
  for (auto& stream : streams) {
    if (Draw(&random, 2) == 0) {
      EXPECT_EQ(core->CloseListen(stream->ends.listen), ncclSuccess);
      stream->ends.listen = nullptr;
    }
    stream->ends.Close(core.get());
  }
  EXPECT_EQ(core->Finalize(context), ncclSuccess);
}

TEST(NetTraffic, OneConnectionOfEachVersion) {
  for (int version = 8; version <= 12; ++version) {
    SCOPED_TRACE(version);
    ASSERT_NO_FATAL_FAILURE(RunCommunicator(version, 20261122u + static_cast<uint64_t>(version), 1));
  }
}

TEST(NetTraffic, SeveralCommunicatorsAtOnce) {
  std::vector<std::thread> threads;
  for (uint64_t i = 0; i < 3; ++i) {
    threads.emplace_back([i] { RunCommunicator(i == 0 ? 12 : 11, 77 + i, 3); });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace c4::net::test
