// The program c4-validate-worker in front of doubles of NVIDIA's libraries (tests/double/fake_gpu.cc): which
// GPU it takes, by what it multiplies, what it says when that fails. That the kernel of our own is taken by
// the real assembler is checked by hand (docs/failslow.md); no GPU is needed, nor could speeds be shown,
// here.
#include <cstdio>
#include <cstdlib>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <string>
#include <unistd.h>

namespace c4 {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

std::string Build() {
  // NOLINTNEXTLINE(concurrency-mt-unsafe): the only thread
  const char* const build = getenv("C4_BUILD_DIR");
  return build == nullptr ? "build" : build;
}

// What it says to `input`, with these folders of doubles and variables.
std::string Says(const std::string& folders, const std::string& variables, const std::string& arguments,
                 const std::string& input = "devices 60") {
  std::string path;
  for (const char folder : folders) {
    path += (path.empty() ? "" : ":") + Build() + "/tests/fake_gpu/" +
            (folder == 'd'   ? "driver"
             : folder == 'b' ? "cublas"
                             : "nvml");
  }
  const std::string command = "echo '" + input + "' | env LD_LIBRARY_PATH=" + path + " " + variables + " " +
                              Build() + "/bin/c4-validate-worker " + arguments + " 2>&1";
  FILE* const pipe = popen(command.c_str(), "r");
  std::string text;
  char piece[4096];
  for (size_t bytes = 0; (bytes = fread(piece, 1, sizeof piece, pipe)) > 0;) text.append(piece, bytes);
  pclose(pipe);
  return text;
}

TEST(GpuTester, MultipliesByCublasInAllPrecisions) {
  const std::string text = Says("db", "", "--gpu 1");
  EXPECT_THAT(text, HasSubstr("Double 1, cuBLAS\n"));
  for (const char* const test : {" fp64=", " fp32=", " tf32=", " fp16=", " bf16="})
    EXPECT_THAT(text, HasSubstr(test));
}

TEST(GpuTester, WithoutCublasByItsOwnKernel) {
  const std::string text = Says("d", "", "--gpu 0");
  EXPECT_THAT(text, HasSubstr("Double 0, own kernel\n"));
  EXPECT_THAT(text, HasSubstr("device fp64="));
  EXPECT_THAT(text, HasSubstr(" fp32="));
  EXPECT_THAT(text, Not(HasSubstr("fp16")));
}

TEST(GpuTester, TakesTheGpuOfTheProcess) {
  const std::string pid = std::to_string(getpid());
  EXPECT_THAT(Says("dn", "FAKE_GPU_COUNT=4 FAKE_GPU_PID=" + pid, "--of-pid " + pid), HasSubstr("Double 3"));
  // A process on no GPU is tested where it computes.
  EXPECT_THAT(Says("dn", "FAKE_GPU_COUNT=4", "--of-pid " + pid),
              testing::AnyOf(HasSubstr("CPU, 1 thread"), HasSubstr("OpenBLAS")));
}

TEST(GpuTester, SaysWhatIsWrong) {
  EXPECT_THAT(Says("d", "", "--gpu 5"), HasSubstr("there is no GPU 5: there are 2"));
  EXPECT_THAT(Says("d", "FAKE_GPU_COUNT=0", "--gpu 0"), HasSubstr("there is no GPU here"));
  EXPECT_THAT(Says("", "", "--gpu 0"), HasSubstr("there is no GPU here"));
  EXPECT_THAT(Says("d", "FAKE_GPU_FREE_BYTES=100", "--gpu 0"), HasSubstr("left no memory"));
  EXPECT_THAT(Says("db", "FAKE_GPU_ERRS=9", "--gpu 0"), HasSubstr("device fault a "));
}

}  // namespace
}  // namespace c4
