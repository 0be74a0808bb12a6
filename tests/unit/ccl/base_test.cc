#include <gtest/gtest.h>
#include <map>
#include <string>
#include <sys/resource.h>

#include "ccl/base/clock.h"
#include "ccl/base/identity.h"
#include "ccl/base/knobs.h"
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
