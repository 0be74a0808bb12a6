// Turns two readings of a GPU into events: growing counters of errors, links that went down, slow-downs.
// Pure: readings and times are given; nvml.h makes the readings. One thread.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "c4a/health/event.h"
#include "c4a/health/watches.h"

namespace c4::agent {

inline constexpr size_t kMostNvlinks = 18;

// As the driver says; nothing where it does not, or the GPU does not have it.
struct GpuReading {
  std::string name;   // "GPU 3"
  bool lost = false;  // the driver no longer reaches it; the rest is empty then
  std::optional<uint64_t> ecc_uncorrected;
  std::optional<uint64_t> ecc_corrected;
  std::optional<uint64_t> retired_pages;
  std::optional<uint64_t> remapped_rows;
  std::optional<uint64_t> throttle_reasons;  // NVML's bits
  std::optional<double> temperature;         // degrees
  std::optional<double> slowdown_temperature;
  std::optional<double> sm_clock_mhz;
  std::optional<double> max_sm_clock_mhz;
  std::optional<double> utilization;  // % of the last interval with a kernel
  struct Nvlink {
    std::optional<bool> active;
    std::optional<uint64_t> replay;
    std::optional<uint64_t> recovery;
    std::optional<uint64_t> crc;
  };
  std::array<Nvlink, kMostNvlinks> nvlinks;
};

class GpuWatch {
 public:
  void Take(const GpuReading& reading, int64_t now_ns, std::vector<HealthEvent>* events);

 private:
  void TakeCounter(std::string_view counter, const std::string& device, const std::optional<uint64_t>& value,
                   int64_t now_ns, std::vector<HealthEvent>* events);
  void TakeLevels(const GpuReading& reading, int64_t now_ns, std::vector<HealthEvent>* events);
  void TakeNvlinks(const GpuReading& reading, int64_t now_ns, std::vector<HealthEvent>* events);

  CounterWatch counters_;
  LevelWatch levels_;
  std::map<std::string, bool> lost_;          // by name
  std::map<std::string, bool> links_;         // active, by name of GPU and link
  std::map<std::string, int> slow_in_a_row_;  // readings with a low clock
};

// "hardware slow-down, thermal slow-down by hardware"; empty: nothing that slows it down beyond the usual.
// Pure.
std::string ThrottleText(uint64_t reasons);

}  // namespace c4::agent
