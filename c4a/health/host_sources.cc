#include "c4a/health/host_sources.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <set>

#include "absl/strings/str_format.h"
#include "service/text.h"

namespace c4::agent {
namespace {

using service::Concat;

constexpr size_t kMostPcieDevices = 256;
constexpr size_t kMostZones = 256;
constexpr int kMostTripPoints = 16;
constexpr size_t kMostPackages = 64;

HealthEvent MakeEvent(std::string_view kind, std::string device, std::string text, int64_t now_ns) {
  HealthEvent event;
  event.kind = kind;
  event.device = std::move(device);
  event.text = std::move(text);
  event.at_ns = now_ns;
  return event;
}

// "0x030200": the two upper bytes say what it is.
enum class PcieSort { kOther, kGpu, kWatched };
PcieSort SortOf(const std::string& klass) {
  const auto value = static_cast<uint32_t>(strtoul(klass.c_str(), nullptr, 16)) >> 8;
  constexpr std::array<uint32_t, 3> kGpu = {0x0300, 0x0302, 0x1200};           // VGA, 3D, accelerator
  constexpr std::array<uint32_t, 4> kRest = {0x0108, 0x0200, 0x0207, 0x0680};  // NVMe, Ethernet, IB, NVSwitch
  if (std::find(kGpu.begin(), kGpu.end(), value) != kGpu.end()) return PcieSort::kGpu;
  return std::find(kRest.begin(), kRest.end(), value) != kRest.end() ? PcieSort::kWatched : PcieSort::kOther;
}

// "16", "32.0 GT/s PCIe"; 0 for "Unknown", and for what no link has.
double Leading(const std::optional<std::string>& text) {
  constexpr double kMost = 1000;
  const double value = text.has_value() ? strtod(text->c_str(), nullptr) : 0;
  return value > 0 && value < kMost ? value : 0;
}

}  // namespace

std::string PcieFault(const PcieLink& usual, const PcieLink& now) {
  if (now.width > 0 && now.width < usual.width) {
    return Concat("the PCIe link runs at x", absl::StrFormat("%g", now.width), " of x",
                  absl::StrFormat("%g", usual.width));
  }
  if (!now.saves_power && now.speed > 0 && now.speed < usual.speed) {
    return Concat("the PCIe link runs at ", absl::StrFormat("%g", now.speed), " of ",
                  absl::StrFormat("%g", usual.speed), " GT/s");
  }
  return {};
}

void PcieSource::Look(const std::string& address, int64_t now_ns, std::vector<HealthEvent>* events) {
  const std::string folder = Concat("/sys/bus/pci/devices/", address, "/");
  const auto known = devices_.find(address);
  if (known == devices_.end()) {
    if (devices_.size() >= kMostPcieDevices) return;
    if (SortOf(files_.Word(folder + "class").value_or("")) == PcieSort::kOther) return;
  }
  const PcieSort sort = SortOf(files_.Word(folder + "class").value_or(""));
  const PcieLink usual{Leading(files_.Word(folder + "max_link_width")),
                       Leading(files_.Word(folder + "max_link_speed")), sort == PcieSort::kGpu};
  const PcieLink now{Leading(files_.Word(folder + "current_link_width")),
                     Leading(files_.Word(folder + "current_link_speed")), sort == PcieSort::kGpu};
  Device& device = devices_[address];
  if (device.name.empty()) device.name = names_.NameOf(address, now_ns);
  device.there = true;
  std::string fault = PcieFault(usual, now);
  if (!fault.empty() && fault != device.fault) {
    events->push_back(MakeEvent(event_kind::kPcieSlow, device.name, fault, now_ns));
  }
  device.fault = std::move(fault);
}

absl::StatusOr<std::vector<HealthEvent>> PcieSource::Read(int64_t now_ns) {
  const std::vector<std::string> addresses = files_.List("/sys/bus/pci/devices");
  if (addresses.empty() && devices_.empty()) return absl::NotFoundError("this node shows no PCI bus");
  std::vector<HealthEvent> events;
  for (auto& [address, device] : devices_) device.there = false;
  for (const std::string& address : addresses) Look(address, now_ns, &events);
  for (auto at = devices_.begin(); at != devices_.end();) {
    if (at->second.there) {
      ++at;
      continue;
    }
    events.push_back(MakeEvent(event_kind::kPcieError, at->second.name, "has left the PCIe bus", now_ns));
    at = devices_.erase(at);
  }
  return events;
}

void ThermalSource::Learn() {
  learnt_ = true;
  const std::string root = "/sys/class/thermal/";
  for (const std::string& name : files_.List(root)) {
    if (!name.starts_with("thermal_zone") || zones_.size() == kMostZones) continue;
    Zone zone{Concat(root, name, "/"), "", 0};
    zone.name = Concat("thermal zone ", service::ToUtf8(files_.Word(zone.folder + "type").value_or(name)));
    for (int i = 0; i < kMostTripPoints; ++i) {
      const auto type = files_.Word(Concat(zone.folder, "trip_point_", i, "_type"));
      if (!type.has_value()) break;
      const auto temp = files_.Number(Concat(zone.folder, "trip_point_", i, "_temp"));
      if ((*type != "hot" && *type != "critical") || !temp.has_value() || *temp == 0) continue;
      const double degrees = static_cast<double>(*temp) / 1000;
      if (zone.trip == 0 || degrees < zone.trip) zone.trip = degrees;
    }
    if (zone.trip > 0) zones_.push_back(std::move(zone));
  }
  std::set<uint64_t> seen;
  const std::string cpus = "/sys/devices/system/cpu/";
  for (const std::string& name : files_.List(cpus)) {
    if (!name.starts_with("cpu") || seen.size() == kMostPackages) continue;
    const auto package = files_.Number(Concat(cpus, name, "/topology/physical_package_id"));
    std::string file = Concat(cpus, name, "/thermal_throttle/package_throttle_count");
    if (!package.has_value() || !files_.Exists(file) || !seen.insert(*package).second) continue;
    packages_.emplace_back(std::move(file), Concat("CPU package ", *package));
  }
}

absl::StatusOr<std::vector<HealthEvent>> ThermalSource::Read(int64_t now_ns) {
  if (!learnt_) Learn();
  if (zones_.empty() && packages_.empty()) {
    return absl::NotFoundError("this node shows no thermal zone and no throttling counter");
  }
  std::vector<HealthEvent> events;
  const LevelRule& rule = LevelRuleOf("zone temperature");
  for (const Zone& zone : zones_) {
    const auto temp = files_.Number(zone.folder + "temp");  // below zero: nothing
    if (!temp.has_value()) continue;
    const double degrees = static_cast<double>(*temp) / 1000;
    if (!levels_.Entered(rule.name, zone.name, degrees >= zone.trip - rule.enter, now_ns)) continue;
    events.push_back(MakeEvent(rule.kind, zone.name,
                               absl::StrFormat("%.0f degrees, its limit is %.0f", degrees, zone.trip),
                               now_ns));
  }
  for (const CounterRule& counter : CounterRules()) {
    if (counter.source != RuleSource::kCpu) continue;
    for (const auto& [file, name] : packages_) {
      if (const auto value = files_.Number(file); value.has_value()) {
        counters_.Take(counter, name, *value, now_ns, &events);
      }
    }
  }
  return events;
}

std::optional<double> PressureOf(std::string_view text, std::string_view word) {
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    constexpr std::string_view kAverage = " avg10=";
    if (line.starts_with(word) && line.substr(word.size()).starts_with(kAverage)) {
      const std::string value(line.substr(word.size() + kAverage.size()));
      char* end = nullptr;
      const double percent = strtod(value.c_str(), &end);
      if (end == value.c_str() || !(percent >= 0 && percent <= 100)) return std::nullopt;
      return percent;
    }
    text.remove_prefix(std::min(line.size() + 1, text.size()));
  }
  return std::nullopt;
}

std::optional<uint64_t> NumberBehind(std::string_view text, std::string_view name) {
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    if (line.size() > name.size() && line.starts_with(name) && line[name.size()] == ' ') {
      return LeadingNumber(line.substr(name.size()));
    }
    text.remove_prefix(std::min(line.size() + 1, text.size()));
  }
  return std::nullopt;
}

absl::StatusOr<std::vector<HealthEvent>> PressureSource::Read(int64_t now_ns) {
  struct Watched {
    const char* file;
    const char* word;
    const char* rule;
    const char* what;
  };
  constexpr std::array<Watched, 3> kWatched = {
      {{"cpu", "some", "pressure cpu some", "some tasks waited for a processor"},
       {"memory", "full", "pressure memory full", "all tasks waited for memory"},
       {"io", "full", "pressure io full", "all tasks waited for input and output"}}};
  std::vector<HealthEvent> events;
  bool any = false;
  for (const Watched& watched : kWatched) {
    const auto text = files_.Read(Concat("/proc/pressure/", watched.file));
    const auto percent = text.has_value() ? PressureOf(*text, watched.word) : std::nullopt;
    if (!percent.has_value()) continue;
    any = true;
    const LevelRule& rule = LevelRuleOf(watched.rule);
    if (!levels_.Entered(rule.name, watched.file, *percent >= rule.enter, now_ns)) continue;
    events.push_back(MakeEvent(
        rule.kind, watched.file,
        Concat(watched.what, " in ", absl::StrFormat("%.0f", *percent), " % of the last 10 s"), now_ns));
  }
  const auto vmstat = files_.Read("/proc/vmstat");
  for (const CounterRule& rule : CounterRules()) {
    if (rule.source != RuleSource::kMemory || !vmstat.has_value()) continue;
    if (const auto value = NumberBehind(*vmstat, rule.counter); value.has_value()) {
      any = true;
      counters_.Take(rule, "memory", *value, now_ns, &events);
    }
  }
  if (!any) return absl::NotFoundError("this kernel tells of no pressure (psi=1) and no out-of-memory kills");
  return events;
}

}  // namespace c4::agent
