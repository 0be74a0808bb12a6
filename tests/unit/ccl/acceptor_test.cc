// Who comes to a rank's port: strangers, who says nothing, who comes twice, and streams of connections that
// are there.
#include <cstring>
#include <functional>
#include <thread>

#include "tests/unit/ccl/peer_hellos.h"

namespace c4::tcp {
namespace {

// Drives the acceptor until it has closed `fd`.
bool TurnedAway(Acceptor* acceptor, const Fd& fd) {
  const uint64_t deadline = MonotonicNs() + 2000000000u;
  while (MonotonicNs() < deadline) {
    bool moved = false;
    EXPECT_TRUE(acceptor->Progress(&moved).ok());
    char byte = 0;
    if (recv(fd.get(), &byte, 1, MSG_DONTWAIT) == 0) return true;
  }
  return false;
}

TEST(Acceptor, StrangersAreTurnedAwayFieldByField) {
  struct Case {
    const char* what;
    std::function<void(Hello*)> lie;
  };
  const Case cases[] = {
      {"magic", [](Hello* h) { h->header.magic = 1; }},
      {"major version", [](Hello* h) { h->header.major = 1; }},
      {"endianness", [](Hello* h) { h->header.endian = 0x01000000; }},
      {"header length", [](Hello* h) { h->header.header_bytes = 8; }},
      {"total length", [](Hello* h) { h->header.total_bytes = 4096; }},
      {"communicator", [](Hello* h) { h->communicator_id = 8; }},
      {"to another rank", [](Hello* h) { h->to_rank = 0; }},
      {"from itself", [](Hello* h) { h->from_rank = 1; }},
      {"from a rank beyond the last", [](Hello* h) { h->from_rank = 2; }},
      {"from a negative rank", [](Hello* h) { h->from_rank = -1; }},
      {"no queue pairs", [](Hello* h) { h->queue_pair_count = 0; }},
      {"too many queue pairs", [](Hello* h) { h->queue_pair_count = kMaxQueuePairs + 1; }},
      {"index beyond the last", [](Hello* h) { h->queue_pair_index = 1; }},
      {"tiny chunks", [](Hello* h) { h->chunk_bytes = kMinChunkBytes - 1; }},
      {"huge chunks", [](Hello* h) { h->chunk_bytes = kMaxChunkBytes + 1; }},
  };
  Ends ends;
  for (const Case& bad : cases) {
    const Fd fd = Dial(ends.address);
    Hello hello = GoodHello();
    bad.lie(&hello);
    Say(fd, hello);
    EXPECT_TRUE(TurnedAway(ends.acceptor.get(), fd)) << bad.what;
  }
  Fd gone = Dial(ends.address);
  Say(gone, 'x');
  gone.Reset();
  // None of them has kept the right one from being taken.
  ASSERT_NO_FATAL_FAILURE(ends.Connect({2, kChunkBytes, 65536}));
}

TEST(Acceptor, EachQueuePairIsTakenOnceAndAllHaveToAgree) {
  Ends ends;
  std::vector<Accepted> accepted;
  const Fd first = Dial(ends.address);
  Say(first, GoodHello(1, 2));
  bool moved = false;
  EXPECT_TRUE(
      Ends::Drive([&](bool*) { return ends.acceptor->Progress(&moved); }, [&] { return moved; }).ok());
  EXPECT_FALSE(ends.acceptor->Take(0, 0, &accepted));
  const Fd again = Dial(ends.address);
  Say(again, GoodHello(1, 2));
  EXPECT_TRUE(TurnedAway(ends.acceptor.get(), again));
  const Fd counts_otherwise = Dial(ends.address);
  Say(counts_otherwise, GoodHello(0, 3));
  EXPECT_TRUE(TurnedAway(ends.acceptor.get(), counts_otherwise));
  const Fd cuts_otherwise = Dial(ends.address);
  Hello hello = GoodHello(0, 2);
  hello.chunk_bytes = 2 * kChunkBytes;
  Say(cuts_otherwise, hello);
  EXPECT_TRUE(TurnedAway(ends.acceptor.get(), cuts_otherwise));
  const Fd other_channel = Dial(ends.address);
  hello = GoodHello(0, 1);
  hello.channel = 1;
  Say(other_channel, hello);
  const Fd second = Dial(ends.address);
  Say(second, GoodHello(0, 2));
  EXPECT_TRUE(Ends::Drive([&](bool* m) { return ends.acceptor->Progress(m); },
                          [&] { return ends.acceptor->Take(0, 0, &accepted); })
                  .ok());
  ASSERT_EQ(accepted.size(), 2u);
  EXPECT_EQ(accepted[0].hello.queue_pair_index, 0);
  EXPECT_EQ(accepted[1].hello.queue_pair_index, 1);
  EXPECT_FALSE(ends.acceptor->Take(0, 0, &accepted));
  // Once it is there, nobody else can be it.
  const Fd late = Dial(ends.address);
  Say(late, GoodHello(0, 2));
  EXPECT_TRUE(TurnedAway(ends.acceptor.get(), late));
  EXPECT_TRUE(Ends::Drive([&](bool* m) { return ends.acceptor->Progress(m); },
                          [&] { return ends.acceptor->Take(0, 1, &accepted); })
                  .ok());
}

// Many that say nothing do not hold up the one that does, nor keep the thread busy.
TEST(Acceptor, TheSilentAreWaitedForBesideTheOthers) {
  Ends ends;
  std::vector<Fd> silent;
  for (int i = 0; i < 20; ++i) silent.push_back(Dial(ends.address));
  Say(silent[0], 'C');  // and no more
  ASSERT_NO_FATAL_FAILURE(ends.Connect({2, kChunkBytes, 65536}));
  bool moved = false;
  ASSERT_TRUE(ends.acceptor->Progress(&moved).ok());
  moved = false;
  ASSERT_TRUE(ends.acceptor->Progress(&moved).ok());
  EXPECT_FALSE(moved);
  std::vector<pollfd> polls;
  ends.acceptor->AppendPolls(&polls);
  EXPECT_EQ(polls.size(), 21u);
  EXPECT_EQ(poll(polls.data(), polls.size(), 0), 0) << "nothing of this may wake anybody";
}

// A receiver's end, to which a connection of one queue pair that fails over has come.
class LateStreams : public Ends, public ::testing::Test {
 protected:
  static Hello First() {
    Hello hello = GoodHello();
    hello.transport = kFailOverTcp;
    return hello;
  }
  static Hello Late(uint16_t index, uint16_t count, uint16_t transport) {
    Hello hello = GoodHello(index, count);
    hello.transport = transport;
    hello.epoch = 1;
    return hello;
  }
  void TakeFirst() {
    Say(first_, First());
    std::vector<Accepted> accepted;
    ASSERT_TRUE(Drive([&](bool* moved) { return acceptor->Progress(moved); },
                      [&] { return acceptor->Take(0, 0, &accepted); })
                    .ok());
  }
  // Whether `fd`, which has said its hello, is handed on as a late stream; else it is closed.
  bool HandedOn(const Fd& fd) {
    bool taken = false;
    char byte = 0;
    const auto settled = [&] {
      int peer = 0;
      uint16_t channel = 0;
      Accepted late;
      taken = taken || acceptor->TakeLate(&peer, &channel, &late);
      return taken || recv(fd.get(), &byte, 1, MSG_DONTWAIT) == 0;
    };
    EXPECT_TRUE(Drive([&](bool* moved) { return acceptor->Progress(moved); }, settled).ok());
    return taken;
  }

 private:
  Fd first_ = Dial(address);
};

TEST_F(LateStreams, OneThatCountsOtherwiseThanItsConnectionIsTurnedAway) {
  TakeFirst();
  for (const uint16_t transport : {uint16_t{kFailOverTcp}, uint16_t{kFenceStream}}) {
    const Fd bad = Dial(address);
    Say(bad, Late(63, 64, transport));
    EXPECT_FALSE(HandedOn(bad)) << transport;
    const Fd good = Dial(address);
    Say(good, Late(0, 1, transport));
    EXPECT_TRUE(HandedOn(good)) << transport;
  }
  Hello cut = Late(0, 1, kFailOverTcp);
  cut.chunk_bytes *= 2;
  const Fd bad = Dial(address);
  Say(bad, cut);
  EXPECT_FALSE(HandedOn(bad));
}

TEST_F(LateStreams, AControlStreamThatCameFirstIsHeldToTheConnectionToo) {
  const Fd bad = Dial(address);
  Say(bad, Late(0, 64, kFenceStream));
  bool moved = false;
  while (!moved) ASSERT_TRUE(acceptor->Progress(&moved).ok());
  TakeFirst();
  EXPECT_FALSE(HandedOn(bad));
}

}  // namespace
}  // namespace c4::tcp
