// Stamps through the built library: around which calls of the program they are put, with doubles of the
// vendor's library and of the driver.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <memory>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/double/fake_cuda.h"
#include "tests/unit/ccl/front_door.h"

namespace c4::front_door {
namespace {

template <typename Function>
Function Cuda(const char* name) {
  // By its name: the library finds it only where the process has it.
  static void* const library =
      dlopen((BuildFolder() + "/tests/doubles/fake_cuda.so").c_str(), RTLD_NOW | RTLD_LOCAL);
  return library == nullptr ? nullptr : reinterpret_cast<Function>(dlsym(library, name));
}

void Launch(void* stream) {
  Cuda<fake_cuda::Work>("fake_cuda_work")(stream, 100'000);
}

uint64_t Launches() {
  return Cuda<fake_cuda::CountCalls>("fake_cuda_calls")("cuLaunchKernel");
}

// A world of one of four ranks, whose operations are work on a stream of the double's.
struct Job {
  explicit Job(const std::string& version) {
    ncclUniqueId id;
    if (DOOR(door, ncclGetUniqueId)(&id) != ncclSuccess) return;
    vendor = std::make_unique<Vendor>(version);
    stream = static_cast<cudaStream_t>(Cuda<fake_cuda::MakeStream>("fake_cuda_stream")());
    void* const library = dlopen(Double(version).c_str(), RTLD_NOW | RTLD_NOLOAD);
    reinterpret_cast<fake_vendor::SetLaunch>(dlsym(library, "fake_set_launch"))(&Launch);
    if (DOOR(door, ncclCommInitRank)(&comm, 4, id, 1) != ncclSuccess) return;
    launches_before = Launches();
  }
  ncclResult_t Reduce() {
    return DOOR(door, ncclAllReduce)(&word, &word, 1, ncclFloat32, ncclSum, comm, stream);
  }
  uint64_t Stamped() const { return Launches() - launches_before; }
  // Once all that has been launched is over, and read.
  wire::CommunicatorSlot Slot(uint64_t finished) {
    Cuda<fake_cuda::Synchronize>("fake_cuda_synchronize")(stream);
    wire::CommunicatorSlot slot{};
    for (int i = 0; i < 500; ++i) {
      const std::vector<wire::CommunicatorSlot> slots = Door::Communicators();
      if (!slots.empty()) slot = slots.front();
      if (slot.finished.count + slot.p2p_finished.count >= finished) break;
      usleep(2000);
    }
    return slot;
  }

  Door door;
  std::unique_ptr<Vendor> vendor;
  ncclComm_t comm = nullptr;
  cudaStream_t stream = nullptr;
  uint64_t launches_before = 0;
  float word = 0;
};

std::map<std::string, std::string> Environment(const std::string& version, const std::string& stamps) {
  return {{"C4_VENDOR_LIBRARY", Double(version)}, {"C4_KERNEL_STAMPS", stamps}};
}

void ExpectGood(const std::string& version, const std::string& stamps,
                const std::function<std::string()>& body) {
  EXPECT_EQ(InChild(Environment(version, stamps), body), "");
}

TEST(FrontDoorStamps, OneBeforeAndOneAfterEachCall) {
  ExpectGood("2.28.9", "stamp", [] {
    Job job("2.28.9");
    DOOR_CHECK(job.comm != nullptr);
    for (int i = 0; i < 3; ++i) DOOR_CHECK(job.Reduce() == ncclSuccess);
    DOOR_CHECK(job.Stamped() == 6);
    const wire::CommunicatorSlot slot = job.Slot(3);
    DOOR_CHECK(slot.finished.count == 3 && slot.started.count == 3);
    DOOR_CHECK((slot.seen & wire::kSeesKernels) != 0);
    DOOR_CHECK(DOOR(job.door, ncclCommDestroy)(job.comm) == ncclSuccess);
    return std::string();
  });
}

TEST(FrontDoorStamps, AGroupIsStampedAsOne) {
  ExpectGood("2.28.9", "stamp", [] {
    Job job("2.28.9");
    DOOR_CHECK(DOOR(job.door, ncclGroupStart)() == ncclSuccess);
    for (int peer : {0, 2, 3}) {
      DOOR_CHECK(DOOR(job.door, ncclSend)(&job.word, 1, ncclFloat32, peer, job.comm, job.stream) ==
                 ncclSuccess);
      DOOR_CHECK(DOOR(job.door, ncclRecv)(&job.word, 1, ncclFloat32, peer, job.comm, job.stream) ==
                 ncclSuccess);
    }
    DOOR_CHECK(job.Stamped() == 0);
    DOOR_CHECK(DOOR(job.door, ncclGroupEnd)() == ncclSuccess);
    DOOR_CHECK(job.Stamped() == 2);
    const wire::CommunicatorSlot slot = job.Slot(6);
    DOOR_CHECK(slot.p2p_started.count == 6 && slot.p2p_finished.count == 6);
    return std::string();
  });
}

TEST(FrontDoorStamps, ARefusedCallHasNoStampAfter) {
  ExpectGood("2.28.9", "stamp", [] {
    Job job("2.28.9");
    job.vendor->Answer("ncclAllReduce", ncclInvalidArgument);
    DOOR_CHECK(job.Reduce() == ncclInvalidArgument);
    DOOR_CHECK(job.Stamped() == 1);
    job.vendor->Answer("ncclAllReduce", ncclSuccess);
    DOOR_CHECK(job.Reduce() == ncclSuccess);
    const wire::CommunicatorSlot slot = job.Slot(1);
    DOOR_CHECK(slot.called.count == 1 && slot.finished.count == 1);
    return std::string();
  });
}

// Its launch is on a thread of the vendor's, and happens when it says so.
TEST(FrontDoorStamps, ACallThatIsUnderWayIsStampedWhenItIsLaunched) {
  ExpectGood("2.28.9", "stamp", [] {
    Job job("2.28.9");
    job.vendor->Answer("ncclAllReduce", ncclInProgress);
    DOOR_CHECK(job.Reduce() == ncclInProgress);
    DOOR_CHECK(job.Stamped() == 1);
    Launch(job.stream);
    ncclResult_t state = ncclInternalError;
    DOOR_CHECK(DOOR(job.door, ncclCommGetAsyncError)(job.comm, &state) == ncclSuccess &&
               state == ncclSuccess);
    DOOR_CHECK(job.Stamped() == 2);
    DOOR_CHECK(job.Slot(1).finished.count == 1);
    // Or, where nobody asks, with the next call.
    DOOR_CHECK(job.Reduce() == ncclInProgress);
    DOOR_CHECK(job.Stamped() == 3);
    Launch(job.stream);
    job.vendor->Answer("ncclAllReduce", ncclSuccess);
    DOOR_CHECK(job.Reduce() == ncclSuccess);
    DOOR_CHECK(job.Stamped() == 6);
    DOOR_CHECK(job.Slot(3).finished.count == 3);
    return std::string();
  });
}

TEST(FrontDoorStamps, ByDefaultOnlyWhereTheVendorHasNoTimes) {
  ExpectGood("2.24.0", "auto", [] {
    Job job("2.24.0");
    DOOR_CHECK(job.Reduce() == ncclSuccess);
    DOOR_CHECK(job.Stamped() == 2);
    return std::string();
  });
  for (const char* stamps : {"auto", "profiler", "off"}) {
    ExpectGood("2.28.9", stamps, [] {
      Job job("2.28.9");
      DOOR_CHECK(job.Reduce() == ncclSuccess);
      DOOR_CHECK(job.Stamped() == 0);
      DOOR_CHECK(Cuda<fake_cuda::CountCalls>("fake_cuda_calls")("cuModuleLoadData") == 0);
      return std::string();
    });
  }
}

TEST(FrontDoorStamps, AJobRunsOnWithoutThem) {
  ExpectGood("2.28.9", "stamp", [] {
    Cuda<fake_cuda::FailCalls>("fake_cuda_fail")("cuModuleLoadData", 218, 1);
    Job job("2.28.9");
    DOOR_CHECK(job.comm != nullptr);
    DOOR_CHECK(job.Reduce() == ncclSuccess);
    DOOR_CHECK(job.Stamped() == 0);
    const wire::CommunicatorSlot slot = job.Slot(0);
    DOOR_CHECK(slot.enqueued.count == 1 && (slot.seen & wire::kSeesKernels) == 0);
    return std::string();
  });
}

// A child of a fork only hands on.
TEST(FrontDoorStamps, AForkedChildIsNotStamped) {
  ExpectGood("2.28.9", "stamp", [] {
    Job job("2.28.9");
    const pid_t child = fork();
    if (child == 0) _exit(job.Reduce() == ncclSuccess && job.Stamped() == 0 ? 0 : 1);
    int status = 1;
    waitpid(child, &status, 0);
    DOOR_CHECK(status == 0);
    return std::string();
  });
}

}  // namespace
}  // namespace c4::front_door
