// What is read from NVIDIA's management library, by its double, and what becomes of it.
#include <cstdlib>
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/time/clock.h"
#include "c4a/health/gpu_source.h"
#include "c4a/health/monitor.h"
#include "tests/double/fake_nvml.h"

namespace c4::agent {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr int64_t kSecond = 1'000'000'000;

std::string Library() {
  // NOLINTNEXTLINE(concurrency-mt-unsafe): nobody writes the environment
  const char* build = getenv("C4_BUILD_DIR");
  return std::string(build != nullptr ? build : "build") + "/tests/doubles/fake_nvml.so";
}

class GpuTest : public ::testing::Test {
 protected:
  GpuTest() : library_(dlopen(Library().c_str(), RTLD_NOW | RTLD_LOCAL)) {
    if (library_ == nullptr) {
      ADD_FAILURE() << dlerror();
      return;
    }
    Find<fake_nvml::Reset>("fake_nvml_reset")();
  }
  ~GpuTest() override {
    if (library_ != nullptr) dlclose(library_);
  }

  template <typename Function>
  Function Find(const char* name) const {
    return reinterpret_cast<Function>(dlsym(library_, name));
  }
  void Set(int gpu, const char* what, uint64_t value) {
    Find<fake_nvml::Set>("fake_nvml_set")(gpu, what, value);
  }

  std::vector<std::string> Look() {
    now_ns_ += kSecond;
    std::vector<std::string> lines;
    const auto events = source_.Read(now_ns_);
    if (!events.ok()) return {std::string(events.status().message())};
    for (const HealthEvent& event : *events)
      lines.push_back(event.device + " " + event.kind + ": " + event.text);
    return lines;
  }

  void* const library_;
  GpuSource source_{Library(), nullptr};
  int64_t now_ns_ = 1000 * kSecond;
};

TEST_F(GpuTest, Xids) {
  EXPECT_THAT(Look(), IsEmpty());
  Find<fake_nvml::Xid>("fake_nvml_xid")(1, 79);
  Find<fake_nvml::Xid>("fake_nvml_xid")(0, 48);
  EXPECT_THAT(Look(), ElementsAre("GPU 1 xid: Xid 79, the GPU has fallen off the bus",
                                  "GPU 0 xid: Xid 48, double-bit ECC error"));
  EXPECT_THAT(Look(), IsEmpty());
}

TEST_F(GpuTest, MemoryErrorsAndNvlinks) {
  EXPECT_THAT(Look(), IsEmpty());
  Set(0, "ecc_uncorrected", 1);
  Set(0, "ecc_corrected", 99);
  Set(0, "retired_pages", 3);
  Set(1, "remapped_rows", 1);
  Set(1, "nvlink_crc", 150);
  EXPECT_THAT(Look(),
              ElementsAre("GPU 0 ecc: ECC errors that could not be corrected: 1 within 1 s",
                          "GPU 0 retired-pages: memory pages retired: 3 within 1 s",
                          "GPU 1 retired-pages: memory rows remapped: 1 within 1 s",
                          "GPU 1 NVLink 0 nvlink: NVLink packets with a wrong checksum: 150 within 1 s"));
  Set(1, "nvlink_down", 3);
  EXPECT_THAT(Look(), ElementsAre("GPU 1 NVLink 2 nvlink: the link is down"));
  EXPECT_THAT(Look(), IsEmpty());
}

TEST_F(GpuTest, SlowDowns) {
  EXPECT_THAT(Look(), IsEmpty());
  Set(0, "throttle", 0x4);  // power cap: usual
  EXPECT_THAT(Look(), IsEmpty());
  Set(0, "throttle", 0x48);
  Set(1, "temperature", 91);
  EXPECT_THAT(Look(),
              ElementsAre("GPU 0 gpu-throttle: its clock is held back: slow-down by hardware, thermal "
                          "slow-down by hardware",
                          "GPU 1 gpu-hot: 91 degrees, it slows down from 90 on"));
  Set(1, "clock", 345);  // idle
  for (int i = 0; i < 15; ++i) EXPECT_THAT(Look(), IsEmpty());
  Set(1, "utilization", 100);
  std::vector<std::string> told;
  for (int i = 0; i < 15; ++i) {
    for (std::string& line : Look()) told.push_back(std::move(line));
  }
  EXPECT_THAT(told, ElementsAre("GPU 1 gpu-clock: runs at 345 of 1980 MHz though it is busy"));
}

TEST_F(GpuTest, AGpuThatIsLostIsToldOnceAndTheOthersGoOn) {
  EXPECT_THAT(Look(), IsEmpty());
  Find<fake_nvml::Fail>("fake_nvml_fail")(0, 15);
  Set(1, "ecc_uncorrected", 2);
  EXPECT_THAT(Look(), ElementsAre("GPU 0 gpu-lost: the driver no longer reaches it", HasSubstr("GPU 1 ecc")));
  EXPECT_THAT(Look(), IsEmpty());
  Find<fake_nvml::Fail>("fake_nvml_fail")(0, 999);  // unknown errors are no loss
  EXPECT_THAT(Look(), IsEmpty());
}

TEST_F(GpuTest, WithoutWhatADriverMayLack) {
  Find<fake_nvml::Without>("fake_nvml_without")("events");
  EXPECT_THAT(Look(), IsEmpty());
  Find<fake_nvml::Xid>("fake_nvml_xid")(1, 79);
  EXPECT_THAT(Look(), IsEmpty());
}

TEST_F(GpuTest, NoLibraryNoDriverNoGpu) {
  GpuSource none("/nowhere/libnvidia-ml.so.1", nullptr);
  EXPECT_TRUE(absl::IsNotFound(none.Read(kSecond).status()));
  Find<fake_nvml::Without>("fake_nvml_without")("gpus");
  EXPECT_THAT(Look(), ElementsAre("NVML knows no GPU"));
  Find<fake_nvml::Without>("fake_nvml_without")("driver");
  EXPECT_THAT(Look(), ElementsAre(HasSubstr("NVML finds no driver (nvmlInit gave 9)")));
  // A driver that is loaded later is found.
  Find<fake_nvml::Reset>("fake_nvml_reset")();
  EXPECT_THAT(Look(), IsEmpty());
}

TEST_F(GpuTest, ADriverThatHangsIsNamedByWhatWasAsked) {
  HealthOptions options;
  options.root = "/nowhere";
  options.nvml = Library();
  HealthMonitor monitor({.interval = absl::Milliseconds(10), .stall_limit = absl::Milliseconds(50)},
                        AllSources(options));
  Find<fake_nvml::Hang>("fake_nvml_hang")(1);
  monitor.Start();
  std::string text;
  for (int i = 0; i < 300 && text.empty(); ++i) {
    absl::SleepFor(absl::Milliseconds(10));
    for (const NumberedEvent& item : monitor.Collect()) text = item.event.text;
  }
  EXPECT_THAT(text, HasSubstr("reading the ECC errors of GPU 0 has not come back"));
  Find<fake_nvml::Hang>("fake_nvml_hang")(0);
  monitor.Stop();
}

}  // namespace
}  // namespace c4::agent
