// Peers over TCP that lie, say nothing, come twice, are strangers, or of an earlier version.
#include <cstring>
#include <functional>
#include <thread>

#include "tests/unit/ccl/peer_hellos.h"

namespace c4::tcp {
namespace {

// A receiver with two receives of 3000 and 16 bytes, and the test as its sender.
class LyingSender : public Ends {
 public:
  LyingSender() : fd(Dial(address)) {
    Say(fd, GoodHello());
    std::vector<Accepted> accepted;
    EXPECT_TRUE(Drive([&](bool* moved) { return acceptor->Progress(moved); },
                      [&] { return acceptor->Take(0, 0, &accepted); })
                    .ok());
    Attach(std::move(accepted));
    receiver->Post(first_, sizeof first_);
    receiver->Post(second_, sizeof second_);
  }
  Result Verdict() {
    return Drive([&](bool* moved) { return receiver->Progress(moved); },
                 [&] { return receiver->completed() == 2; });
  }

  Fd fd;

 private:
  char first_[3000];
  char second_[16];
};

Frame ChunkFrame(uint64_t sequence, uint64_t message, uint64_t message_bytes, uint32_t chunk,
                 uint32_t bytes) {
  return {kFrameMark, kFrameChunk, 0, chunk, bytes, sequence, message, message_bytes};
}

TEST(LyingPeer, ASenderThatSaysTheTruthInAnyOrderIsBelieved) {
  LyingSender peer;
  const std::vector<char> payload(kChunkBytes, 'p');
  const auto chunk = [&](const Frame& frame) {
    Say(peer.fd, frame);
    EXPECT_TRUE(SendAll(peer.fd.get(), payload.data(), frame.bytes, AfterSeconds(2)).ok());
  };
  chunk(ChunkFrame(0, 0, 3000, 2, 952));
  chunk(ChunkFrame(1, 1, 16, 0, 16));
  chunk(ChunkFrame(2, 0, 3000, 0, 1024));
  chunk(ChunkFrame(3, 0, 3000, 1, 1024));
  EXPECT_TRUE(peer.Verdict().ok());
}

TEST(LyingPeer, EveryFieldOfAChunkIsChecked) {
  struct Case {
    const char* what;
    std::function<void(Frame*)> lie;
  };
  const Case cases[] = {
      {"mark", [](Frame* f) { f->mark = 1; }},
      {"unknown kind", [](Frame* f) { f->kind = 77; }},
      {"kind of a receiver", [](Frame* f) { f->kind = kFrameReport; }},
      {"goodbye with a payload", [](Frame* f) { f->kind = kFrameGoodbye; }},
      {"chunk beyond the message", [](Frame* f) { f->chunk = 3; }},
      {"chunk whose offset wraps 32 bits", [](Frame* f) { f->chunk = UINT32_MAX; }},
      {"shorter than its place", [](Frame* f) { f->bytes = 1023; }},
      {"longer than its place", [](Frame* f) { f->bytes = 1025; }},
      {"longer than its message", [](Frame* f) { f->bytes = 3001; }},
      {"empty", [](Frame* f) { f->bytes = 0; }},
      {"sequence", [](Frame* f) { f->sequence = 1; }},
      {"message that nobody waits for", [](Frame* f) { f->message = 2; }},
      {"message far away", [](Frame* f) { f->message = UINT64_MAX; }},
      {"message size", [](Frame* f) { f->message_bytes = 2999; }},
      {"message size of another", [](Frame* f) { f->message = 1; }},
      {"no message size", [](Frame* f) { f->message_bytes = 0; }},
      {"huge message size", [](Frame* f) { f->message_bytes = UINT64_MAX; }},
  };
  for (const Case& bad : cases) {
    LyingSender peer;
    Frame frame = ChunkFrame(0, 0, 3000, 0, 1024);
    bad.lie(&frame);
    Say(peer.fd, frame);
    const Result result = peer.Verdict();
    EXPECT_TRUE(result.code() == ncclRemoteError || result.code() == ncclInvalidUsage)
        << bad.what << ": " << result.message();
    const wire::QueuePairSlot& slot = peer.received();
    peer.receiver.reset();
    EXPECT_EQ(slot.phase, wire::kPhaseFailed) << bad.what;
    EXPECT_NE(slot.error, 0u) << bad.what;
    EXPECT_TRUE(Closed(peer.fd)) << bad.what;
  }
}

TEST(LyingPeer, AChunkThatComesTwiceEndsTheConnection) {
  LyingSender peer;
  const std::vector<char> payload(kChunkBytes, 'p');
  for (uint64_t i = 0; i < 2; ++i) {
    Say(peer.fd, ChunkFrame(i, 0, 3000, 1, 1024));
    EXPECT_TRUE(SendAll(peer.fd.get(), payload.data(), payload.size(), AfterSeconds(2)).ok());
  }
  const Result result = peer.Verdict();
  EXPECT_EQ(result.code(), ncclRemoteError);
  EXPECT_NE(result.message().find("twice"), std::string::npos) << result.message();
}

TEST(LyingPeer, AnEndInTheMiddleOfAChunkIsNoGoodbye) {
  for (const bool goodbye : {false, true}) {
    LyingSender peer;
    if (goodbye) Say(peer.fd, Frame{kFrameMark, kFrameGoodbye, 0, 0, 0, 0, 0, 0});
    Say(peer.fd, ChunkFrame(0, 0, 3000, 0, 1024));
    Say(peer.fd, 'x');
    peer.fd.Reset();
    EXPECT_EQ(peer.Verdict().code(), ncclRemoteError) << goodbye;
  }
}

// A sender with one message of 10 bytes, and the test as its receiver.
class LyingReceiver : public Ends {
 public:
  LyingReceiver() {
    SocketAddress listen_address;
    EXPECT_TRUE(ParseAddress("127.0.0.1:0", &listen_address).ok());
    Fd listener;
    EXPECT_TRUE(Listen(&listen_address, 4, &listener).ok());
    EXPECT_TRUE(ConnectSender(recording(0), listen_address, {1, kChunkBytes, 65536}, &sender).ok());
    SocketAddress from;
    EXPECT_TRUE(Accept(listener.get(), AfterSeconds(2), &fd, &from).ok());
    EXPECT_TRUE(
        Drive([&](bool* moved) { return sender->Progress(moved); }, [&] { return sender->connected(); })
            .ok());
    Hello hello;
    EXPECT_TRUE(ReceiveAll(fd.get(), &hello, sizeof hello, AfterSeconds(2)).ok());
    EXPECT_EQ(CheckHello(&hello, sizeof hello, kCommunicator, 1, 2), nullptr);
    sender->Post(data_, sizeof data_);
  }
  Result Verdict() {
    return Drive([&](bool* moved) { return sender->Progress(moved); },
                 [&] { return sender->completed() == 1; });
  }
  void Report(uint64_t received, uint64_t granted) {
    Say(fd, Frame{kFrameMark, kFrameReport, 0, 0, 0, received, granted, 0});
  }

  Fd fd;

 private:
  char data_[10] = {};
};

TEST(LyingPeer, AReceiverIsBelievedOnlyWhatItCanKnow) {
  {
    LyingReceiver peer;
    peer.Report(0, 1);
    Frame frame;
    bool moved = false;
    EXPECT_TRUE(Ends::Drive([&](bool*) { return peer.sender->Progress(&moved); },
                            [&] { return peer.sent().moved_bytes >= sizeof(Frame) + 10; })
                    .ok());
    EXPECT_TRUE(ReceiveAll(peer.fd.get(), &frame, sizeof frame, AfterSeconds(2)).ok());
    EXPECT_EQ(CheckChunk(frame, 0), nullptr);
    EXPECT_EQ(frame.bytes, 10u);
    peer.Report(1, 1);
    EXPECT_TRUE(peer.Verdict().ok());
  }
  struct Case {
    const char* what;
    std::function<void(LyingReceiver*)> lie;
  };
  const Case cases[] = {
      {"acknowledged what was not sent", [](LyingReceiver* p) { p->Report(1, 0); }},
      {"acknowledged more than was sent", [](LyingReceiver* p) { p->Report(2, 1); }},
      {"took a grant back",
       [](LyingReceiver* p) {
         p->Report(0, 1);
         p->Report(0, 0);
       }},
      {"mark",
       [](LyingReceiver* p) {
         Say(p->fd, Frame{1, kFrameReport, 0, 0, 0, 0, 1, 0});
       }},
      {"payload",
       [](LyingReceiver* p) {
         Say(p->fd, Frame{kFrameMark, kFrameReport, 0, 0, 1, 0, 1, 0});
       }},
      {"more tags than a report has room for",
       [](LyingReceiver* p) {
         Say(p->fd, Frame{kFrameMark, kFrameReport, 0, 3, 0, 0, 3, 0});
       }},
      {"tags of messages before the first",
       [](LyingReceiver* p) {
         Say(p->fd, Frame{kFrameMark, kFrameReport, 0, 2, 0, 0, 1, 0});
       }},
      {"kind of a sender",
       [](LyingReceiver* p) {
         Say(p->fd, Frame{kFrameMark, kFrameChunk, 0, 0, 0, 0, 1, 0});
       }},
      {"unknown kind",
       [](LyingReceiver* p) {
         Say(p->fd, Frame{kFrameMark, 9, 0, 0, 0, 0, 1, 0});
       }},
  };
  for (const Case& bad : cases) {
    LyingReceiver peer;
    bad.lie(&peer);
    EXPECT_EQ(peer.Verdict().code(), ncclRemoteError) << bad.what;
  }
}

// What a receiver with so many receives posted, of tags 100, 101 and so on, says first.
std::vector<Frame> SaidOfTags(int receives, size_t frames) {
  Ends ends;
  const Fd fd = Dial(ends.address);
  Say(fd, GoodHello());
  std::vector<Accepted> accepted;
  EXPECT_TRUE(Ends::Drive([&](bool* moved) { return ends.acceptor->Progress(moved); },
                          [&] { return ends.acceptor->Take(0, 0, &accepted); })
                  .ok());
  ends.receiver = std::make_unique<ReceiveConnection>(1, 0);
  ends.receiver->UseTags();
  ends.Attach(std::move(accepted));
  char place = 0;
  size_t came = 0;
  for (int i = 0; i < receives; ++i) ends.receiver->PostAtMost(&place, 1, 100 + i, &came);
  bool moved = false;
  EXPECT_TRUE(ends.receiver->Progress(&moved).ok());
  std::vector<Frame> said(frames);
  EXPECT_TRUE(ReceiveAll(fd.get(), said.data(), frames * sizeof(Frame), AfterSeconds(2)).ok());
  char more = 0;
  EXPECT_LT(recv(fd.get(), &more, 1, MSG_DONTWAIT), 0) << "more frames than these";
  return said;
}

TEST(Tags, StandInTheReportWhereTheyFitAndTheSenderLooksThere) {
  for (const int receives : {1, 2}) {
    const Frame report = SaidOfTags(receives, 1).front();
    EXPECT_EQ(report.kind, kFrameReport);
    EXPECT_EQ(report.message, static_cast<uint64_t>(receives));
    ASSERT_EQ(report.chunk, static_cast<uint32_t>(receives));
    for (int i = 0; i < receives; ++i) EXPECT_EQ(TagInReport(report, static_cast<uint32_t>(i)), 100 + i);
    EXPECT_EQ(CheckReport(report, 0, 0, 0), nullptr);
  }
}

TEST(Tags, FollowTheReportWhereTheyAreMany) {
  constexpr int kReceives = 3;
  const std::vector<Frame> said = SaidOfTags(kReceives, 2);
  EXPECT_EQ(said[0].kind, kFrameReport);
  EXPECT_EQ(said[0].chunk, 0U);
  EXPECT_EQ(said[0].message_bytes, 0U);
  EXPECT_EQ(said[1].kind, kFrameTags);
  EXPECT_EQ(said[1].message, 0U);
  ASSERT_EQ(said[1].chunk, static_cast<uint32_t>(kReceives));
  for (int i = 0; i < kReceives; ++i) EXPECT_EQ(TagIn(said[1], static_cast<uint32_t>(i)), 100 + i);
}

TEST(Tags, OfReportsAndFramesAreOneOrder) {
  LyingReceiver peer;
  peer.sender->UseTags();
  Frame report{kFrameMark, kFrameReport, 0, 2, 0, 0, 2, 0};
  SetTagInReport(&report, 0, -5);
  SetTagInReport(&report, 1, INT32_MAX);
  Say(peer.fd, report);
  Frame tags{kFrameMark, kFrameTags, 0, 2, 0, 0, 1, 0};  // the first of them said again
  SetTag(&tags, 0, INT32_MAX);
  SetTag(&tags, 1, 8);
  Say(peer.fd, tags);
  EXPECT_TRUE(Ends::Drive([&](bool* moved) { return peer.sender->Progress(moved); },
                          [&] { return peer.sender->offers(8); })
                  .ok());
  EXPECT_TRUE(peer.sender->offers(-5));
  EXPECT_TRUE(peer.sender->offers(INT32_MAX));
  EXPECT_FALSE(peer.sender->offers(0));
}

TEST(LyingPeer, AGrantOfMoreThanThereIsHarmsNobody) {
  LyingReceiver peer;
  peer.Report(0, UINT64_MAX);
  bool moved = false;
  EXPECT_TRUE(Ends::Drive([&](bool*) { return peer.sender->Progress(&moved); },
                          [&] { return peer.sent().moved_bytes >= sizeof(Frame) + 10; })
                  .ok());
  peer.Report(1, UINT64_MAX);
  EXPECT_TRUE(peer.Verdict().ok());
}

}  // namespace
}  // namespace c4::tcp
