// NCCL's RAS protocol of the host engine: what clients say, what processes ask each other, and the report.
// The report as the master reads it: tests/unit/c4d_master/sources/ras_own_report_test.cc; whole jobs:
// tests/service/ras_server_test.py.
#include <arpa/inet.h>
#include <cstring>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <unistd.h>

#include "ccl/base/identity.h"
#include "ccl/ras/gathering.h"
#include "ccl/ras/report.h"
#include "ccl/ras/server.h"
#include "ccl/ras/session.h"

namespace c4::ras {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;

constexpr uint64_t kSecond = 1000000000;

TEST(RasSessionTest, SpeaksAsNcclsOwn) {
  Session session;
  std::string reply;
  EXPECT_FALSE(session.Take("CLIENT PROTOCOL 2\n", &reply));
  EXPECT_FALSE(session.Take("timeout 3\nSet Format JSON\r\n", &reply));
  EXPECT_EQ(reply, "SERVER PROTOCOL 2\nOK\nOK\n");
  EXPECT_EQ(session.timeout_s(), 3);
  EXPECT_TRUE(session.json());
  EXPECT_TRUE(session.Take("verbose status\nSTATUS\n", &reply));
  EXPECT_TRUE(session.verbose());
}

TEST(RasSessionTest, LinesMayComeInPieces) {
  Session session;
  std::string reply;
  const std::string all = "CLIENT PROTOCOL 2\nTIMEOUT 0\nSTATUS\n";
  for (size_t i = 0; i + 1 < all.size(); ++i) EXPECT_FALSE(session.Take(all.substr(i, 1), &reply));
  EXPECT_TRUE(session.Take("\n", &reply));
  EXPECT_EQ(session.timeout_s(), 0);
  EXPECT_FALSE(session.verbose());
}

TEST(RasSessionTest, WhatIsWrongIsSaidAndChangesNothing) {
  for (const std::string wrong :
       {"TIMEOUT", "TIMEOUT -1", "TIMEOUT 3s", "TIMEOUT 99999999", "TIMEOUT 1000001", "SET FORMAT",
        "SET FORMAT xml", "STATUSES", "MONITOR", "SET", "VERBOSE"}) {
    Session session;
    std::string reply;
    EXPECT_FALSE(session.Take(wrong + "\n", &reply)) << wrong;
    EXPECT_THAT(reply, ::testing::StartsWith("ERROR: ")) << wrong;
    EXPECT_EQ(session.timeout_s(), 5);
    EXPECT_FALSE(session.json());
    EXPECT_FALSE(session.failed());
  }
  Session session;
  std::string reply;
  EXPECT_FALSE(session.Take(std::string(5000, 'x'), &reply));
  EXPECT_TRUE(session.failed());
  EXPECT_FALSE(session.Take("\nSTATUS\n", &reply));
}

State StateOf(uint64_t communicator, uint32_t rank, uint32_t size, uint64_t all_reduces) {
  State state{};
  state.communicator_id = communicator;
  state.rank = rank;
  state.rank_count = size;
  state.calls[kAllReduce] = all_reduces;
  return state;
}

// Four ranks on two nodes; rank 3 does not answer, or is gone.
Report FourRanks(bool dead) {
  std::vector<ProcessTold> processes;
  std::vector<Seat> seats;
  for (uint32_t rank = 0; rank < 4; ++rank) {
    const bool answered = rank != 3;
    processes.push_back({rank < 2 ? "10.0.0.1" : "10.0.0.2", 100 + rank, answered, dead && !answered, {}});
    if (answered) processes.back().states.push_back(StateOf(0xab, rank, 4, rank == 1 ? 9 : 10));
    seats.push_back({0xab, rank, 4, rank});
  }
  return Compose(std::move(processes), seats, 0.25);
}

TEST(RasReportTest, TellsWhoIsMissingAndWhoIsBehind) {
  const Report silent = FourRanks(false);
  ASSERT_THAT(silent.communicators, SizeIs(1));
  EXPECT_THAT(silent.communicators[0].ranks, SizeIs(3));
  ASSERT_THAT(silent.communicators[0].missing, SizeIs(1));
  EXPECT_EQ(silent.communicators[0].missing[0].pid, 103u);
  EXPECT_EQ(silent.timeouts, 1u);
  std::string text = ToText(silent, false);
  EXPECT_THAT(text,
              HasSubstr("    0         1         2       1-2         4         4   RUNNING  INCOMPLETE\n"));
  EXPECT_THAT(text, HasSubstr("Process 103 on node 10.0.0.2"));
  EXPECT_THAT(text, HasSubstr("The missing rank: 3"));
  EXPECT_THAT(text, HasSubstr("2 ranks have launched up to operation 10"));
  EXPECT_THAT(text, HasSubstr("1 rank has launched up to operation 9\n  Ranks 1\n"));
  EXPECT_THAT(text, Not(HasSubstr("DEAD")));
  const Report gone = FourRanks(true);
  EXPECT_EQ(gone.timeouts, 0u);
  text = ToText(gone, false);
  EXPECT_THAT(text, HasSubstr("DEAD"));
  EXPECT_THAT(text, Not(HasSubstr("TIMEOUT")));
  EXPECT_THAT(ToJson(gone, 0), HasSubstr("\"considered_dead\": true"));
}

TEST(RasReportTest, ACommunicatorThatThisProcessIsNotInIsTold) {
  std::vector<ProcessTold> processes = {
      {"10.0.0.1", 1, true, false, {StateOf(1, 0, 2, 5)}},
      {"10.0.0.2", 2, true, false, {StateOf(1, 1, 2, 5), StateOf(2, 7, 8, 3)}}};
  const Report report = Compose(std::move(processes), {{1, 0, 2, 0}, {1, 1, 2, 1}}, 0);
  ASSERT_THAT(report.communicators, SizeIs(2));
  EXPECT_EQ(report.communicators[0].rank_count, 8u);
  EXPECT_THAT(report.communicators[0].ranks, SizeIs(1));
  ASSERT_THAT(report.communicators[0].missing, SizeIs(7));
  EXPECT_EQ(report.communicators[0].missing[0].host, "");  // nobody knows who they are
  EXPECT_THAT(report.communicators[1].missing, SizeIs(0));
}

TEST(RasReportTest, StatesAndErrorsHaveNcclsWords) {
  std::vector<ProcessTold> processes = {{"::1", 1, true, false, {StateOf(1, 0, 2, 5)}},
                                        {"::1", 2, true, false, {StateOf(1, 1, 2, 5)}}};
  const auto text_of = [&] { return ToText(Compose(processes, {}, 0), true); };
  EXPECT_THAT(text_of(), HasSubstr("RUNNING  OK\n"));
  processes[1].states[0].flags = kFinalized;
  EXPECT_THAT(text_of(), HasSubstr("FINALIZE  OK\n"));
  processes[1].states[0].flags = kAborted;
  EXPECT_THAT(text_of(), HasSubstr("ABORT  OK\n"));
  processes[1].states[0].flags = 0;
  processes[1].states[0].async_error = 6;
  EXPECT_THAT(text_of(), HasSubstr("RUNNING  ERROR\n"));
  EXPECT_THAT(text_of(), HasSubstr("Rank 1 (process 2 on node ::1) has NCCL's result 6"));
  EXPECT_THAT(ToText(Report(), false), HasSubstr("      0"));  // no communicators at all
}

// Ranks of processes that are not there but in this test, over real sockets.
class RasPeersTest : public ::testing::Test {
 protected:
  static constexpr uint32_t kRanks = 3;

  void SetUp() override {
    std::vector<Peer> peers(kRanks);
    for (uint32_t rank = 0; rank < kRanks; ++rank) {
      members_.push_back(std::make_shared<Member>());
      SocketAddress place;
      ASSERT_TRUE(ParseAddress("127.0.0.1:0", &place).ok());
      ASSERT_TRUE(OpenSocket(place, &members_[rank]->socket).ok());
      ASSERT_TRUE(LocalAddress(members_[rank]->socket.get(), &place).ok());
      peers[rank].place = place;
      peers[rank].process.pid = 100 + rank;
    }
    for (uint32_t rank = 0; rank < kRanks; ++rank) {
      Member& member = *members_[rank];
      member.communicator_id = 77;
      member.rank = rank;
      member.peers = peers;
      member.key = HmacSha256("", 0, "key", 3);
      member.state = [rank] { return StateOf(77, rank, kRanks, 40 + rank); };
    }
  }

  std::vector<char> Read(uint32_t rank) {
    pollfd entry{members_[rank]->socket.get(), POLLIN, 0};
    if (poll(&entry, 1, 2000) <= 0) return {};
    std::vector<char> bytes(kMostBytes + 1);
    const ssize_t got = recv(members_[rank]->socket.get(), bytes.data(), bytes.size(), 0);
    bytes.resize(got < 0 ? 0 : static_cast<size_t>(got));
    return bytes;
  }

  std::vector<char> TellFrom(uint32_t rank, uint64_t query, const std::vector<State>& states,
                             uint32_t total) {
    Tell tell{};
    FillHeader(kTellMagic, states.size(), members_[rank]->peers[rank].process, &tell);
    tell.communicator_id = 77;
    tell.query = query;
    tell.from_rank = rank;
    tell.to_rank = 0;
    tell.total = total;
    tell.records = static_cast<uint32_t>(states.size());
    std::vector<char> bytes(sizeof tell + states.size() * sizeof(State));
    memcpy(bytes.data(), &tell, sizeof tell);
    for (size_t i = 0; i < states.size(); ++i)
      memcpy(bytes.data() + sizeof tell + i * sizeof(State), &states[i], sizeof(State));
    Sign<Tell>(bytes.data(), bytes.size(), members_[rank]->key);
    return bytes;
  }

  // A port of its own for the server; knobs are read once, so that it is the same for all tests.
  static SocketAddress SetPort() {
    static const SocketAddress port = [] {
      Fd reserved;
      SocketAddress free;
      EXPECT_TRUE(ParseAddress("127.0.0.1:0", &free).ok());
      EXPECT_TRUE(Listen(&free, 1, &reserved).ok());
      EXPECT_EQ(setenv("NCCL_RAS_ADDR", ("localhost:" + std::to_string(free.port())).c_str(), 1), 0);
      return free;
    }();
    return port;
  }
  // A client that wants a report as JSON.
  static Fd Ask(const SocketAddress& port) {
    Fd client;
    EXPECT_TRUE(Connect(port, AfterSeconds(10), true, &client).ok());
    const std::string said = "CLIENT PROTOCOL 2\nTIMEOUT 20\nSET FORMAT json\nSTATUS\n";
    EXPECT_TRUE(SendAll(client.get(), said.data(), said.size(), AfterSeconds(10)).ok());
    return client;
  }
  static std::string All(int fd) {
    std::string reply;
    char byte = 0;
    while (ReceiveAll(fd, &byte, 1, AfterSeconds(30)).ok()) reply += byte;
    return reply;
  }

  Gathering Gather(int timeout_s) {
    return Gathering({members_[0]}, members_[0]->peers[0].process, 5, timeout_s, 0);
  }

  std::vector<std::shared_ptr<Member>> members_;
};

TEST_F(RasPeersTest, AsksUntilItIsAnswered) {
  Gathering gathering = Gather(5);
  EXPECT_FALSE(gathering.over(0));
  gathering.Ask(0);
  for (const uint32_t rank : {1u, 2u}) {
    const std::vector<char> asked = Read(rank);
    ASSERT_TRUE(IsAsk(asked.data(), asked.size(), 77, rank, members_[rank]->key));
    EXPECT_FALSE(IsAsk(asked.data(), asked.size(), 77, 3 - rank, members_[rank]->key));
  }
  const std::vector<char> first = TellFrom(1, 5, {StateOf(77, 1, kRanks, 41)}, 1);
  ASSERT_TRUE(IsTell(first.data(), first.size(), 77, 0, members_[0]->key));
  gathering.Take(*members_[0], first.data(), first.size());
  gathering.Take(*members_[0], first.data(), first.size());  // twice is no harm
  EXPECT_FALSE(gathering.over(kSecond));
  gathering.Ask(kSecond);  // whom nothing was heard of, again
  EXPECT_EQ(Read(2).size(), sizeof(ras::Ask));
  // In two parts, the second first.
  const std::vector<char> b = TellFrom(2, 5, {StateOf(78, 0, 1, 1)}, 2);
  const std::vector<char> a = TellFrom(2, 5, {StateOf(77, 2, kRanks, 42)}, 2);
  gathering.Take(*members_[0], b.data(), b.size());
  EXPECT_FALSE(gathering.over(kSecond));
  gathering.Take(*members_[0], a.data(), a.size());
  EXPECT_TRUE(gathering.over(kSecond));
  const Report report = gathering.Finish(2 * kSecond);
  ASSERT_THAT(report.communicators, SizeIs(2));
  ASSERT_THAT(report.communicators[0].ranks, SizeIs(3));
  EXPECT_EQ(report.communicators[0].ranks[2].state.calls[kAllReduce], 42u);
  EXPECT_EQ(report.seconds, 2);
}

TEST_F(RasPeersTest, OfAnotherQueryNothingIsTaken) {
  Gathering gathering = Gather(5);
  const std::vector<char> old = TellFrom(1, 4, {StateOf(77, 1, kRanks, 41)}, 1);
  gathering.Take(*members_[0], old.data(), old.size());
  EXPECT_TRUE(gathering.over(5 * kSecond));
  EXPECT_THAT(gathering.Finish(5 * kSecond).communicators[0].missing, SizeIs(2));
}

TEST_F(RasPeersTest, ATimeoutOfZeroWaitsForEver) {
  EXPECT_FALSE(Gather(0).over(1000000 * kSecond));
}

TEST_F(RasPeersTest, WhereNobodyIsAnyMoreTheProcessIsDead) {
  Gathering gathering = Gather(5);
  gathering.Refused(*members_[0], members_[0]->peers[2].place);
  const std::vector<char> told = TellFrom(1, 5, {StateOf(77, 1, kRanks, 41)}, 1);
  gathering.Take(*members_[0], told.data(), told.size());
  EXPECT_TRUE(gathering.over(0));
  const Report report = gathering.Finish(0);
  ASSERT_THAT(report.communicators[0].missing, SizeIs(1));
  EXPECT_TRUE(report.communicators[0].missing[0].dead);
  EXPECT_EQ(report.timeouts, 0u);
}

// Communicators come and go while somebody asks: the report is begun again, and nobody is left without one.
TEST_F(RasPeersTest, WhoAsksWhileACommunicatorEndsIsAnsweredAllTheSame) {
  const SocketAddress port = SetPort();
  for (const auto& member : members_) {
    for (Peer& peer : member->peers) peer.process = CurrentProcess();
  }
  auto brief = std::make_shared<Member>();
  brief->communicator_id = 88;
  brief->peers = members_[0]->peers;
  brief->peers[1].process.pid = 4'000'000;  // nobody answers for it
  brief->key = members_[0]->key;
  brief->state = [] { return StateOf(88, 0, kRanks, 1); };
  SocketAddress place;
  ASSERT_TRUE(ParseAddress("127.0.0.1:0", &place).ok());
  ASSERT_TRUE(OpenSocket(place, &brief->socket).ok());
  Register(members_[0]);
  Register(brief);
  const Fd client = Ask(port);
  usleep(300'000);  // it waits for rank 1
  Unregister(brief);
  const std::string reply = All(client.get());
  EXPECT_THAT(reply, HasSubstr("\"communicators_count\": 1"));
  EXPECT_THAT(reply, HasSubstr("\"AllReduce\": 40"));
  Unregister(members_[0]);
}

// It has left that communicator, and lives.
TEST_F(RasPeersTest, WhoIsGoneFromOnePlaceIsAskedAtTheNext) {
  auto second = std::make_shared<Member>();
  second->communicator_id = 88;
  second->peers = members_[0]->peers;
  second->key = members_[0]->key;
  second->state = [] { return StateOf(88, 0, kRanks, 1); };
  SocketAddress place;
  ASSERT_TRUE(ParseAddress("127.0.0.1:0", &place).ok());
  ASSERT_TRUE(OpenSocket(place, &second->socket).ok());
  Gathering gathering({members_[0], second}, members_[0]->peers[0].process, 5, 5, 0);
  gathering.Refused(*members_[0], members_[0]->peers[1].place);
  EXPECT_FALSE(gathering.over(0));
  gathering.Ask(1);
  std::vector<char> asked;
  do asked = Read(1);
  while (!asked.empty() && !IsAsk(asked.data(), asked.size(), 88, 1, second->key));
  EXPECT_FALSE(asked.empty());
}

// All of one server, over TCP and over datagrams: rank 1 answers by the test's hand, nobody is where rank 2
// was.
TEST_F(RasPeersTest, ThePortAnswersForAllProcesses) {
  const SocketAddress port = SetPort();
  const wire::ProcessIdentity own = CurrentProcess();
  for (const auto& member : members_) member->peers[0].process = own;
  members_[2]->socket.Reset();
  Register(members_[0]);
  const Fd client = Ask(port);
  const std::vector<char> asked = Read(1);
  ASSERT_TRUE(IsAsk(asked.data(), asked.size(), 77, 1, members_[1]->key));
  ras::Ask ask;
  memcpy(&ask, asked.data(), sizeof ask);
  const std::vector<char> told = TellFrom(1, ask.query, {StateOf(77, 1, kRanks, 41)}, 1);
  const SocketAddress& to = members_[1]->peers[0].place;
  ASSERT_EQ(sendto(members_[1]->socket.get(), told.data(), told.size(), 0,
                   reinterpret_cast<const sockaddr*>(&to.storage), to.length),
            static_cast<ssize_t>(told.size()));
  const std::string reply = All(client.get());
  EXPECT_THAT(reply, ::testing::StartsWith("SERVER PROTOCOL 2\nOK\nOK\n{"));
  EXPECT_THAT(reply, HasSubstr("\"AllReduce\": 40"));
  EXPECT_THAT(reply, HasSubstr("\"AllReduce\": 41"));
  EXPECT_THAT(reply, HasSubstr("\"missing_ranks_count\": 1"));
  EXPECT_THAT(reply, HasSubstr("\"considered_dead\": true"));
  EXPECT_THAT(reply, HasSubstr("\"timeouts_count\": 0"));
  // And it answers the others: what they are told goes to where they are known to be.
  ras::Ask question{};
  FillHeader(kAskMagic, 0, members_[1]->peers[1].process, &question);
  question.communicator_id = 77;
  question.query = 9;
  question.from_rank = 1;
  Sign<ras::Ask>(&question, sizeof question, members_[1]->key);
  ASSERT_EQ(sendto(members_[1]->socket.get(), &question, sizeof question, 0,
                   reinterpret_cast<const sockaddr*>(&to.storage), to.length),
            static_cast<ssize_t>(sizeof question));
  const std::vector<char> answer = Read(1);
  EXPECT_TRUE(IsTell(answer.data(), answer.size(), 77, 1, members_[1]->key));
  EXPECT_EQ(answer.size(), sizeof(Tell) + sizeof(State));
  Unregister(members_[0]);
  Fd nobody;
  EXPECT_FALSE(Connect(port, AfterSeconds(2), false, &nobody).ok());
}

TEST_F(RasPeersTest, WhatIsForgedOrCutOffIsNoMessage) {
  const std::vector<char> good = TellFrom(1, 5, {StateOf(77, 1, kRanks, 41), StateOf(78, 0, 1, 1)}, 2);
  const Sha256Digest& key = members_[0]->key;
  ASSERT_TRUE(IsTell(good.data(), good.size(), 77, 0, key));
  for (size_t bit = 0; bit < 8 * good.size(); ++bit) {
    std::vector<char> bad = good;
    bad[bit / 8] = static_cast<char>(bad[bit / 8] ^ (1 << bit % 8));
    EXPECT_FALSE(IsTell(bad.data(), bad.size(), 77, 0, key)) << bit;
  }
  for (size_t bytes = 0; bytes < good.size(); ++bytes) EXPECT_FALSE(IsTell(good.data(), bytes, 77, 0, key));
  EXPECT_FALSE(IsTell(good.data(), good.size(), 77, 0, HmacSha256("", 0, "other", 5)));
  EXPECT_FALSE(IsAsk(good.data(), good.size(), 77, 0, key));
}

}  // namespace
}  // namespace c4::ras
