// The built library in front of a double of the vendor's: which one it finds and refuses, what is handed on
// and how, and that what it writes down is right.
#include "tests/unit/ccl/front_door.h"

#include <atomic>
#include <bit>
#include <cstring>
#include <dlfcn.h>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include "ccl/include/c4/stream.h"
#include "ccl/include/nccl_device.h"

namespace c4::front_door {
namespace {

constexpr const char* kVersion = "2.28.9";

std::map<std::string, std::string> WithVendor(const std::string& version = kVersion) {
  return {{"C4_VENDOR_LIBRARY", Double(version)}};
}

void ExpectGood(const std::map<std::string, std::string>& environment,
                const std::function<std::string()>& body) {
  const std::string fault = InChild(environment, body);
  EXPECT_EQ(fault, "");
}

// A world of `count` ranks, of which this is one.
ncclComm_t World(Door& door, int rank, int count) {
  ncclUniqueId id;
  ncclComm_t comm = nullptr;
  if (DOOR(door, ncclGetUniqueId)(&id) != ncclSuccess) return nullptr;
  if (DOOR(door, ncclCommInitRank)(&comm, count, id, rank) != ncclSuccess) return nullptr;
  return comm;
}

const wire::CommunicatorSlot* Ready(const std::vector<wire::CommunicatorSlot>& slots, size_t nth = 0) {
  for (const wire::CommunicatorSlot& slot : slots) {
    if (slot.phase == wire::kPhaseReady && nth-- == 0) return &slot;
  }
  return nullptr;
}

cudaStream_t Stream(uintptr_t value) {
  return std::bit_cast<cudaStream_t>(value);
}

TEST(FrontDoor, AnswersAreTheVendors) {
  ExpectGood(WithVendor(), [] {
    Door door;
    int version = 0;
    DOOR_CHECK(DOOR(door, ncclGetVersion)(&version) == ncclSuccess && version == 22809);
    DOOR_CHECK(std::string(DOOR(door, ncclGetErrorString)(ncclSystemError)) == "the double's error");
    DOOR_CHECK(std::string(DOOR(door, ncclGetLastError)(nullptr)) == "the double's last error");
    void* memory = nullptr;
    DOOR_CHECK(DOOR(door, ncclMemAlloc)(&memory, 64) == ncclSuccess && memory != nullptr);
    DOOR_CHECK(DOOR(door, ncclMemFree)(memory) == ncclSuccess);
    Vendor vendor;
    DOOR_CHECK(vendor.Calls("ncclMemFree") == 1);
    return std::string();
  });
}

TEST(FrontDoor, OperationsAreHandedOnAndCounted) {
  ExpectGood(WithVendor(), [] {
    Door door;
    ncclComm_t comm = World(door, 1, 4);
    DOOR_CHECK(comm != nullptr);
    char send = 0;
    char recv = 0;
    DOOR_CHECK(DOOR(door, ncclAllReduce)(&send, &recv, 10, ncclFloat32, ncclMax, comm, Stream(5)) ==
               ncclSuccess);
    Vendor vendor;
    const fake_vendor::LastCall last = vendor.Last();
    DOOR_CHECK(std::string(last.name) == "ncclAllReduce");
    DOOR_CHECK(last.arguments[0] == reinterpret_cast<uintptr_t>(&send) && last.arguments[2] == 10 &&
               last.arguments[3] == ncclMax && last.arguments[4] == reinterpret_cast<uintptr_t>(comm) &&
               last.arguments[5] == 5);
    DOOR_CHECK(DOOR(door, ncclReduce)(&send, &recv, 1, ncclInt8, ncclSum, 2, comm, nullptr) == ncclSuccess);
    DOOR_CHECK(DOOR(door, ncclBcast)(&recv, 1, ncclInt8, 3, comm, nullptr) == ncclSuccess);
    DOOR_CHECK(vendor.Calls("ncclBroadcast") == 1);
    DOOR_CHECK(DOOR(door, ncclBroadcast)(&send, &recv, 1, ncclInt8, 3, comm, nullptr) == ncclSuccess);
    DOOR_CHECK(DOOR(door, ncclReduceScatter)(&send, &recv, 1, ncclInt8, ncclSum, comm, nullptr) ==
               ncclSuccess);
    DOOR_CHECK(DOOR(door, ncclAllGather)(&send, &recv, 1, ncclInt8, comm, nullptr) == ncclSuccess);
    DOOR_CHECK(DOOR(door, ncclAlltoAll)(&send, &recv, 1, ncclInt8, comm, nullptr) == ncclSuccess);
    DOOR_CHECK(DOOR(door, ncclGather)(&send, &recv, 1, ncclInt8, 0, comm, nullptr) == ncclSuccess);
    DOOR_CHECK(DOOR(door, ncclScatter)(&send, &recv, 7, ncclFloat16, 0, comm, Stream(9)) == ncclSuccess);
    DOOR_CHECK(DOOR(door, ncclSend)(&send, 1, ncclInt8, 2, comm, nullptr) == ncclSuccess);
    DOOR_CHECK(DOOR(door, ncclRecv)(&recv, 1, ncclInt8, 2, comm, nullptr) == ncclSuccess);
    const auto slots = Door::Communicators();
    const wire::CommunicatorSlot* slot = Ready(slots);
    DOOR_CHECK(slot != nullptr && slot->rank == 1 && slot->rank_count == 4);
    DOOR_CHECK(slot->engine == wire::kEngineVendor);
    DOOR_CHECK(slot->called.count == 9 && slot->enqueued.count == 9);
    DOOR_CHECK(slot->p2p_called.count == 2 && slot->p2p_enqueued.count == 2);
    DOOR_CHECK(slot->last_called.function == wire::kScatter && slot->last_called.count == 7 &&
               slot->last_called.data_type == ncclFloat16 && slot->last_called.root == 0);
    DOOR_CHECK(slot->called.stream == 9);
    DOOR_CHECK(slot->started.count == 0);
    return std::string();
  });
}

TEST(FrontDoor, RefusedOperationsAreNotCounted) {
  ExpectGood(WithVendor(), [] {
    Door door;
    ncclComm_t comm = World(door, 0, 2);
    Vendor vendor;
    vendor.Answer("ncclAllReduce", ncclInvalidArgument);
    DOOR_CHECK(DOOR(door, ncclAllReduce)(nullptr, nullptr, 1, ncclInt8, ncclSum, comm, nullptr) ==
               ncclInvalidArgument);
    vendor.Answer("ncclAllReduce", ncclSuccess);
    DOOR_CHECK(DOOR(door, ncclAllReduce)(nullptr, nullptr, 1, ncclInt8, ncclSum, comm, nullptr) ==
               ncclSuccess);
    const auto slots = Door::Communicators();
    DOOR_CHECK(Ready(slots)->called.count == 1 && Ready(slots)->enqueued.count == 1);
    return std::string();
  });
}

TEST(FrontDoor, GroupsEnqueueAtTheirEnd) {
  ExpectGood(WithVendor(), [] {
    Door door;
    ncclComm_t comm = World(door, 0, 2);
    DOOR(door, ncclGroupStart)();
    DOOR(door, ncclGroupStart)();
    DOOR(door, ncclSend)(nullptr, 1, ncclInt8, 1, comm, nullptr);
    DOOR(door, ncclRecv)(nullptr, 1, ncclInt8, 1, comm, nullptr);
    DOOR(door, ncclGroupEnd)();
    DOOR_CHECK(Ready(Door::Communicators()) != nullptr);
    auto slots = Door::Communicators();
    DOOR_CHECK(Ready(slots)->p2p_called.count == 2 && Ready(slots)->p2p_enqueued.count == 0);
    DOOR_CHECK(DOOR(door, ncclGroupEnd)() == ncclSuccess);
    slots = Door::Communicators();
    DOOR_CHECK(Ready(slots)->p2p_enqueued.count == 2);
    Vendor vendor;
    DOOR_CHECK(vendor.Calls("ncclGroupStart") == 2 && vendor.Calls("ncclGroupEnd") == 2);
    return std::string();
  });
}

TEST(FrontDoor, CommunicatorsAreKnownFromTheirMakingToTheirEnd) {
  ExpectGood(WithVendor(), [] {
    Door door;
    Vendor early;
    ncclUniqueId id;
    DOOR_CHECK(DOOR(door, ncclGetUniqueId)(&id) == ncclSuccess);
    Vendor vendor;
    // What fails is not there.
    vendor.Answer("ncclCommInitRank", ncclUnhandledCudaError);
    ncclComm_t none = nullptr;
    DOOR_CHECK(DOOR(door, ncclCommInitRank)(&none, 2, id, 0) == ncclUnhandledCudaError && none == nullptr);
    DOOR_CHECK(Ready(Door::Communicators()) == nullptr);
    DOOR_CHECK(Door::Communicators().front().phase == wire::kPhaseFailed);
    vendor.Answer("ncclCommInitRank", ncclSuccess);
    ncclComm_t world = nullptr;
    DOOR_CHECK(DOOR(door, ncclCommInitRank)(&world, 8, id, 3) == ncclSuccess);
    ncclComm_t half = nullptr;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.commName = "half";
    DOOR_CHECK(DOOR(door, ncclCommSplit)(world, 1, 2, &half, &config) == ncclSuccess);
    ncclComm_t no_part = world;
    DOOR_CHECK(DOOR(door, ncclCommSplit)(world, NCCL_SPLIT_NOCOLOR, 0, &no_part, nullptr) == ncclSuccess);
    DOOR_CHECK(no_part == nullptr);
    int excluded[] = {0, 1};
    ncclComm_t less = nullptr;
    DOOR_CHECK(DOOR(door, ncclCommShrink)(world, excluded, 2, &less, nullptr, 0) == ncclSuccess);
    auto slots = Door::Communicators();
    const wire::CommunicatorSlot* a = Ready(slots, 0);
    const wire::CommunicatorSlot* b = Ready(slots, 1);
    const wire::CommunicatorSlot* c = Ready(slots, 2);
    DOOR_CHECK(a != nullptr && b != nullptr && c != nullptr && Ready(slots, 3) == nullptr);
    DOOR_CHECK(a->rank == 3 && a->rank_count == 8 && a->parent_id == 0);
    DOOR_CHECK(b->parent_id == a->communicator_id && b->rank == 2 && b->rank_count == 4);
    DOOR_CHECK(std::string(b->name) == "half");
    DOOR_CHECK(c->parent_id == a->communicator_id && c->rank == 3 && c->rank_count == 6);
    DOOR_CHECK(a->communicator_id != b->communicator_id && b->communicator_id != c->communicator_id);
    DOOR_CHECK(DOOR(door, ncclCommFinalize)(half) == ncclSuccess);
    DOOR_CHECK(DOOR(door, ncclCommDestroy)(half) == ncclSuccess);
    DOOR_CHECK(DOOR(door, ncclCommAbort)(less) == ncclSuccess);
    int destroyed = 0;
    int aborted = 0;
    for (const auto& slot : Door::Communicators()) {
      destroyed += slot.phase == wire::kPhaseDestroyed ? 1 : 0;
      aborted += slot.phase == wire::kPhaseAborted ? 1 : 0;
    }
    DOOR_CHECK(destroyed == 1 && aborted == 1);
    DOOR_CHECK(DOOR(door, ncclCommDestroy)(world) == ncclSuccess);
    return std::string();
  });
}

// The id of a communicator is the same on all ranks: what it is made of does not depend on the process.
TEST(FrontDoor, RanksAgreeOnIds) {
  const auto ids = [](int rank) {
    return InChild(WithVendor(), [rank] {
      Door door;
      ncclComm_t world = World(door, rank, 4);
      ncclComm_t half = nullptr;
      DOOR(door, ncclCommSplit)(world, 1, rank, &half, nullptr);
      const auto slots = Door::Communicators();
      return std::to_string(Ready(slots, 0)->communicator_id) + " " +
             std::to_string(Ready(slots, 1)->communicator_id);
    });
  };
  EXPECT_EQ(ids(0), ids(1));
}

TEST(FrontDoor, CommunicatorsThatDoNotBlockAreReadyWhenTheySaySo) {
  ExpectGood(WithVendor(), [] {
    Door door;
    ncclUniqueId id;
    DOOR(door, ncclGetUniqueId)(&id);
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    ncclComm_t world = nullptr;
    DOOR_CHECK(DOOR(door, ncclCommInitRankConfig)(&world, 4, id, 1, &config) == ncclInProgress);
    DOOR_CHECK(Ready(Door::Communicators()) == nullptr);
    ncclResult_t error = ncclInProgress;
    for (int i = 0; i < 3 && error == ncclInProgress; ++i) DOOR(door, ncclCommGetAsyncError)(world, &error);
    DOOR_CHECK(error == ncclSuccess);
    DOOR_CHECK(Ready(Door::Communicators()) != nullptr);
    // Its child's rank can be asked for only then.
    ncclComm_t half = nullptr;
    DOOR_CHECK(DOOR(door, ncclCommSplit)(world, 0, 1, &half, &config) == ncclInProgress);
    DOOR_CHECK(Ready(Door::Communicators(), 1) == nullptr);
    do {
      DOOR(door, ncclCommGetAsyncError)(half, &error);
    } while (error == ncclInProgress);
    const auto slots = Door::Communicators();
    DOOR_CHECK(Ready(slots, 1) != nullptr && Ready(slots, 1)->rank == 1 && Ready(slots, 1)->rank_count == 2);
    return std::string();
  });
}

TEST(FrontDoor, CommunicatorsMadeInAGroup) {
  ExpectGood(WithVendor(), [] {
    Door door;
    ncclUniqueId id;
    DOOR(door, ncclGetUniqueId)(&id);
    ncclComm_t comms[2] = {};
    DOOR(door, ncclGroupStart)();
    DOOR(door, ncclCommInitRank)(&comms[0], 2, id, 0);
    DOOR(door, ncclCommInitRank)(&comms[1], 2, id, 1);
    DOOR_CHECK(DOOR(door, ncclGroupEnd)() == ncclSuccess);
    auto slots = Door::Communicators();
    DOOR_CHECK(Ready(slots, 1) != nullptr &&
               Ready(slots, 0)->communicator_id == Ready(slots, 1)->communicator_id);
    ncclComm_t all[3] = {};
    DOOR_CHECK(DOOR(door, ncclCommInitAll)(all, 3, nullptr) == ncclSuccess);
    slots = Door::Communicators();
    DOOR_CHECK(Ready(slots, 4) != nullptr && Ready(slots, 5) == nullptr);
    DOOR_CHECK(Ready(slots, 4)->rank == 2 && Ready(slots, 4)->rank_count == 3);
    return std::string();
  });
}

TEST(FrontDoor, WhatIsNotLookedAtPassesUntouched) {
  ExpectGood(WithVendor("2.32.3"), [] {
    Door door;
    using Words = uint64_t (*)(uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t);
    // The very first call, so that the library is looked for with all arguments in registers.
    DOOR_CHECK(door.Call<Words>("ncclPutSignal")(1, 2, 3, 4, 5, 6) == 91);
    using Mixed =
        double (*)(double, uint64_t, double, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t);
    DOOR_CHECK(door.Call<Mixed>("ncclWaitSignal")(1.5, 1, 2.25, 2, 3, 4, 5, 6, 7) == 15 + 2.25 + 28);
    ncclComm_t comm = World(door, 2, 5);
    const ncclTeam_t team = DOOR(door, ncclTeamWorld)(comm);
    DOOR_CHECK(team.nRanks == 5 && team.rank == 2 && team.stride == 7);
    DOOR_CHECK(DOOR(door, ncclTeamRankToWorld)(comm, team, 4) == 2000 + 500 + 70 + 4);
    int count = 0;
    DOOR_CHECK(DOOR(door, ncclCommCount)(comm, &count) == ncclSuccess && count == 5);
    Vendor vendor("2.32.3");
    DOOR_CHECK(door.Call<Words>("ncclCommSuspend")(reinterpret_cast<uintptr_t>(comm), 1, 0, 0, 0, 0) ==
               reinterpret_cast<uintptr_t>(comm) + 2);
    DOOR_CHECK(vendor.Calls("ncclCommSuspend") == 1);
    // Looked at, with an argument more than we know of.
    using Config = ncclResult_t (*)(const void*, void*, size_t, ncclDataType_t, ncclRedOp_t, ncclComm_t,
                                    cudaStream_t, const void*);
    char config = 0;
    DOOR_CHECK(door.Call<Config>("ncclAllReduceConfig")(nullptr, nullptr, 3, ncclInt8, ncclSum, comm, nullptr,
                                                        &config) == ncclSuccess);
    DOOR_CHECK(vendor.Last().arguments[5] == reinterpret_cast<uintptr_t>(&config));
    const auto slots = Door::Communicators();
    DOOR_CHECK(Ready(slots)->called.count == 1);
    return std::string();
  });
}

TEST(FrontDoor, EveryCommittedNameIsCallable) {
  std::ifstream file(Variable("C4_SOURCE_DIR") + "/ccl/api/exports.txt");  // NOLINT(concurrency-mt-unsafe)
  std::vector<std::string> names;
  for (std::string line; std::getline(file, line);) names.push_back(line);
  ASSERT_GT(names.size(), 100u);
  ExpectGood(WithVendor(), [&names] {
    Door door;
    for (const std::string& name : names) {
      if (door.Symbol(name.c_str()) == nullptr) return name + " is not there";
    }
    return std::string();
  });
}

TEST(FrontDoor, WhatTheVendorsReleaseLacksSaysSo) {
  ExpectGood(WithVendor("2.24.0"), [] {
    Door door;
    ncclComm_t comm = World(door, 0, 2);
    DOOR_CHECK(DOOR(door, ncclAlltoAll)(nullptr, nullptr, 1, ncclInt8, comm, nullptr) == ncclInvalidUsage);
    DOOR_CHECK(Ready(Door::Communicators())->called.count == 0);
    DOOR_CHECK(door.Call<int (*)(ncclComm_t, int)>("ncclCommSuspend")(comm, 0) == ncclInvalidUsage);
    DOOR_CHECK(door.Call<int (*)(const char*)>("ncclParamBind")("X") == ncclInvalidUsage);
    return std::string();
  });
}

// A vendor's library that was loaded before us and found by everybody: its own calls come to us.
TEST(FrontDoor, CallsOfTheVendorsItselfCountOnce) {
  ExpectGood(WithVendor(), [] {
    // Ours first and for all to see, as a program linked against it has it.
    DOOR_CHECK(dlopen(OurLibrary().c_str(), RTLD_NOW | RTLD_GLOBAL) != nullptr);
    DOOR_CHECK(dlopen(Double(kVersion).c_str(), RTLD_NOW | RTLD_GLOBAL) != nullptr);
    Door door;
    ncclComm_t comm = World(door, 0, 2);
    DOOR_CHECK(DOOR(door, ncclBcast)(nullptr, 1, ncclInt8, 0, comm, nullptr) == ncclSuccess);
    Vendor vendor;
    DOOR_CHECK(vendor.Calls("ncclBcast") == 1 && vendor.Calls("ncclBroadcast") == 1);
    DOOR_CHECK(Ready(Door::Communicators())->called.count == 1);
    ncclComm_t all[2] = {};
    DOOR_CHECK(DOOR(door, ncclCommInitAll)(all, 2, nullptr) == ncclSuccess);
    const auto slots = Door::Communicators();
    DOOR_CHECK(Ready(slots, 2) != nullptr && Ready(slots, 3) == nullptr);
    return std::string();
  });
}

TEST(FrontDoor, TheChildOfAForkOnlyHandsOn) {
  ExpectGood(WithVendor(), [] {
    Door door;
    ncclComm_t comm = World(door, 0, 2);
    DOOR(door, ncclAllReduce)(nullptr, nullptr, 1, ncclInt8, ncclSum, comm, nullptr);
    const pid_t child = fork();
    if (child == 0) {
      const bool good =
          DOOR(door, ncclAllReduce)(nullptr, nullptr, 1, ncclInt8, ncclSum, comm, nullptr) == ncclSuccess &&
          DOOR(door, ncclCommDestroy)(comm) == ncclSuccess && World(door, 0, 1) != nullptr;
      _exit(good ? 0 : 1);
    }
    int status = 0;
    waitpid(child, &status, 0);
    DOOR_CHECK(status == 0);
    const auto slots = Door::Communicators();
    DOOR_CHECK(Ready(slots) != nullptr && Ready(slots)->called.count == 1 && Ready(slots, 1) == nullptr);
    return std::string();
  });
}

TEST(FrontDoor, UnloadingIsHarmlessWhileCommunicatorsLive) {
  ExpectGood(WithVendor(), [] {
    Door door;
    ncclComm_t comm = World(door, 0, 2);
    const auto all_reduce = DOOR(door, ncclAllReduce);
    dlclose(door.handle());
    DOOR_CHECK(all_reduce(nullptr, nullptr, 1, ncclInt8, ncclSum, comm, nullptr) == ncclSuccess);
    Door again;
    DOOR_CHECK(DOOR(again, ncclCommDestroy)(comm) == ncclSuccess);
    return std::string();
  });
}

TEST(FrontDoor, TwoCopiesInOneProcess) {
  ExpectGood(WithVendor(), [] {
    const std::string copy = Variable("C4_RUN_DIR") + "/libcopy.so";  // NOLINT(concurrency-mt-unsafe)
    std::ifstream from(OurLibrary(), std::ios::binary);
    std::ofstream(copy, std::ios::binary) << from.rdbuf();
    Door first;
    Door second(copy);
    DOOR_CHECK(second.error().empty());
    ncclComm_t a = World(first, 0, 2);
    ncclComm_t b = World(second, 1, 2);
    DOOR_CHECK(DOOR(first, ncclAllReduce)(nullptr, nullptr, 1, ncclInt8, ncclSum, a, nullptr) == ncclSuccess);
    DOOR_CHECK(DOOR(second, ncclAllReduce)(nullptr, nullptr, 1, ncclInt8, ncclSum, b, nullptr) ==
               ncclSuccess);
    Vendor vendor;
    DOOR_CHECK(vendor.Calls("ncclAllReduce") == 2);
    return std::string();
  });
}

TEST(FrontDoor, ThreadsAndCommunicatorsAreCountedRight) {
  ExpectGood(WithVendor(), [] {
    Door door;
    constexpr int kThreads = 4;
    constexpr int kCalls = 2000;
    std::atomic<bool> good{true};
    std::vector<ncclComm_t> comms(kThreads);
    for (ncclComm_t& comm : comms) comm = World(door, 0, 2);
    std::vector<std::thread> threads;
    for (int t = 0; t < kThreads; ++t) {
      threads.emplace_back([&, t] {
        for (int i = 0; i < kCalls; ++i) {
          // Its own, and every tenth on one that all use.
          ncclComm_t comm = comms[i % 10 == 0 ? 0 : static_cast<size_t>(t)];
          if (DOOR(door, ncclAllReduce)(nullptr, nullptr, 1, ncclInt8, ncclSum, comm, nullptr) != ncclSuccess)
            good = false;
          if (i % 100 != 0) continue;
          ncclComm_t brief = World(door, 1, 2);
          if (DOOR(door, ncclCommDestroy)(brief) != ncclSuccess) good = false;
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    DOOR_CHECK(good.load());
    uint64_t called = 0;
    uint64_t enqueued = 0;
    const auto slots = Door::Communicators();
    for (size_t i = 0; const wire::CommunicatorSlot* slot = Ready(slots, i); ++i) {
      called += slot->called.count;
      enqueued += slot->enqueued.count;
    }
    DOOR_CHECK(called == kThreads * kCalls && enqueued == called);
    return std::string();
  });
}

TEST(FrontDoor, WithoutAVendorsLibraryTheHostEngineServes) {
  ExpectGood({{"C4_ENGINE", "host"}, {"C4_VENDOR_LIBRARY", "/nowhere"}}, [] {
    Door door;
    ncclComm_t comm = World(door, 0, 1);
    DOOR_CHECK(comm != nullptr && (reinterpret_cast<uintptr_t>(comm) & 1) == 1);
    int count = 0;
    DOOR_CHECK(DOOR(door, ncclCommCount)(comm, &count) == ncclSuccess && count == 1);
    DOOR_CHECK(DOOR(door, ncclTeamWorld)(comm).nRanks == 0);
    DOOR_CHECK(door.Call<int (*)(int)>("ncclParamBind")(1) == ncclInvalidUsage);
    using Config = ncclResult_t (*)(const void*, void*, size_t, ncclDataType_t, ncclRedOp_t, ncclComm_t,
                                    cudaStream_t, const void*);
    float send = 3;
    float recv = 0;
    DOOR_CHECK(door.Call<Config>("ncclAllReduceConfig")(&send, &recv, 1, ncclFloat32, ncclSum, comm, nullptr,
                                                        nullptr) == ncclSuccess);
    DOOR_CHECK(DOOR(door, ncclCommDestroy)(comm) == ncclSuccess && recv == 3);
    return std::string();
  });
}

// An id says whose it is: one made by a process without a vendor's library is joined on host memory by all.
TEST(FrontDoor, AnIdOfTheHostEngineIsJoinedByTheHostEngine) {
  int there[2];
  ASSERT_EQ(pipe(there), 0);
  const pid_t maker = fork();
  if (maker == 0) {
    const std::string text = InChild({{"C4_ENGINE", "host"}, {"C4_SHM", "0"}}, [&] {
      Door door;
      ncclUniqueId id;
      DOOR_CHECK(DOOR(door, ncclGetUniqueId)(&id) == ncclSuccess);
      DOOR_CHECK(write(there[1], &id, sizeof id) == static_cast<ssize_t>(sizeof id));
      ncclComm_t comm = nullptr;
      DOOR_CHECK(DOOR(door, ncclCommInitRank)(&comm, 2, id, 0) == ncclSuccess);
      DOOR_CHECK(DOOR(door, ncclCommDestroy)(comm) == ncclSuccess);
      return std::string();
    });
    _exit(text.empty() ? 0 : 1);
  }
  auto environment = WithVendor();
  environment["C4_SHM"] = "0";
  ExpectGood(environment, [&] {
    Door door;
    ncclUniqueId id;
    DOOR_CHECK(read(there[0], &id, sizeof id) == static_cast<ssize_t>(sizeof id));
    ncclComm_t comm = nullptr;
    DOOR_CHECK(DOOR(door, ncclCommInitRank)(&comm, 2, id, 1) == ncclSuccess);
    DOOR_CHECK((reinterpret_cast<uintptr_t>(comm) & 1) == 1);
    int rank = 0;
    DOOR_CHECK(DOOR(door, ncclCommUserRank)(comm, &rank) == ncclSuccess && rank == 1);
    DOOR_CHECK(Ready(Door::Communicators())->engine == wire::kEngineHost);
    DOOR_CHECK(DOOR(door, ncclCommDestroy)(comm) == ncclSuccess);
    Vendor vendor;
    DOOR_CHECK(vendor.Calls("ncclCommInitRank") == 0);
    return std::string();
  });
  int status = 0;
  waitpid(maker, &status, 0);
  EXPECT_EQ(status, 0);
  close(there[0]);
  close(there[1]);
}

// Beside communicators of the vendor's, in one process.
TEST(FrontDoor, AnIdForHostMemoryIsTheHostEnginesBesideAVendorToo) {
  ExpectGood(WithVendor(), [] {
    Door door;
    ncclComm_t on_gpus = World(door, 0, 2);
    DOOR_CHECK((reinterpret_cast<uintptr_t>(on_gpus) & 1) == 0);
    ncclUniqueId id;
    ncclUniqueId other;
    DOOR_CHECK(DOOR(door, c4HostUniqueId)(&id) == ncclSuccess &&
               DOOR(door, c4HostUniqueId)(&other) == ncclSuccess);
    DOOR_CHECK(memcmp(&id, &other, sizeof id) != 0);
    DOOR_CHECK(DOOR(door, c4HostUniqueId)(nullptr) == ncclInvalidArgument);
    ncclComm_t comm = nullptr;
    DOOR_CHECK(DOOR(door, ncclCommInitRank)(&comm, 1, id, 0) == ncclSuccess);
    DOOR_CHECK((reinterpret_cast<uintptr_t>(comm) & 1) == 1);
    DOOR_CHECK(DOOR(door, ncclCommDestroy)(comm) == ncclSuccess);
    return std::string();
  });
}

}  // namespace
}  // namespace c4::front_door
