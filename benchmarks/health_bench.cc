// What one look at the hardware costs the agent: each source over the files of a large node (8 NICs on
// InfiniBand and Ethernet, 48 devices on PCIe, 192 processors of two packages), made in a directory, and what
// the events of two bad minutes add to a batch. A real /sys costs more where a driver asks its device: the
// metric c4a_health_read_seconds tells.
#include <benchmark/benchmark.h>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "c4/v1/telemetry.pb.h"
#include "c4a/health/host_sources.h"
#include "c4a/health/kernel_log.h"
#include "c4a/health/kernel_log_source.h"
#include "c4a/health/network_sources.h"
#include "c4a/reporter.h"
#include "service/text.h"

namespace c4::agent {
namespace {

namespace fs = std::filesystem;
using service::Concat;

class LargeNode {
 public:
  LargeNode() : root_((fs::temp_directory_path() / "c4-health-XXXXXX").string()) {
    if (mkdtemp(root_.data()) == nullptr) abort();
    for (int i = 0; i < 8; ++i) MakeNic(i);
    for (int i = 0; i < 48; ++i) MakePcie(i);
    for (int i = 0; i < 192; ++i) {
      const std::string folder = Concat("/sys/devices/system/cpu/cpu", i);
      Write(folder + "/topology/physical_package_id", i < 96 ? "0" : "1");
      Write(folder + "/thermal_throttle/package_throttle_count", "0");
    }
    for (int i = 0; i < 4; ++i) {
      const std::string folder = Concat("/sys/class/thermal/thermal_zone", i);
      Write(folder + "/type", "x86_pkg_temp");
      Write(folder + "/temp", "61000");
      Write(folder + "/trip_point_0_type", "critical");
      Write(folder + "/trip_point_0_temp", "100000");
    }
    for (const char* what : {"cpu", "memory", "io"}) {
      Write(Concat("/proc/pressure/", what),
            "some avg10=0.00 avg60=0.00 total=0\nfull avg10=0.00 avg60=0.00 total=0\n");
    }
    Write("/proc/vmstat", std::string(6000, 'x') + " 1\noom_kill 0\n");
    Write("/kern.log", "");
  }
  LargeNode(const LargeNode&) = delete;
  LargeNode& operator=(const LargeNode&) = delete;
  ~LargeNode() { fs::remove_all(root_); }

  RootFiles Files() const { return RootFiles(root_); }

 private:
  void Write(const std::string& file, const std::string& content) const {
    fs::create_directories(fs::path(root_ + file).parent_path());
    std::ofstream(root_ + file) << content << "\n";
  }
  void MakeNic(int i) const {
    const std::string port = Concat("/sys/class/infiniband/mlx5_", i, "/ports/1/");
    Write(port + "state", "4: ACTIVE");
    Write(port + "phys_state", "5: LinkUp");
    Write(port + "rate", "400 Gb/sec (4X NDR)");
    const std::string interface = Concat("/sys/class/net/eth", i, "/");
    Write(interface + "carrier", "1");
    Write(interface + "speed", "400000");
    Write(interface + "carrier_changes", "2");
    Write(interface + "device/vendor", "0x15b3");
    for (const CounterRule& rule : CounterRules()) {
      if (rule.source == RuleSource::kInfiniband) Write(Concat(port, "counters/", rule.counter), "17");
      if (rule.source == RuleSource::kInfinibandHardware)
        Write(Concat(port, "hw_counters/", rule.counter), "17");
      if (rule.source == RuleSource::kEthernet) Write(Concat(interface, "statistics/", rule.counter), "17");
    }
  }
  void MakePcie(int i) const {
    const std::string folder = Concat("/sys/bus/pci/devices/0000:", 10 + i, ":00.0/");
    Write(folder + "class", i % 3 == 0 ? "0x030200" : i % 3 == 1 ? "0x020700" : "0x060400");
    for (const char* which : {"max", "current"}) {
      Write(Concat(folder, which, "_link_width"), "16");
      Write(Concat(folder, which, "_link_speed"), "32.0 GT/s PCIe");
    }
  }

  std::string root_;
};

const LargeNode& Node() {
  static const LargeNode node;
  return node;
}

template <typename Source, typename... Rest>
void BM_Look(benchmark::State& state, Rest... rest) {
  Source source(Node().Files(), rest...);
  int64_t now_ns = 1;
  for (auto _ : state) {
    now_ns += 1'000'000'000;
    if (!source.Read(now_ns).ok()) state.SkipWithError("the source is absent");
  }
}
void BM_Infiniband(benchmark::State& state) {
  BM_Look<InfinibandSource>(state);
}
void BM_Ethernet(benchmark::State& state) {
  BM_Look<EthernetSource>(state, nullptr);
}
void BM_Pcie(benchmark::State& state) {
  BM_Look<PcieSource>(state);
}
void BM_Thermal(benchmark::State& state) {
  BM_Look<ThermalSource>(state);
}
void BM_Pressure(benchmark::State& state) {
  BM_Look<PressureSource>(state);
}
void BM_KernelLog(benchmark::State& state) {
  BM_Look<KernelLogSource>(state, "/kern.log");
}
BENCHMARK(BM_Infiniband);
BENCHMARK(BM_Ethernet);
BENCHMARK(BM_Pcie);
BENCHMARK(BM_Thermal);
BENCHMARK(BM_Pressure);
BENCHMARK(BM_KernelLog);

void BM_KernelLine(benchmark::State& state) {
  const std::string_view lines[] = {
      "6,1234,5678901,-;usb 1-1: new high-speed USB device number 2 using xhci_hcd",
      "3,1235,5678902,-;NVRM: Xid (PCI:0000:3b:00): 79, pid=4711, name=python, GPU has fallen off the bus."};
  const auto line = SplitKernelLine(lines[static_cast<size_t>(state.range(0))]);
  for (auto _ : state) benchmark::DoNotOptimize(ParseKernelMessage(line->message));
}
BENCHMARK(BM_KernelLine)->Arg(0)->Arg(1);

// `range` events in each batch.
void BM_Batch(benchmark::State& state) {
  EventLog log;
  for (int64_t i = 0; i < state.range(0); ++i) {
    HealthEvent event;
    event.kind = Concat("kind", i % 8);
    event.device = Concat("GPU ", i);
    event.text = "Xid 79, the GPU has fallen off the bus";
    event.at_ns = i < 40 ? 0 : 61'000'000'000;
    log.Add(event, event.at_ns);
  }
  Reporter reporter({.host = "node17", .agent_epoch = 1, .agent_version = "0"});
  size_t bytes = 0;
  for (auto _ : state) {
    reporter.SetHardware(log.Recent(61'000'000'000), log.left_out());
    bytes = reporter.Empty(62'000'000'000, 1).SerializeAsString().size();
  }
  state.counters["bytes"] = static_cast<double>(bytes);
}
BENCHMARK(BM_Batch)->Arg(0)->Arg(64);

}  // namespace
}  // namespace c4::agent

BENCHMARK_MAIN();
