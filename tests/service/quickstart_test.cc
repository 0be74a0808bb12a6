// docs/quickstart-c.md as it stands: its program is examples/quickstart.c, its commands are run by a user in
// a folder of his own, and what it promises to print is printed. And what examples/devices.c says of bad
// input.
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sstream>

#include "tests/service/harness.h"
#include "tests/service/page.h"

namespace c4::service_test {
namespace {

using testing::HasSubstr;

class QuickstartTest : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_NE(getenv("C4_SOURCE_DIR"), nullptr);
    source_ = getenv("C4_SOURCE_DIR");
    MakeHome(home_.path(), source_);
  }

  // The script's exit status; what it prints is in output_ and errors_.
  int Run(const std::string& script) {
    const std::string file = home_.path() + "/commands.sh";
    WriteFile(file, "set -e\ncd " + home_.path() + "\n" + script);
    Process shell({"/bin/bash", file}, HomeEnvironment(home_.path()), home_.path() + "/shell");
    if (!shell.Wait(Seconds(120))) return -1;
    output_ = shell.Output();
    errors_ = shell.Errors();
    return shell.exit_code();
  }

  const ScratchDir home_;
  std::string source_;
  std::string output_;
  std::string errors_;
};

TEST_F(QuickstartTest, EveryCommandOfThePageDoesWhatItSays) {
  std::ifstream file(source_ + "/examples/quickstart.c");
  std::stringstream program;
  program << file.rdbuf();
  std::string script;
  std::vector<std::string> promised;
  size_t programs = 0;
  for (const Block& block : BlocksOf(source_ + "/docs/quickstart-c.md")) {
    if (block.language == "sh") script += block.text;
    if (block.language == "c") {
      EXPECT_EQ(block.text, program.str());
      ++programs;
    }
    if (block.language != "text") continue;
    for (const std::string& line : LinesOf(block.text)) promised.push_back(line);
  }
  ASSERT_EQ(programs, 1U);
  ASSERT_GE(promised.size(), 6U);
  EXPECT_EQ(Run(script), 0) << output_ << errors_;
  for (const std::string& line : promised) EXPECT_THAT(output_, HasSubstr(line + "\n")) << errors_;
}

// Builds both, as the page does, for the tests below.
constexpr char kBuild[] =
    "export LD_LIBRARY_PATH=$HOME/c4/build/lib C4_ENGINE=host C4_CONTROL=0 NCCL_SOCKET_IFNAME=lo\n"
    "build='-Wall -Wextra -Werror -I c4/examples/host_cuda -I c4/ccl/include -L c4/build/lib'\n"
    "cc $build c4/examples/devices.c c4/examples/host_cuda/host_cuda.c -o devices -lnccl\n";

TEST_F(QuickstartTest, BadInputIsRefusedWithASentence) {
  const std::string script = std::string(kBuild) +
                             "! HOST_CUDA_DEVICES=none ./devices\n"
                             "! HOST_CUDA_DEVICES=0 ./devices\n"
                             "! HOST_CUDA_DEVICES=4096 ./devices\n"
                             "! ./devices 3 2 id\n"
                             "echo short >id\n"
                             "! ./devices 1 2 id\n"
                             "! ./devices 0 2 /nowhere/id\n";
  EXPECT_EQ(Run(script), 0) << output_ << errors_;
  EXPECT_EQ(output_, "");
  EXPECT_THAT(errors_, HasSubstr("HOST_CUDA_DEVICES says how many there are"));
  EXPECT_THAT(errors_, HasSubstr("there is no device"));
  EXPECT_THAT(errors_, HasSubstr("usage: devices [RANK SIZE FILE]"));
  EXPECT_THAT(errors_, HasSubstr("id holds no id"));
  EXPECT_THAT(errors_, HasSubstr("/nowhere/id: No such file or directory"));
}

// The calls of NCCL's examples that devices.c does not make, from C++ as they are.
constexpr char kCalls[] = R"(
#include "cuda_runtime.h"
#include "nccl.h"
#include <cstdio>
#include <cstdlib>
#define EXPECT(is, wanted) do { if ((is) != (wanted)) { printf("line %d\n", __LINE__); return 1; } } while (0)
int main() {
  int count = 0;
  cudaDeviceProp properties;
  cudaStream_t stream, other;
  cudaEvent_t event;
  float *values, sum[4] = {1, 2, 3, 4};
  EXPECT(cudaGetDeviceCount(&count), cudaSuccess);
  EXPECT(cudaGetDeviceProperties(&properties, count - 1), cudaSuccess);
  EXPECT(properties.totalGlobalMem > 0, true);
  EXPECT(cudaSetDevice(1), cudaSuccess);
  EXPECT(cudaGetDevice(&count), cudaSuccess);
  EXPECT(count, 1);
  EXPECT(cudaStreamCreate(&stream), cudaSuccess);
  EXPECT(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking), cudaSuccess);
  EXPECT(cudaMalloc(&values, sizeof sum), cudaSuccess);
  EXPECT(cudaMemsetAsync(values, 0, sizeof sum, stream), cudaSuccess);
  EXPECT(cudaMemcpyAsync(values, sum, sizeof sum, cudaMemcpyHostToDevice, stream), cudaSuccess);
  ncclUniqueId id;
  ncclComm_t comm;
  EXPECT(ncclGetUniqueId(&id), ncclSuccess);
  EXPECT(ncclCommInitRank(&comm, 1, id, 0), ncclSuccess);
  EXPECT(ncclAllReduce(values, values, 4, ncclFloat, ncclSum, comm, stream), ncclSuccess);
  EXPECT(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), cudaSuccess);
  EXPECT(cudaEventRecord(event, stream), cudaSuccess);
  EXPECT(cudaStreamWaitEvent(other, event, 0), cudaSuccess);
  EXPECT(cudaEventSynchronize(event), cudaSuccess);
  EXPECT(cudaEventQuery(event), cudaSuccess);
  EXPECT(cudaMemcpy(sum, values, sizeof sum, cudaMemcpyDeviceToHost), cudaSuccess);
  EXPECT(sum[3], 4);
  EXPECT(cudaDeviceSynchronize(), cudaSuccess);
  EXPECT(ncclCommFinalize(comm), ncclSuccess);
  EXPECT(ncclCommDestroy(comm), ncclSuccess);
  EXPECT(cudaFree(values), cudaSuccess);
  EXPECT(cudaEventDestroy(event), cudaSuccess);
  EXPECT(cudaStreamDestroy(other), cudaSuccess);
  EXPECT(cudaStreamDestroy(stream), cudaSuccess);
  // Bad input.
  EXPECT(cudaSetDevice(2), cudaErrorInvalidDevice);
  EXPECT(cudaPeekAtLastError(), cudaErrorInvalidDevice);
  EXPECT(cudaGetLastError(), cudaErrorInvalidDevice);
  EXPECT(cudaGetLastError(), cudaSuccess);
  EXPECT(cudaStreamDestroy(stream), cudaErrorInvalidResourceHandle);
  EXPECT(cudaStreamSynchronize(stream), cudaErrorInvalidResourceHandle);
  EXPECT(cudaMemcpy(sum, nullptr, 4, cudaMemcpyDefault), cudaErrorInvalidValue);
  EXPECT(cudaMemset(nullptr, 0, 4), cudaErrorInvalidValue);
  EXPECT(cudaMalloc(&values, size_t{1} << 60), cudaErrorMemoryAllocation);
  EXPECT(cudaMalloc(&values, 0), cudaSuccess);
  EXPECT(values == nullptr, true);
  EXPECT(cudaFree(nullptr), cudaSuccess);
  puts("all of it");
}
)";

TEST_F(QuickstartTest, TheStandInDoesWhatNcclsExamplesAskOfCuda) {
  WriteFile(home_.path() + "/calls.cc", kCalls);
  const std::string script = std::string(kBuild) +
                             "g++ $build calls.cc -x c++ c4/examples/host_cuda/host_cuda.c -o calls -lnccl\n"
                             "./calls\n";
  EXPECT_EQ(Run(script), 0) << output_ << errors_;
  EXPECT_EQ(output_, "all of it\n");
}

}  // namespace
}  // namespace c4::service_test
