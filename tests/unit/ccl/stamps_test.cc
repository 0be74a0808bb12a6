// Stamps through a double of CUDA's driver, which runs the kernel that we carry: times, captures, graphs,
// wrapped rings, and every way for the driver to refuse.
#include "ccl/engine/vendor/stamps.h"

#include <cstdlib>
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <string>
#include <sys/wait.h>
#include <unistd.h>

#include "ccl/base/clock.h"
#include "tests/double/fake_cuda.h"
#include "tests/unit/ccl/stamps_world.h"

namespace c4::vendor {
namespace {

using ::testing::HasSubstr;

template <typename Function>
Function Cuda(const char* name) {
  static void* const library = [] {
    const char* const build = getenv("C4_BUILD_DIR");  // NOLINT(concurrency-mt-unsafe)
    const std::string path = std::string(build == nullptr ? "build" : build) + "/tests/doubles/fake_cuda.so";
    return dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  }();
  EXPECT_NE(library, nullptr);
  return reinterpret_cast<Function>(dlsym(library, name));
}

void* MakeStream() {
  return Cuda<fake_cuda::MakeStream>("fake_cuda_stream")();
}
void Work(void* stream, uint64_t ns) {
  Cuda<fake_cuda::Work>("fake_cuda_work")(stream, ns);
}
void Synchronize(void* stream) {
  Cuda<fake_cuda::Synchronize>("fake_cuda_synchronize")(stream);
}
uint64_t Calls(const char* name) {
  return Cuda<fake_cuda::CountCalls>("fake_cuda_calls")(name);
}
void FailCalls(const char* name, int code, int times = 1) {
  Cuda<fake_cuda::FailCalls>("fake_cuda_fail")(name, code, times);
}
uint64_t Number(void* stream) {
  return reinterpret_cast<uint64_t>(stream);
}

// Before any test has loaded the double.
TEST(StampsWithoutADriver, ThereAreNone) {
  const pid_t child = fork();
  if (child == 0) {
    StampWorld world;
    Stamps* stamps = nullptr;
    const Result opened = Stamps::Open(0, world.communicator, &stamps);
    _exit(!opened.ok() && opened.message().find("not loaded") != std::string::npos ? 0 : 1);
  }
  int status = 1;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
}

class StampsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(Calls("cuInit"), 0u);  // loads the double
    const Result opened = Stamps::Open(0, world_.communicator, &stamps_);
    ASSERT_TRUE(opened.ok()) << opened.message();
    stream_ = MakeStream();
  }
  void TearDown() override {
    if (stamps_ != nullptr) stamps_->Close();
    EXPECT_EQ(Cuda<fake_cuda::Faults>("fake_cuda_faults")(), 0u);
    EXPECT_EQ(Calls("cuInit"), 0u) << "that is the framework's to call";
  }
  // A call that takes `ns`, as the front door stamps it.
  void Operate(uint64_t ns, uint64_t count = 10) {
    const StampedCall call = world_.Call(Number(stream_), count, NowTicks());
    const StampedBatch batch = stamps_->Before(Number(stream_), &call, 1);
    ASSERT_NE(batch.stamps, nullptr);
    Work(stream_, ns);
    stamps_->After(batch);
  }
  void Finish() {
    Synchronize(stream_);
    stamps_->Poll();
  }
  double Milliseconds(uint64_t ticks) const {
    return static_cast<double>(ticks) * 1e3 /
           static_cast<double>(Monitor::Get().segment().header().ticks_per_second);
  }

  StampWorld world_;
  Stamps* stamps_ = nullptr;
  void* stream_ = nullptr;
};

TEST_F(StampsTest, TimesAreThoseOfTheStream) {
  // The GPU's clock is learnt from what is heard soon: on a busy machine that takes some tries.
  constexpr uint64_t kTries = 30;
  for (uint64_t i = 0; i < kTries; ++i) {
    Operate(100'000);
    Finish();
  }
  Work(stream_, 20'000'000);
  Operate(10'000'000);
  Operate(1'000'000);
  EXPECT_EQ(world_.Slot().started.count, kTries) << "the stream is not there yet";
  Finish();
  EXPECT_EQ(world_.Slot().finished.count, kTries + 2);
  ASSERT_EQ(world_.Records(), kTries + 2);
  const wire::OperationRecord first = world_.Record(kTries);
  const wire::OperationRecord second = world_.Record(kTries + 1);
  EXPECT_GE(Milliseconds(first.started_ticks - first.called_ticks), 15);
  EXPECT_GE(Milliseconds(first.finished_ticks - first.started_ticks), 9);
  EXPECT_GE(second.started_ticks + 1000, first.finished_ticks);
  EXPECT_GE(Milliseconds(second.finished_ticks - second.started_ticks), 0.9);
  EXPECT_NE(world_.Slot().seen & wire::kSeesKernels, 0u);
}

TEST_F(StampsTest, TheThreadReadsByItself) {
  Operate(1000);
  Synchronize(stream_);
  for (int i = 0; i < 500 && world_.Slot().finished.count == 0; ++i) usleep(1000);
  EXPECT_EQ(world_.Slot().finished.count, 1u);
}

TEST_F(StampsTest, AGraphKeepsStampingWithOtherNumbers) {
  Cuda<fake_cuda::BeginCapture>("fake_cuda_begin_capture")(stream_);
  Operate(100'000);
  void* const graph = Cuda<fake_cuda::EndCapture>("fake_cuda_end_capture")(stream_);
  ASSERT_NE(graph, nullptr) << "our calls spoiled the capture";
  EXPECT_EQ(world_.Slot().finished.count, 1u);
  for (uint64_t i = 1; i <= 5; ++i) {
    Cuda<fake_cuda::LaunchGraph>("fake_cuda_launch_graph")(graph, stream_);
    Finish();
    EXPECT_EQ(world_.Slot().finished.count, 1 + i);
  }
  EXPECT_EQ(world_.Records(), 5u);
}

TEST_F(StampsTest, ASetUpDuringACaptureSpoilsNothing) {
  void* const captured = MakeStream();
  Cuda<fake_cuda::BeginCapture>("fake_cuda_begin_capture")(captured);
  Stamps* second = nullptr;
  const Result opened = Stamps::Open(1, world_.Open(2), &second);
  EXPECT_TRUE(opened.ok()) << opened.message();
  EXPECT_NE(Cuda<fake_cuda::EndCapture>("fake_cuda_end_capture")(captured), nullptr);
  if (second != nullptr) second->Close();
}

TEST_F(StampsTest, ALaunchOfALaterThreadIsStampedLater) {
  const StampedCall call = world_.Call(Number(stream_), 10, NowTicks());
  const StampedBatch batch = stamps_->Before(Number(stream_), &call, 1);
  stamps_->Later(batch);
  EXPECT_TRUE(stamps_->waits_for_launch());
  Finish();
  EXPECT_EQ(world_.Slot().started.count, 1u);
  EXPECT_EQ(world_.Slot().finished.count, 0u);
  Work(stream_, 1000);
  stamps_->Settle(true);
  EXPECT_FALSE(stamps_->waits_for_launch());
  Finish();
  EXPECT_EQ(world_.Slot().finished.count, 1u);
}

// More stamps than the ring has room for while nobody reads: the newest are there, the others are counted,
// and nothing is read twice or in halves.
TEST_F(StampsTest, AFullRingLosesTheOldest) {
  Cuda<fake_cuda::Hold>("fake_cuda_hold")(stream_, 1);
  const uint32_t calls = Stamps::kRecords;  // two stamps each
  for (uint32_t i = 0; i < calls; ++i) Operate(0);
  Cuda<fake_cuda::Hold>("fake_cuda_hold")(stream_, 0);
  Finish();
  EXPECT_LE(stamps_->counts().read + stamps_->counts().strange, 2u * calls);
  Operate(1000);
  Finish();
  EXPECT_EQ(world_.Slot().finished.count, calls + 1u) << "what is behind it is over";
}

TEST_F(StampsTest, ALaterCommunicatorTakesThePlaceOfAnEarlierOne) {
  Operate(1000);
  Finish();
  Stamps* const earlier = stamps_;
  stamps_->Close();
  world_.communicator = world_.Open(2);
  const uint64_t modules = Calls("cuModuleLoadData");
  do {  // first closed, first used
    ASSERT_TRUE(Stamps::Open(0, world_.communicator, &stamps_).ok());
  } while (stamps_ != earlier);
  EXPECT_EQ(Calls("cuModuleLoadData"), modules);
  Operate(1000);
  Finish();
  EXPECT_EQ(world_.Slot(1).finished.count, 1u);
}

TEST_F(StampsTest, AStreamThatTakesNoKernelsIsLeftAlone) {
  FailCalls("cuStreamIsCapturing", 906);
  const StampedCall call = world_.Call(Number(stream_), 10, NowTicks());
  EXPECT_EQ(stamps_->Before(Number(stream_), &call, 1).stamps, nullptr);
  FailCalls("cuLaunchKernel", 901);
  EXPECT_EQ(stamps_->Before(Number(stream_), &call, 1).stamps, nullptr) << "a capture that was spoiled";
  Operate(1000);  // and the next is stamped again
  Finish();
  EXPECT_EQ(world_.Slot().finished.count, 2u);
}

TEST_F(StampsTest, AGpuThatIsLostEndsTheStamps) {
  FailCalls("cuLaunchKernel", 700);
  const StampedCall call = world_.Call(Number(stream_), 10, NowTicks());
  EXPECT_EQ(stamps_->Before(Number(stream_), &call, 1).stamps, nullptr);
  const uint64_t launches = Calls("cuLaunchKernel");
  EXPECT_EQ(stamps_->Before(Number(stream_), &call, 1).stamps, nullptr);
  EXPECT_EQ(Calls("cuLaunchKernel"), launches);
}

// In a process of its own each, since a device is tried once.
std::string OpensWith(const char* failing, int code) {
  int ends[2];
  if (pipe(ends) != 0) return "no pipe";
  const pid_t child = fork();
  if (child == 0) {
    Calls("");  // loads it
    if (failing != nullptr) FailCalls(failing, code, 1);
    StampWorld world;
    Stamps* stamps = nullptr;
    const Result opened = Stamps::Open(5, world.communicator, &stamps);
    const std::string text = opened.ok() ? "opened" : opened.message();
    _exit(write(ends[1], text.data(), text.size()) < 0 ? 1 : 0);
  }
  close(ends[1]);
  char text[512] = {};
  const ssize_t got = read(ends[0], text, sizeof text - 1);
  close(ends[0]);
  waitpid(child, nullptr, 0);
  return got < 0 ? "" : text;
}

TEST(StampsRefused, SayWhoRefusedAndWhy) {
  for (const char* call : {"cuDeviceGet", "cuDevicePrimaryCtxRetain", "cuCtxPushCurrent", "cuModuleLoadData",
                           "cuModuleGetFunction", "cuMemHostGetDevicePointer", "cuStreamCreate"}) {
    const std::string symbol = std::string(call) + (std::string(call) == "cuCtxPushCurrent"            ? "_v2"
                                                    : std::string(call) == "cuMemHostGetDevicePointer" ? "_v2"
                                                                                                       : "");
    EXPECT_THAT(OpensWith(symbol.c_str(), 218),
                ::testing::AllOf(HasSubstr(call), HasSubstr("CUDA_ERROR_INVALID_PTX (218)")));
  }
  EXPECT_THAT(OpensWith("cuLaunchKernel", 700), HasSubstr("cannot be launched"));
}

}  // namespace
}  // namespace c4::vendor
