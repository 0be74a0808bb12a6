#include <algorithm>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <map>
#include <poll.h>
#include <signal.h>
#include <string>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ccl/base/clock.h"
#include "ccl/base/fork.h"
#include "ccl/base/identity.h"
#include "ccl/base/knobs.h"
#include "ccl/base/log.h"
#include "ccl/base/sha256.h"
#include "ccl/base/socket.h"
#include "ccl/base/thread.h"

namespace c4 {
namespace {

TEST(Knobs, NumbersStayInTheirRange) {
  int64_t number = 7;
  EXPECT_TRUE(ParseNumber("16", "16..1024", &number));
  EXPECT_EQ(number, 16);
  for (const char* bad : {"15", "1025", "", "x", "16x", "99999999999999999999", "1.5"}) {
    EXPECT_FALSE(ParseNumber(bad, "16..1024", &number)) << bad;
  }
  EXPECT_EQ(number, 16) << "a refused value must not be stored";
}

TEST(Knobs, ChoicesComeInTheTablesSpelling) {
  std::string choice;
  EXPECT_TRUE(ParseChoice("HOST", "auto|vendor|host", &choice));
  EXPECT_EQ(choice, "host");
  EXPECT_FALSE(ParseChoice("hos", "auto|vendor|host", &choice));
  EXPECT_FALSE(ParseChoice("", "auto|vendor|host", &choice));
}

TEST(Knobs, EveryDefaultIsInItsRange) {
#define C4_KNOB(name, type, default_value, range, help)               \
  if (std::string(#type) == "number") {                               \
    int64_t number = 0;                                               \
    EXPECT_TRUE(ParseNumber(default_value, range, &number)) << #name; \
  } else if (std::string(#type) == "choice") {                        \
    std::string choice;                                               \
    EXPECT_TRUE(ParseChoice(default_value, range, &choice)) << #name; \
  } else {                                                            \
    EXPECT_STREQ(#type, "text") << #name;                             \
  }
#include "ccl/include/c4/knobs.inc"
#undef C4_KNOB
}

TEST(Knobs, AreReadOnceAndAnewInAChild) {
  setenv("C4_CHANNELS", "3", 1);
  ForgetKnobs();
  EXPECT_EQ(KnobNumber(Knob::C4_CHANNELS), 3);
  setenv("C4_CHANNELS", "4", 1);
  setenv("C4_JOB_ID", "late", 1);
  EXPECT_EQ(KnobNumber(Knob::C4_CHANNELS), 3);
  EXPECT_FALSE(KnobIsSet(Knob::C4_JOB_ID)) << "the first use of any knob reads all";
  const pid_t child = fork();
  if (child == 0) _exit(static_cast<int>(KnobNumber(Knob::C4_CHANNELS)));
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(WEXITSTATUS(status), 4) << "a launcher's children have environments of their own";
  unsetenv("C4_CHANNELS");
  unsetenv("C4_JOB_ID");
  ForgetKnobs();
}

TEST(Knobs, AChoiceIsToldByItsPlace) {
  EXPECT_EQ(KnobChoiceNumber(Knob::C4_ALGORITHM), 0);
  EXPECT_EQ(KnobChoiceText(Knob::C4_ALGORITHM, 2), "tree");
  EXPECT_EQ(KnobChoiceText(Knob::C4_ALGORITHM, 99), "?");
}

JobIdentity Read(const std::map<std::string, std::string>& values) {
  return ReadJobIdentity([&](const char* name) -> const char* {
    const auto found = values.find(name);
    return found == values.end() ? nullptr : found->second.c_str();
  });
}

TEST(Identity, JobComesFromTheBestSource) {
  std::map<std::string, std::string> values = {{"C4_POD_JOB", "pod"}};
  EXPECT_EQ(Read(values).name, "pod");
  values["TORCHELASTIC_RUN_ID"] = "torch";
  EXPECT_EQ(Read(values).name, "torch");
  values["SLURM_JOB_ID"] = "12";
  values["SLURM_STEP_ID"] = "3";
  EXPECT_EQ(Read(values).name, "12.3");
  EXPECT_EQ(Read(values).source, wire::kJobSlurm);
  values["C4_JOB_ID"] = "mine";
  EXPECT_EQ(Read(values).name, "mine");
  EXPECT_EQ(Read({}).source, wire::kJobUnknown);
}

TEST(Identity, RankIsOnlyALabelAndMayBeMissing) {
  EXPECT_EQ(Read({}).rank, -1);
  EXPECT_EQ(Read({{"RANK", "3"}, {"SLURM_PROCID", "4"}}).rank, 3);
  EXPECT_EQ(Read({{"RANK", "three"}, {"SLURM_PROCID", "4"}}).rank, 4);
  EXPECT_EQ(Read({{"RANK", "-2"}}).rank, -1);
  EXPECT_EQ(Read({{"TORCHELASTIC_RESTART_COUNT", "5"}}).incarnation, 5u);
}

TEST(Identity, ThisProcessHasAnIdentity) {
  const wire::ProcessIdentity me = CurrentProcess();
  EXPECT_EQ(me.pid, static_cast<uint32_t>(getpid()));
  EXPECT_NE(me.start_time_ticks, 0u);
  uint8_t zero[16] = {};
  EXPECT_NE(memcmp(me.boot_id, zero, sizeof zero), 0);
}

TEST(Identity, HashIsPartOfTheFormats) {
  // Communicator ids have to be equal on ranks of different releases: these values may never change.
  EXPECT_EQ(HashBytes("", 0), 17665956581633026203u);
  EXPECT_EQ(HashBytes("c4", 2), 15144796432953553858u);
  EXPECT_NE(HashBytes("c4", 2, 1), HashBytes("c4", 2, 2));
}

TEST(Socket, AddressesAreReadAndWritten) {
  SocketAddress address;
  ASSERT_TRUE(ParseAddress("127.0.0.1:4791", &address).ok());
  EXPECT_EQ(address.ToString(), "127.0.0.1:4791");
  EXPECT_EQ(FromEndpoint(ToEndpoint(address)).ToString(), "127.0.0.1:4791");
  ASSERT_TRUE(ParseAddress("[fd00::1]:80", &address).ok());
  EXPECT_EQ(address.ToString(), "[fd00::1]:80");
  EXPECT_EQ(FromEndpoint(ToEndpoint(address)).ToString(), "[fd00::1]:80");
  for (const char* bad :
       {"", "127.0.0.1", "127.0.0.1:", "127.0.0.1:x", "127.0.0.1:70000", "host:1", "[::1:1"}) {
    EXPECT_FALSE(ParseAddress(bad, &address).ok()) << bad;
  }
}

TEST(Socket, InterfacesAreFilteredAsInNccl) {
  EXPECT_TRUE(InterfaceAllowed("", "eth0"));
  EXPECT_TRUE(InterfaceAllowed("eth", "eth0"));
  EXPECT_FALSE(InterfaceAllowed("eth", "ib0"));
  EXPECT_TRUE(InterfaceAllowed("eth,ib", "ib0"));
  EXPECT_FALSE(InterfaceAllowed("^lo,docker", "docker0"));
  EXPECT_TRUE(InterfaceAllowed("^lo,docker", "eth0"));
  EXPECT_FALSE(InterfaceAllowed("=eth", "eth0"));
  EXPECT_TRUE(InterfaceAllowed("=eth0", "eth0"));
  EXPECT_FALSE(InterfaceAllowed("^=eth0", "eth0"));
  SocketAddress address;
  EXPECT_TRUE(InterfaceAddress("lo", &address).ok());
  const Result none = InterfaceAddress("no-such-interface", &address);
  EXPECT_EQ(none.code(), ncclSystemError);
  EXPECT_NE(none.message().find("no-such-interface"), std::string::npos);
}

TEST(Socket, NothingWaitsPastItsDeadline) {
  SocketAddress address;
  ASSERT_TRUE(ParseAddress("127.0.0.1:0", &address).ok());
  Fd listener;
  ASSERT_TRUE(Listen(&address, 1, &listener).ok());
  Fd accepted;
  SocketAddress peer;
  const uint64_t before = MonotonicNs();
  EXPECT_FALSE(Accept(listener.get(), before + 20000000, &accepted, &peer).ok());
  Fd connected;
  ASSERT_TRUE(Connect(address, kNever, false, &connected).ok());
  char byte = 0;
  EXPECT_FALSE(ReceiveAll(connected.get(), &byte, 1, MonotonicNs() + 20000000).ok());
  EXPECT_GE(MonotonicNs() - before, 40000000u);
}

std::string Hex(const Sha256Digest& digest) {
  std::string text;
  for (const uint8_t byte : digest) {
    text += "0123456789abcdef"[byte >> 4];
    text += "0123456789abcdef"[byte & 15];
  }
  return text;
}

std::string HashOf(const std::string& text, size_t piece) {
  Sha256 hash;
  for (size_t at = 0; at < text.size(); at += piece) {
    hash.Add(text.data() + at, std::min(piece, text.size() - at));
  }
  return Hex(hash.Finish());
}

// Known answers of FIPS 180-4, in pieces of every length that matters.
TEST(Sha256, KnownAnswers) {
  for (const size_t piece : {1, 3, 55, 56, 63, 64, 65, 1000}) {
    EXPECT_EQ(HashOf("", piece), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    EXPECT_EQ(HashOf("abc", piece), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    EXPECT_EQ(HashOf("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq", piece),
              "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
    EXPECT_EQ(HashOf(std::string(1000000, 'a'), piece),
              "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
  }
}

// Known answers of RFC 4231: cases 1, 2, 3 and 6, whose key is longer than a block.
TEST(Sha256, KnownAnswersOfHmac) {
  const auto mac = [](const std::string& key, const std::string& data) {
    return Hex(HmacSha256(key.data(), key.size(), data.data(), data.size()));
  };
  EXPECT_EQ(mac(std::string(20, '\x0b'), "Hi There"),
            "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
  EXPECT_EQ(mac("Jefe", "what do ya want for nothing?"),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  EXPECT_EQ(mac(std::string(20, '\xaa'), std::string(50, '\xdd')),
            "773ea91e36800e46854db8ebd09181a72959098b3ef8c122d9635514ced565fe");
  EXPECT_EQ(mac(std::string(131, '\xaa'), "Test Using Larger Than Block-Size Key - Hash Key First"),
            "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
  EXPECT_TRUE(EqualInConstantTime("abcd", "abce", 3));
  EXPECT_FALSE(EqualInConstantTime("abcd", "abce", 4));
}

TEST(Log, StrangersCauseTenLinesAMinute) {
  LogLimit limit;
  uint64_t kept_back = 99;
  constexpr uint64_t kSecondNs = 1000000000u;
  uint64_t lines = 0;
  for (uint64_t i = 0; i < 3931; ++i) lines += limit.Pass(5 * kSecondNs + i, &kept_back) ? 1 : 0;
  EXPECT_EQ(lines, 10u);
  EXPECT_EQ(kept_back, 0u);
  EXPECT_FALSE(limit.Pass(64 * kSecondNs, &kept_back));
  EXPECT_TRUE(limit.Pass(65 * kSecondNs, &kept_back));
  EXPECT_EQ(kept_back, 3931u - 10u + 1u);
}

TEST(Log, AFailureHasOneWarningAndEchoes) {
  FailureLevel level;
  constexpr uint64_t kSecondNs = 1000000000u;
  EXPECT_EQ(level.Next(5 * kSecondNs), LogLevel::kWarn);
  EXPECT_EQ(level.Next(5 * kSecondNs), LogLevel::kInfo);
  EXPECT_EQ(level.Next(14 * kSecondNs), LogLevel::kInfo);
  EXPECT_EQ(level.Next(15 * kSecondNs), LogLevel::kWarn) << "something else";
}

// In a process of its own, for the log's file and the environment are the process's.
TEST(Log, AWarningNamesJobRankAndHost) {
  char file[] = "/tmp/c4-log-test-XXXXXX";
  const int fd = mkstemp(file);
  ASSERT_GE(fd, 0);
  const pid_t pid = fork();
  if (pid == 0) {
    setenv("NCCL_DEBUG_FILE", file, 1);
    setenv("NCCL_DEBUG", "INFO", 1);
    setenv("C4_JOB_ID", ("ni\x1b[31mght" + std::string(300, 'x')).c_str(), 1);
    setenv("RANK", "3", 1);
    ForgetKnobs();
    ResetLog();
    C4_WARN("the sentence");
    C4_INFO("the other");
    _exit(0);
  }
  int status = 0;
  waitpid(pid, &status, 0);
  char text[4096] = "";
  const ssize_t bytes = read(fd, text, sizeof text - 1);
  close(fd);
  unlink(file);
  ASSERT_GT(bytes, 0);
  const std::string log = text;
  EXPECT_EQ(log.rfind(HostName() + ":" + std::to_string(pid) + ":", 0), 0U) << log;
  EXPECT_NE(log.find(" [job ni?[31mghtxx"), std::string::npos) << log;
  EXPECT_NE(log.find("x..., rank 3] C4 WARN the sentence\n"), std::string::npos) << log;
  EXPECT_LT(log.find('\n'), 200U) << log;
  EXPECT_EQ(log.find('\x1b'), std::string::npos);
  EXPECT_NE(log.find(" C4 INFO the other"), std::string::npos) << log;
}

// A data loader keeps no stream of its parent open, and whatever else it inherited stays as it was.
TEST(Fork, AChildClosesItsParentsStreamsAndNothingElse) {
  CloseStreamsInChildren();
  int ends[2];
  int pipe_ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
  ASSERT_EQ(pipe(pipe_ends), 0);
  int theirs[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, theirs), 0);
  Fd ours(ends[0]);
  const Fd peer(ends[1]);
  const Fd no_stream(pipe_ends[1]);
  const pid_t child = fork();
  if (child == 0) {
    const bool closed = fcntl(ends[0], F_GETFD) < 0 && fcntl(ends[1], F_GETFD) < 0;
    const bool kept = fcntl(pipe_ends[1], F_GETFD) >= 0 && fcntl(theirs[0], F_GETFD) >= 0;
    // The number is another's now: the copy of an Fd must not close it.
    const int again = open("/dev/null", O_RDONLY);
    ours.Reset();
    const bool left_alone = again == ends[0] && fcntl(again, F_GETFD) >= 0;
    const char verdict = closed && kept && left_alone ? 'y' : 'n';
    if (write(pipe_ends[1], &verdict, 1) != 1) _exit(1);
    pause();
  }
  ours.Reset();
  char byte = 0;
  pollfd entry{peer.get(), POLLIN, 0};
  EXPECT_EQ(poll(&entry, 1, 2000), 1) << "the child holds the stream";
  EXPECT_EQ(recv(peer.get(), &byte, 1, MSG_DONTWAIT), 0);
  EXPECT_EQ(read(pipe_ends[0], &byte, 1), 1);
  EXPECT_EQ(byte, 'y');
  kill(child, SIGKILL);
  EXPECT_EQ(waitpid(child, nullptr, 0), child);
  for (const int fd : {theirs[0], theirs[1], pipe_ends[0]}) close(fd);
}

TEST(Thread, RunsWithItsNameAndNoSignalsButThoseOfItsFaults) {
  char name[16] = "";
  bool blocked = false;
  bool faults_reach_it = false;
  Thread thread;
  ASSERT_TRUE(thread
                  .Start("c4-test",
                         [&] {
                           pthread_getname_np(pthread_self(), name, sizeof name);
                           sigset_t mask;
                           pthread_sigmask(SIG_BLOCK, nullptr, &mask);
                           blocked = sigismember(&mask, SIGTERM) == 1 && sigismember(&mask, SIGUSR1) == 1;
                           faults_reach_it =
                               sigismember(&mask, SIGSEGV) == 0 && sigismember(&mask, SIGBUS) == 0;
                         })
                  .ok());
  thread.Join();
  EXPECT_STREQ(name, "c4-test");
  EXPECT_TRUE(blocked);
  EXPECT_TRUE(faults_reach_it);
}

TEST(Clock, TicksAreMonotonicAndRelatedToNanoseconds) {
  const ClockBase base = MeasureClock();
  const uint64_t ns = MonotonicNs();
  const uint64_t ticks = NowTicks();
  EXPECT_GE(ticks, base.ticks);
  const double elapsed =
      static_cast<double>(ticks - base.ticks) * 1e9 / static_cast<double>(base.ticks_per_second);
  EXPECT_NEAR(elapsed, static_cast<double>(ns - base.monotonic_ns), 1e6);
}

// Part of the formats: the same in every release.
TEST(Identity, IdsOfChildrenAreEqualEverywhere) {
  EXPECT_EQ(ChildCommunicatorId(0xc4c4000000000001, 2, 7), 0x499334be49cfe5d0u);
  EXPECT_EQ(ChildCommunicatorId(0xc4c4000000000001, 2, -2), 0xb4ee82c741ab6cd1u);
}

TEST(Socket, ListensOnTheFirstFreePortOfARange) {
  SocketAddress any;
  ASSERT_TRUE(ParseAddress("127.0.0.1:0", &any).ok());
  Fd holder;
  SocketAddress held = any;
  ASSERT_TRUE(Listen(&held, 1, &holder).ok());
  const unsigned low = held.port();
  const std::string range = std::to_string(low) + "-" + std::to_string(low + 20);
  Fd listener;
  SocketAddress address = any;
  const Result result = ListenWithin(range, &address, 1, &listener);
  ASSERT_TRUE(result.ok()) << result.message();
  EXPECT_GT(address.port(), low);
  EXPECT_LE(address.port(), low + 20);
  Fd none;
  SocketAddress full = any;
  EXPECT_EQ(ListenWithin(std::to_string(low) + "-" + std::to_string(low), &full, 1, &none).code(),
            ncclSystemError);
  for (const char* wrong : {"x", "0-5", "9-8", "1-70000", "5-", "5-6-7", "5x-6"}) {
    SocketAddress place = any;
    EXPECT_EQ(ListenWithin(wrong, &place, 1, &none).code(), ncclInvalidArgument) << wrong;
  }
  ASSERT_TRUE(ListenWithin("", &any, 1, &none).ok());
  EXPECT_NE(any.port(), 0u);
}

// Of descriptors: who wants to connect waits until one is free.
TEST(Socket, AShortageIsNoFaultOfTheListener) {
  SocketAddress address;
  ASSERT_TRUE(ParseAddress("127.0.0.1:0", &address).ok());
  Fd listener;
  ASSERT_TRUE(Listen(&address, 4, &listener).ok());
  Fd caller;
  ASSERT_TRUE(Connect(address, AfterSeconds(5), false, &caller).ok());
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit none = {3, before.rlim_max};  // fewer than are open: not one more
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  Fd accepted;
  SocketAddress from;
  bool any = true;
  bool shortage = false;
  const Result result = TryAccept(listener.get(), &accepted, &from, &any, &shortage);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_TRUE(result.ok()) << result.message();
  EXPECT_FALSE(any);
  EXPECT_TRUE(shortage);
  ASSERT_TRUE(TryAccept(listener.get(), &accepted, &from, &any, &shortage).ok());
  EXPECT_TRUE(any);
  EXPECT_FALSE(shortage);
}

}  // namespace
}  // namespace c4
