// Lines as kernels and drivers write them, and lines that only look like that.
#include "c4a/health/kernel_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace c4::agent {
namespace {

using ::testing::HasSubstr;

TEST(KernelLine, OfKmsg) {
  const auto line = SplitKernelLine("3,1234,5678901,-,caller=T12;NVRM: Xid (PCI:0000:3b:00): 79, pid=1");
  ASSERT_TRUE(line.has_value());
  EXPECT_EQ(line->stamp_us, 5678901);
  EXPECT_EQ(line->message, "NVRM: Xid (PCI:0000:3b:00): 79, pid=1");
  EXPECT_FALSE(SplitKernelLine(" SUBSYSTEM=pci").has_value());
  EXPECT_FALSE(SplitKernelLine("").has_value());
}

TEST(KernelLine, OfDmesgAndOfSyslog) {
  for (const char* text :
       {"[ 5678.901000] eth0: Link down", "Nov 24 19:00:00 node17 kernel: [ 5678.901000] eth0: Link down",
        "2026-11-24T19:00:00 node17 kernel: [ 5678.901000] eth0: Link down"}) {
    const auto line = SplitKernelLine(text);
    ASSERT_TRUE(line.has_value()) << text;
    EXPECT_EQ(line->stamp_us, 5678901000) << text;
    EXPECT_EQ(line->message, "eth0: Link down") << text;
  }
  const auto bare = SplitKernelLine("Nov 24 19:00:00 node17 kernel: eth0: Link down");
  ASSERT_TRUE(bare.has_value());
  EXPECT_EQ(bare->stamp_us, -1);
  EXPECT_EQ(bare->message, "eth0: Link down");
}

TEST(KernelLine, StampsThatNoneHas) {
  for (const char* text : {"[nonsense] text", "[-5.0] text", "[1e300] text", "[nan] text", "[] text",
                           "[12.5 text", "6,1,99999999999999999999999,-;text", "6,1,-7,-;text"}) {
    const auto line = SplitKernelLine(text);
    ASSERT_TRUE(line.has_value()) << text;
    EXPECT_EQ(line->stamp_us, -1) << text;
  }
}

struct Case {
  const char* message;
  const char* kind;
  const char* device;
  uint64_t number;
  const char* text;  // a part of it
};

class KernelMessage : public ::testing::TestWithParam<Case> {};

TEST_P(KernelMessage, IsUnderstood) {
  const Case& expected = GetParam();
  const auto event = ParseKernelMessage(expected.message);
  ASSERT_TRUE(event.has_value());
  EXPECT_EQ(event->kind, expected.kind);
  EXPECT_EQ(event->device, expected.device);
  EXPECT_EQ(event->number, expected.number);
  EXPECT_THAT(event->text, HasSubstr(expected.text));
}

INSTANTIATE_TEST_SUITE_P(
    All, KernelMessage,
    ::testing::Values(
        Case{"NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.",
             "xid", "0000:3b:00.0", 79, "Xid 79, the GPU has fallen off the bus"},
        Case{"NVRM: Xid (PCI:0000:86:00): 31, pid=4711, name=python, Ch 00000008, intr 10000000. MMU Fault",
             "xid", "0000:86:00.0", 31, "memory page fault of the GPU (process 4711)"},
        Case{"NVRM: Xid (0000:86:00.0): 94, Contained: SM (0x1)", "xid", "0000:86:00.0", 94,
             "contained ECC error"},
        Case{"NVRM: Xid (PCI:0000:07:00): 9999, whatever", "xid", "0000:07:00.0", 9999,
             "an error of the GPU"},
        Case{"nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 12028, Non-fatal, Link 44 egress non-posted", "sxid",
             "nvidia-nvswitch3", 12028, "SXid 12028, Non-fatal, Link 44"},
        Case{"Out of memory: Killed process 4711 (python3) total-vm:8388608kB, anon-rss:1kB", "out-of-memory",
             "process 4711 (python3)", 4711, "the host's memory was full"},
        Case{"Memory cgroup out of memory: Killed process 12 (a b) c) total-vm:1kB", "out-of-memory",
             "process 12 (a b)", 12, "its memory control group was full"},
        Case{"INFO: task python:4711 blocked for more than 122 seconds.", "task-blocked",
             "process 4711 (python)", 4711, "more than 122 s"},
        Case{"INFO: task kworker/u8:3:77 blocked for more than 120 seconds.", "task-blocked",
             "process 77 (kworker/u8:3)", 77, "120 s"},
        Case{"watchdog: BUG: soft lockup - CPU#12 stuck for 22s! [python:4711]", "cpu-stuck", "CPU 12", 12,
             "soft lockup"},
        Case{"rcu: INFO: rcu_sched self-detected stall on CPU", "cpu-stuck", "a CPU", 0, "stall"},
        Case{"mce: [Hardware Error]: CPU 3: Machine Check: 0 Bank 4: b200000000070f0f", "machine-check",
             "CPU 3", 0, "Bank 4"},
        Case{"EDAC MC1: 1 UE memory read error on CPU_SrcID#0_Ha#0_Chan#1_DIMM#0", "machine-check",
             "memory controller 1", 0, "could not be corrected"},
        Case{"EDAC MC0: 3 CE memory scrubbing error on DIMM_A1", "machine-check", "memory controller 0", 0,
             "corrected error: 3 CE"},
        Case{"CPU12: Core temperature above threshold, cpu clock throttled (total events = 3)", "thermal",
             "CPU 12", 12, "throttled"},
        Case{"pcieport 0000:3a:00.0: AER: Uncorrected (Fatal) error received: 0000:3b:00.0", "pcie-error",
             "0000:3b:00.0", 0, "could not be corrected"},
        Case{"pcieport 0000:3a:00.0: AER: Multiple Corrected error received: 0000:5e:00.1", "pcie-error",
             "0000:5e:00.1", 0, "corrected error"},
        Case{"nvidia 0000:3b:00.0: PCIe Bus Error: severity=Corrected, type=Physical Layer, (Receiver ID)",
             "pcie-error", "0000:3b:00.0", 0, "corrected"},
        Case{"pcieport 0000:3a:00.0: DPC: containment event, status:0x1f01 source:0x0000", "pcie-error",
             "0000:3a:00.0", 0, "cut off"},
        Case{"pcieport 0000:3a:00.0: pciehp: Slot(65): Link Down", "pcie-error", "0000:3a:00.0", 0,
             "left the bus"},
        Case{"mlx5_core 0000:5e:00.0 eth2: Link down", "link-down", "eth2", 0, "down"},
        Case{"mlx5_core 0000:5e:00.0: Link up", "link-up", "0000:5e:00.0", 0, "up"},
        Case{"ixgbe 0000:01:00.0 eth0: NIC Link is Down", "link-down", "eth0", 0, "down"},
        Case{"igb 0000:01:00.0 eth1: igb: eth1 NIC Link is Down", "link-down", "eth1", 0, "down"},
        Case{"bnxt_en 0000:19:00.0 eno1np0: NIC Link is Up, 100000 Mbps full duplex", "link-up", "eno1np0", 0,
             "up"},
        Case{"bond0: (slave eth3): link status definitely down, disabling it", "link-down", "eth3", 0,
             "down"},
        Case{"mlx5_core 0000:17:00.0: Port module event[error]: module 1, Cable error, High Temperature",
             "nic-error", "0000:17:00.0", 0, "Cable error"},
        Case{"mlx5_core 0000:17:00.0: device's health compromised - reached miss count", "nic-error",
             "0000:17:00.0", 0, "health compromised"},
        Case{"nfs: server store7 not responding, still trying", "storage", "NFS server store7", 0,
             "does not answer"},
        Case{"blk_update_request: I/O error, dev nvme0n1, sector 2048 op 0x0:(READ)", "storage", "nvme0n1", 0,
             "input/output"}));

TEST(KernelMessageOfNothing, IsNoEvent) {
  for (const char* text : {"",
                           ":",
                           "NVRM: Xid (",
                           "NVRM: Xid (PCI:0000:3b:00)",
                           "NVRM: Xid (PCI:zz): 79, x",
                           "NVRM: Xid (PCI:0000:3b:00): x",
                           "NVRM: GPU at PCI:0000:3b:00: GPU-1234",
                           "Out of memory: Killed process",
                           "Out of memory: Killed process x (y)",
                           "a process was killed",
                           "INFO: task  blocked for more than ",
                           "INFO: task a:b blocked for more than 5 s",
                           "EDAC MC: Ver: 3.0.0",
                           "EDAC MCx: 1 CE memory",
                           "AER: enabled with IRQ 24",
                           "pcieport: AER: error received:",
                           "ata1: SATA link down (SStatus 0 SControl 300)",
                           "Link down",
                           "IPv6: ADDRCONF(NETDEV_UP): eth0: link is not ready",
                           "mlx5_core 0000:17:00.0: firmware version: 22.31.1014",
                           "docker0: port 1(veth12) entered disabled state",
                           "nfs: server store7 OK",
                           "I/O error, dev",
                           "CPUx: Core temperature above threshold"}) {
    EXPECT_FALSE(ParseKernelMessage(text).has_value()) << text;
  }
}

TEST(KernelMessageOfAHostileName, IsPrintableAndShort) {
  const std::string name(5000, 'x');
  const auto event = ParseKernelMessage("Out of memory: Killed process 7 (\x1b[31m\xff" + name + ") total");
  if (event.has_value()) {
    EXPECT_LT(event->device.size(), 120U);
    EXPECT_EQ(event->device.find('\x1b'), std::string::npos);
  }
  const auto closed = ParseKernelMessage("Out of memory: Killed process 7 (\x1b[31m\xff) total");
  ASSERT_TRUE(closed.has_value());
  EXPECT_EQ(closed->device, "process 7 (?[31m?)");
}

TEST(PciAddress, Forms) {
  EXPECT_EQ(PciAddress("PCI:0000:3b:00"), "0000:3b:00.0");
  EXPECT_EQ(PciAddress("00000000:3B:00.0"), "0000:3b:00.0");
  EXPECT_EQ(PciAddress("10000:e1:00.7"), "10000:e1:00.7");
  for (const char* text : {"", "PCI:", "0000", "0000:3b", "0000:3b:00.", "0000:3b:00.0.1", "0000:3b:00.10",
                           "000000000:3b:00.0", "eth0", "0000:3b:00:0"}) {
    EXPECT_EQ(PciAddress(text), "") << text;
  }
}

}  // namespace
}  // namespace c4::agent
