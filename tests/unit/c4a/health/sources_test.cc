// Sources over a fake root: what changes between two looks, and files that are missing, garbage or huge.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "c4a/health/host_sources.h"
#include "c4a/health/kernel_log_source.h"
#include "c4a/health/network_sources.h"
#include "tests/unit/c4a/health/fake_root.h"

namespace c4::agent {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr int64_t kSecond = 1'000'000'000;

class SourcesTest : public ::testing::Test {
 protected:
  RootFiles Files() const { return RootFiles(root_.path()); }

  // "DEVICE KIND: TEXT" of each event of the next look, a second after the last.
  std::vector<std::string> Look(HealthSource* source) {
    now_ns_ += kSecond;
    std::vector<std::string> lines;
    const auto events = source->Read(now_ns_);
    if (!events.ok()) return {std::string(events.status().message())};
    for (const HealthEvent& event : *events)
      lines.push_back(event.device + " " + event.kind + ": " + event.text);
    return lines;
  }

  FakeRoot root_;
  int64_t now_ns_ = 1000 * kSecond;
};

TEST_F(SourcesTest, InfinibandLinkRateAndCounters) {
  root_.Port("mlx5_0", "1");
  root_.Port("mlx5_1", "1", "4: ACTIVE\n", "2.5 Gb/sec (1X SDR)\n");
  root_.Write("/sys/class/infiniband/mlx5_0/device/net/eth0/ifindex", "2\n");
  InfinibandSource source(Files());
  EXPECT_THAT(Look(&source), IsEmpty());
  const std::string folder = "/sys/class/infiniband/mlx5_0/ports/1/";
  root_.Write(folder + "counters/symbol_error", "25\n");
  root_.Write(folder + "hw_counters/local_ack_timeout_err", "9\n");  // one below what is told of
  EXPECT_THAT(Look(&source), ElementsAre("mlx5_0 link-error: symbol errors: 25 within 1 s"));
  root_.Write(folder + "hw_counters/local_ack_timeout_err", "10\n");
  EXPECT_THAT(Look(&source),
              ElementsAre("mlx5_0 ack-timeout: acknowledgements that did not come: 10 within 2 s"));
  root_.Write(folder + "rate", "100 Gb/sec (1X NDR)\n");
  EXPECT_THAT(Look(&source),
              ElementsAre("mlx5_0 link-slow: the link runs at 100 Gb/s, no longer at 400 Gb/s"));
  root_.Write(folder + "state", "1: DOWN\n");
  root_.Write(folder + "rate", "10 Gb/sec (4X SDR)\n");  // of a link that is down it means nothing
  EXPECT_THAT(Look(&source), ElementsAre("mlx5_0 link-down: the link is down"));
  EXPECT_THAT(Look(&source), IsEmpty());
  root_.Write(folder + "state", "4: ACTIVE\n");
  root_.Write(folder + "rate", "100 Gb/sec (1X NDR)\n");
  now_ns_ += kSecond;
  const auto events = source.Read(now_ns_);
  ASSERT_TRUE(events.ok());
  ASSERT_THAT(*events, SizeIs(1));
  EXPECT_EQ((*events)[0].kind, "link-up");
  EXPECT_EQ((*events)[0].interface, "eth0");
}

TEST_F(SourcesTest, InfinibandPortsAreTold) {
  root_.Port("mlx5_0", "1");
  root_.Port("mlx5_0", "2");
  InfinibandSource source(Files());
  EXPECT_THAT(Look(&source), IsEmpty());
  root_.Write("/sys/class/infiniband/mlx5_0/ports/2/phys_state", "3: Disabled\n");
  EXPECT_THAT(Look(&source), ElementsAre("mlx5_0 port 2 link-down: the link is down"));
}

TEST_F(SourcesTest, EthernetCarrierSpeedAndCounters) {
  for (const char* name : {"eth0", "veth1", "lo"}) {
    const std::string folder = std::string("/sys/class/net/") + name + "/";
    root_.Write(folder + "carrier", "1\n");
    root_.Write(folder + "speed", "100000\n");
    root_.Write(folder + "carrier_changes", "2\n");
    root_.Write(folder + "statistics/rx_crc_errors", "7\n");
  }
  root_.Write("/sys/class/net/eth0/device/vendor", "0x15b3\n");
  EthernetSource source(Files(), nullptr);
  EthernetSource named(Files(), [](const std::string& name) { return name == "veth1"; });
  EXPECT_THAT(Look(&source), IsEmpty());
  EXPECT_THAT(Look(&named), IsEmpty());
  for (const char* name : {"eth0", "veth1", "lo"}) {
    root_.Write(std::string("/sys/class/net/") + name + "/statistics/rx_crc_errors", "17\n");
    root_.Write(std::string("/sys/class/net/") + name + "/carrier", "0\n");
  }
  EXPECT_THAT(Look(&source), ElementsAre("eth0 link-down: the link is down",
                                         "eth0 link-error: frames with a wrong checksum: 10 within 2 s"));
  EXPECT_THAT(Look(&named), SizeIs(2));
  root_.Write("/sys/class/net/eth0/carrier", "1\n");
  root_.Write("/sys/class/net/eth0/speed", "25000\n");
  root_.Write("/sys/class/net/eth0/carrier_changes", "4\n");
  EXPECT_THAT(Look(&source),
              ElementsAre("eth0 link-up: the link is up",
                          "eth0 link-slow: the link runs at 25000 Mb/s, no longer at 100000 Mb/s",
                          HasSubstr("eth0 link-down: changes of the carrier: 2")));
}

TEST_F(SourcesTest, PcieWidthSpeedAndDevicesThatLeave) {
  const auto device = [&](const std::string& address, const std::string& klass, const std::string& width,
                          const std::string& speed) {
    const std::string folder = "/sys/bus/pci/devices/" + address + "/";
    root_.Write(folder + "class", klass + "\n");
    root_.Write(folder + "max_link_width", "16\n");
    root_.Write(folder + "max_link_speed", "32.0 GT/s PCIe\n");
    root_.Write(folder + "current_link_width", width + "\n");
    root_.Write(folder + "current_link_speed", speed + "\n");
  };
  device("0000:3b:00.0", "0x030200", "16", "2.5 GT/s PCIe");  // a GPU that is idle
  device("0000:5e:00.0", "0x020700", "16", "32.0 GT/s PCIe");
  device("0000:00:1f.0", "0x060100", "1", "2.5 GT/s PCIe");  // an ISA bridge
  device("0000:99:00.0", "0x020000", "255", "Unknown");
  root_.Write("/proc/driver/nvidia/gpus/0000:1b:00.0/information", "");
  root_.Write("/proc/driver/nvidia/gpus/0000:3b:00.0/information", "");
  root_.Link("/sys/class/infiniband/mlx5_0/device", "../../../0000:5e:00.0");
  PcieSource source(Files());
  EXPECT_THAT(Look(&source), IsEmpty());
  device("0000:5e:00.0", "0x020700", "8", "32.0 GT/s PCIe");
  EXPECT_THAT(Look(&source), ElementsAre("mlx5_0 pcie-slow: the PCIe link runs at x8 of x16"));
  EXPECT_THAT(Look(&source), IsEmpty());
  device("0000:5e:00.0", "0x020700", "16", "8.0 GT/s PCIe");
  device("0000:3b:00.0", "0x030200", "8", "2.5 GT/s PCIe");
  EXPECT_THAT(Look(&source), ElementsAre("GPU 1 pcie-slow: the PCIe link runs at x8 of x16",
                                         "mlx5_0 pcie-slow: the PCIe link runs at 8 of 32 GT/s"));
  root_.Remove("/sys/bus/pci/devices/0000:3b:00.0");
  EXPECT_THAT(Look(&source), ElementsAre("GPU 1 pcie-error: has left the PCIe bus"));
  EXPECT_THAT(Look(&source), IsEmpty());
}

TEST_F(SourcesTest, HeatAndThrottling) {
  const std::string zone = "/sys/class/thermal/thermal_zone0/";
  root_.Write(zone + "type", "x86_pkg_temp\n");
  root_.Write(zone + "temp", "61000\n");
  root_.Write(zone + "trip_point_0_type", "passive\n");
  root_.Write(zone + "trip_point_0_temp", "60000\n");
  root_.Write(zone + "trip_point_1_type", "critical\n");
  root_.Write(zone + "trip_point_1_temp", "100000\n");
  for (const char* cpu : {"cpu0", "cpu1", "cpu2"}) {
    const std::string folder = std::string("/sys/devices/system/cpu/") + cpu + "/";
    root_.Write(folder + "topology/physical_package_id", std::string(cpu) == "cpu2" ? "1\n" : "0\n");
    root_.Write(folder + "thermal_throttle/package_throttle_count", "5\n");
  }
  ThermalSource source(Files());
  EXPECT_THAT(Look(&source), IsEmpty());
  root_.Write(zone + "temp", "100500\n");
  root_.Write("/sys/devices/system/cpu/cpu2/thermal_throttle/package_throttle_count", "6\n");
  EXPECT_THAT(Look(&source), ElementsAre("thermal zone x86_pkg_temp thermal: 100 degrees, its limit is 100",
                                         "CPU package 1 thermal: times throttled for heat: 1 within 1 s"));
  EXPECT_THAT(Look(&source), IsEmpty());
}

TEST_F(SourcesTest, PressureAndKills) {
  root_.Write("/proc/pressure/memory",
              "some avg10=0.00 avg60=0.00 avg300=0.00 total=0\n"
              "full avg10=0.00 avg60=0.00 avg300=0.00 total=0\n");
  root_.Write("/proc/vmstat", "nr_free_pages 12\noom_kill 3\noom_killer 9\n");
  PressureSource source(Files());
  EXPECT_THAT(Look(&source), IsEmpty());
  root_.Write("/proc/pressure/memory",
              "some avg10=90.00 avg60=0.00 avg300=0.00 total=0\n"
              "full avg10=12.50 avg60=0.00 avg300=0.00 total=0\n");
  root_.Write("/proc/vmstat", "nr_free_pages 12\noom_kill 5\n");
  EXPECT_THAT(Look(&source),
              ElementsAre("memory pressure: all tasks waited for memory in 12 % of the last 10 s",
                          "memory out-of-memory: processes killed for want of memory: 2 within 1 s"));
}

TEST_F(SourcesTest, WhatANodeDoesNotHaveIsNotFound) {
  InfinibandSource infiniband(Files());
  EthernetSource ethernet(Files(), nullptr);
  PcieSource pcie(Files());
  ThermalSource thermal(Files());
  PressureSource pressure(Files());
  KernelLogSource kernel(Files(), "/dev/kmsg");
  for (HealthSource* source :
       std::initializer_list<HealthSource*>{&infiniband, &ethernet, &pcie, &thermal, &pressure, &kernel}) {
    const auto read = source->Read(kSecond);
    EXPECT_TRUE(absl::IsNotFound(read.status())) << source->name() << ": " << read.status();
    EXPECT_FALSE(read.status().message().empty());
  }
}

TEST_F(SourcesTest, GarbageIsNoEvent) {
  const std::string garbage = "\xff\xfe\x00 -1 1e999 nan 99999999999999999999999999\n";
  InfinibandSource infiniband(Files());
  EthernetSource ethernet(Files(), nullptr);
  PcieSource pcie(Files());
  ThermalSource thermal(Files());
  PressureSource pressure(Files());
  const auto fill = [&](const std::string& content) {
    for (const char* file :
         {"state", "rate", "phys_state", "counters/symbol_error", "hw_counters/out_of_sequence"}) {
      root_.Write(std::string("/sys/class/infiniband/mlx5_0/ports/1/") + file, content);
    }
    for (const char* file : {"carrier", "speed", "carrier_changes", "statistics/rx_crc_errors", "device/x"}) {
      root_.Write(std::string("/sys/class/net/eth0/") + file, content);
    }
    for (const char* file : {"class", "max_link_width", "current_link_width", "current_link_speed"}) {
      root_.Write(std::string("/sys/bus/pci/devices/0000:3b:00.0/") + file, content);
    }
    for (const char* file : {"type", "temp", "trip_point_0_type", "trip_point_0_temp"}) {
      root_.Write(std::string("/sys/class/thermal/thermal_zone0/") + file, content);
    }
    for (const char* file : {"pressure/cpu", "pressure/memory", "pressure/io", "vmstat"}) {
      root_.Write(std::string("/proc/") + file, content);
    }
  };
  for (const std::string& content :
       {garbage, std::string(), std::string(1 << 20, '7'), std::string(1 << 20, '\n')}) {
    fill(content);
    for (HealthSource* source :
         std::initializer_list<HealthSource*>{&infiniband, &ethernet, &pcie, &thermal, &pressure}) {
      const auto read = source->Read(now_ns_ += kSecond);
      if (!read.ok()) continue;
      EXPECT_THAT(*read, IsEmpty()) << source->name();
    }
  }
}

TEST_F(SourcesTest, TheKernelsLogFromItsEndOn) {
  root_.Write("/proc/driver/nvidia/gpus/0000:3b:00.0/information", "");
  root_.Write("/var/log/kern.log", "[ 1.0] NVRM: Xid (PCI:0000:3b:00): 13, of an earlier day\n");
  KernelLogSource source(Files(), "/var/log/kern.log");
  EXPECT_THAT(Look(&source), IsEmpty());
  root_.Append("/var/log/kern.log",
               "[ 1001.25] NVRM: Xid (PCI:0000:3b:00): 79, pid=77, x\n[ 1001.5] NVRM: X");
  now_ns_ += kSecond;
  const auto events = source.Read(now_ns_);
  ASSERT_TRUE(events.ok());
  ASSERT_THAT(*events, SizeIs(1));
  EXPECT_EQ((*events)[0].device, "GPU 0");
  EXPECT_EQ((*events)[0].at_ns, 1001 * kSecond + kSecond / 4);
  root_.Append("/var/log/kern.log",
               "id (PCI:0000:3b:00): 48, y\nnot [ a stamp\nOut of memory: Killed process 5 (a)\n");
  EXPECT_THAT(Look(&source),
              ElementsAre(HasSubstr("GPU 0 xid: Xid 48"), HasSubstr("process 5 (a) out-of-memory")));
}

// The kernel's clock and ours differ a little; a stamp of another boot says nothing.
TEST_F(SourcesTest, AStampIsBelievedBetweenTwoLooks) {
  root_.Write("/k", "");
  KernelLogSource source(Files(), "/k");
  (void)source.Read(1000 * kSecond);
  root_.Append("/k", "[ 1.0] eth0: Link down\n[ 99999.0] eth1: Link down\neth2: Link down\n");
  const auto events = source.Read(1001 * kSecond);
  ASSERT_TRUE(events.ok());
  ASSERT_THAT(*events, SizeIs(3));
  EXPECT_EQ((*events)[0].at_ns, 1000 * kSecond);
  EXPECT_EQ((*events)[1].at_ns, 1001 * kSecond);
  EXPECT_EQ((*events)[2].at_ns, 1001 * kSecond);
}

TEST_F(SourcesTest, AKernelLogThatIsHugeRotatedOrCutShort) {
  root_.Write("/k", std::string(5 << 20, 'x') + "\n");
  KernelLogSource source(Files(), "/k");
  EXPECT_THAT(Look(&source), IsEmpty());
  root_.Append("/k", "eth0: Link down\n" + std::string(3 << 20, 'y') + "\neth1: Link down\n");
  EXPECT_THAT(Look(&source), ElementsAre("eth1 link-down: the link is down"));  // what is older is skipped
  root_.Write("/k", "eth2: Link down\n");
  EXPECT_THAT(Look(&source), ElementsAre("eth2 link-down: the link is down"));
  root_.Remove("/k");
  EXPECT_THAT(Look(&source), IsEmpty());
  root_.Write("/k", "eth3: Link down\n");
  EXPECT_THAT(Look(&source), ElementsAre("eth3 link-down: the link is down"));
}

}  // namespace
}  // namespace c4::agent
