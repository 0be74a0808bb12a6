// Sources about the host: the links of its PCIe bus, its temperatures, and its pressure.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "c4a/health/device_names.h"
#include "c4a/health/root_files.h"
#include "c4a/health/source.h"
#include "c4a/health/watches.h"

namespace c4::agent {

struct PcieLink {
  double width = 0;          // lanes
  double speed = 0;          // GT/s
  bool saves_power = false;  // a GPU slows its link down while it is idle: only the width counts

  friend bool operator==(const PcieLink&, const PcieLink&) = default;
};

// What is wrong with `now` against `usual`, as a phrase; empty: nothing. Pure.
std::string PcieFault(const PcieLink& usual, const PcieLink& now);

// GPUs, NICs, NVMe disks and NVSwitches: link width and speed against what both ends can do, and devices that
// leave the bus.
class PcieSource final : public HealthSource {
 public:
  explicit PcieSource(RootFiles files) : files_(std::move(files)), names_(&files_) {}
  const char* name() const override { return "pcie"; }
  int period() const override { return 10; }
  absl::StatusOr<std::vector<HealthEvent>> Read(int64_t now_ns) override;

 private:
  struct Device {
    std::string name;
    std::string fault;  // that was told of
    bool there = true;
  };
  void Look(const std::string& address, int64_t now_ns, std::vector<HealthEvent>* events);

  const RootFiles files_;
  DeviceNames names_;
  std::map<std::string, Device> devices_;
};

// Thermal zones, and how often processors were throttled for heat.
class ThermalSource final : public HealthSource {
 public:
  explicit ThermalSource(RootFiles files) : files_(std::move(files)) {}
  const char* name() const override { return "thermal"; }
  int period() const override { return 5; }
  absl::StatusOr<std::vector<HealthEvent>> Read(int64_t now_ns) override;

 private:
  struct Zone {
    std::string folder;
    std::string name;
    double trip = 0;  // degrees: the lowest of its hot and critical ones
  };
  void Learn();

  const RootFiles files_;
  bool learnt_ = false;
  std::vector<Zone> zones_;
  std::vector<std::pair<std::string, std::string>>
      packages_;  // the file of one processor of each, and its name
  CounterWatch counters_;
  LevelWatch levels_;
};

// /proc/pressure and the out-of-memory kills of /proc/vmstat.
class PressureSource final : public HealthSource {
 public:
  explicit PressureSource(RootFiles files) : files_(std::move(files)) {}
  const char* name() const override { return "pressure"; }
  int period() const override { return 1; }
  absl::StatusOr<std::vector<HealthEvent>> Read(int64_t now_ns) override;

 private:
  const RootFiles files_;
  CounterWatch counters_;
  LevelWatch levels_;
};

// Pure: the avg10 of the line that begins with `word` ("some", "full") of a pressure file; nothing where
// there is none.
std::optional<double> PressureOf(std::string_view text, std::string_view word);
// Pure: the number behind `name` in a file of lines "NAME NUMBER".
std::optional<uint64_t> NumberBehind(std::string_view text, std::string_view name);

}  // namespace c4::agent
