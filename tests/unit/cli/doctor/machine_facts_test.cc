// A machine read from a root of the test's own, and what is said of machines.
#include "cli/doctor/machine_facts.h"

#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/ccl/temp_dir.h"

namespace c4::cli {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr uint64_t kGiB = 1 << 30;

MachineFacts Good() {
  MachineFacts facts;
  facts.shared_memory = {64 * kGiB, 60 * kGiB};
  facts.open_files = {65536, 1048576};
  facts.locked_memory_bytes = {kUnlimited, kUnlimited};
  facts.processes = {100000, 100000};
  facts.invariant_tsc = true;
  facts.clock_source = "tsc";
  facts.clock_synchronised = true;
  facts.gpu_driver = "580.82.07";
  facts.gpus = 8;
  facts.rdma = {{"mlx5_0", 1, 1}, {"mlx5_1", 1, 1}};
  facts.verbs_devices = 2;
  return facts;
}

// The only finding that is not good, or is of that subject.
Finding Only(const MachineFacts& facts, const std::string& subject = "") {
  Finding found;
  int count = 0;
  for (const Finding& finding : JudgeMachine(facts)) {
    EXPECT_FALSE(finding.grade == Grade::kProblem && finding.advice.empty()) << finding.text;
    EXPECT_EQ(finding.text.find('\n'), std::string::npos) << finding.text;
    if (subject.empty() ? finding.grade == Grade::kOk : finding.subject != subject) continue;
    found = finding;
    ++count;
  }
  EXPECT_EQ(count, 1);
  return found;
}

TEST(JudgeMachineTest, NothingIsWrongWithAGoodOne) {
  for (const Finding& finding : JudgeMachine(Good())) EXPECT_EQ(finding.grade, Grade::kOk) << finding.text;
}

TEST(JudgeMachineTest, ABareOneIsNoProblem) {
  MachineFacts facts = Good();
  facts.gpu_driver = "";
  facts.gpus = 0;
  facts.rdma.clear();
  facts.verbs_devices = 0;
  facts.locked_memory_bytes = {65536, 65536};
  facts.invariant_tsc.reset();
  const Findings findings = JudgeMachine(facts);
  EXPECT_EQ(CountOf(findings, Grade::kProblem), 0);
  EXPECT_EQ(CountOf(findings, Grade::kNote), 2);
}

TEST(JudgeMachineTest, SharedMemory) {
  MachineFacts facts = Good();
  facts.shared_memory = {64 << 20, 64 << 20};  // a container's, unless asked for more
  EXPECT_THAT(Only(facts).advice, HasSubstr("--shm-size"));
  EXPECT_EQ(Only(facts).grade, Grade::kProblem);
  facts.shared_memory = {64 * kGiB, 1 << 20};
  EXPECT_THAT(Only(facts).text, HasSubstr("full"));
  facts.shared_memory = {512 << 20, 500 << 20};
  EXPECT_EQ(Only(facts).grade, Grade::kNote);
  facts.shared_memory.reset();
  EXPECT_EQ(Only(facts).grade, Grade::kProblem);
}

TEST(JudgeMachineTest, Limits) {
  MachineFacts facts = Good();
  facts.open_files = {1024, 1048576};
  EXPECT_EQ(Only(facts).grade, Grade::kNote);
  facts.open_files = {1024, 1024};
  EXPECT_EQ(Only(facts).grade, Grade::kProblem);
  facts = Good();
  facts.locked_memory_bytes = {8 << 20, 8 << 20};
  EXPECT_THAT(Only(facts).text, AllOf(HasSubstr("8 MiB"), HasSubstr("RDMA")));
  EXPECT_EQ(Only(facts).grade, Grade::kProblem);
  facts = Good();
  facts.processes = {512, 512};
  EXPECT_EQ(Only(facts).grade, Grade::kProblem);
}

TEST(JudgeMachineTest, Clocks) {
  MachineFacts facts = Good();
  facts.clock_source = "hpet";
  EXPECT_THAT(Only(facts).text, HasSubstr("hpet"));
  EXPECT_EQ(Only(facts).grade, Grade::kProblem);
  facts = Good();
  facts.invariant_tsc = false;
  EXPECT_EQ(Only(facts).grade, Grade::kNote);
  facts = Good();
  facts.clock_synchronised = false;
  EXPECT_THAT(Only(facts).text, HasSubstr("not synchronised"));
}

TEST(JudgeMachineTest, Devices) {
  MachineFacts facts = Good();
  facts.gpus = 0;
  EXPECT_THAT(Only(facts).advice, HasSubstr("--gpus all"));
  EXPECT_EQ(Only(facts).grade, Grade::kProblem);
  facts = Good();
  facts.gpu_driver = "";
  EXPECT_EQ(Only(facts, "gpu").grade, Grade::kOk);
  facts = Good();
  facts.verbs_devices = 0;
  EXPECT_THAT(Only(facts).text, HasSubstr("sockets"));
  facts = Good();
  facts.rdma[1].active_ports = 0;
  EXPECT_EQ(Only(facts).grade, Grade::kNote);
  EXPECT_THAT(Only(facts).text, HasSubstr("of mlx5_1"));
  facts.rdma[0].active_ports = 0;
  EXPECT_EQ(Only(facts).grade, Grade::kProblem);
}

class ReadMachineTest : public ::testing::Test {
 protected:
  void Write(const std::string& path, const std::string& text) const {
    const std::filesystem::path file = root_.path() + path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }
  test::TempDir root_;
};

TEST_F(ReadMachineTest, AnEmptyRootHasNothing) {
  const MachineFacts facts = ReadMachine(root_.path());
  EXPECT_FALSE(facts.shared_memory.has_value());
  EXPECT_FALSE(facts.open_files.has_value());
  EXPECT_FALSE(facts.invariant_tsc.has_value());
  EXPECT_EQ(facts.clock_source, "");
  EXPECT_EQ(facts.gpu_driver, "");
  EXPECT_EQ(facts.gpus, 0);
  EXPECT_TRUE(facts.rdma.empty());
}

TEST_F(ReadMachineTest, ReadsWhatIsThere) {
  Write("/dev/shm/file", "");
  Write("/proc/self/limits",
        "Limit                     Soft Limit           Hard Limit           Units     \n"
        "Max processes             96365                96366                processes \n"
        "Max open files            1024                 1048576              files     \n"
        "Max locked memory         unlimited            unlimited            bytes     \n");
  Write("/proc/cpuinfo", "processor : 0\nflags\t\t: fpu tsc constant_tsc nonstop_tsc\nprocessor : 1\n");
  Write("/sys/devices/system/clocksource/clocksource0/current_clocksource", "kvm-clock\n");
  Write("/proc/driver/nvidia/version",
        "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.82.07  Wed Aug 27 2025\nGCC version: 12.2.0\n");
  for (const char* name : {"nvidia0", "nvidia1", "nvidia12", "nvidiactl", "nvidia-uvm", "nvidia"}) {
    Write(std::string("/dev/") + name, "");
  }
  Write("/sys/class/infiniband/mlx5_0/ports/1/state", "4: ACTIVE\n");
  Write("/sys/class/infiniband/mlx5_1/ports/1/state", "1: DOWN\n");
  Write("/sys/class/infiniband/mlx5_1/ports/2/state", "4: ACTIVE\n");
  Write("/dev/infiniband/uverbs0", "");
  Write("/dev/infiniband/rdma_cm", "");
  const MachineFacts facts = ReadMachine(root_.path());
  EXPECT_TRUE(facts.shared_memory.has_value());
  ASSERT_TRUE(facts.open_files.has_value());
  EXPECT_EQ(facts.open_files->soft, 1024u);
  EXPECT_EQ(facts.open_files->hard, 1048576u);
  EXPECT_EQ(facts.locked_memory_bytes->soft, kUnlimited);
  EXPECT_EQ(facts.processes->hard, 96366u);
  EXPECT_EQ(facts.invariant_tsc, true);
  EXPECT_EQ(facts.clock_source, "kvm-clock");
  EXPECT_EQ(facts.gpu_driver, "580.82.07");
  EXPECT_EQ(facts.gpus, 3);
  ASSERT_EQ(facts.rdma.size(), 2u);
  EXPECT_EQ(facts.rdma[1].name, "mlx5_1");
  EXPECT_EQ(facts.rdma[1].ports, 2);
  EXPECT_EQ(facts.rdma[1].active_ports, 1);
  EXPECT_EQ(facts.verbs_devices, 1);
}

TEST_F(ReadMachineTest, NonsenseIsNothing) {
  Write("/proc/self/limits", "Max open files\nMax processes x y z\n");
  Write("/proc/cpuinfo", "flags");
  Write("/proc/driver/nvidia/version", "\n");
  std::filesystem::create_directories(root_.path() + "/sys/class/infiniband/mlx5_0");
  const MachineFacts facts = ReadMachine(root_.path());
  EXPECT_FALSE(facts.open_files.has_value());
  EXPECT_EQ(facts.processes->soft, 0u);
  EXPECT_EQ(facts.invariant_tsc, false);
  EXPECT_EQ(facts.gpu_driver, "of unknown version");
  EXPECT_EQ(facts.rdma[0].ports, 0);
}

}  // namespace
}  // namespace c4::cli
