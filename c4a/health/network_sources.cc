#include "c4a/health/network_sources.h"

#include <cstdlib>

#include "absl/strings/str_format.h"
#include "service/text.h"

namespace c4::agent {
namespace {

using service::Concat;

constexpr size_t kMostDevices = 256;
constexpr size_t kMostPorts = 8;

std::string RateText(double rate, const char* unit) {
  return Concat(absl::StrFormat("%g", rate), " ", unit);
}

void TakeCounters(const RootFiles& files, RuleSource source, const std::string& folder,
                  const std::string& device, int64_t now_ns, CounterWatch* watch,
                  std::vector<HealthEvent>* events) {
  for (const CounterRule& rule : CounterRules()) {
    if (rule.source != source) continue;
    if (const auto value = files.Number(Concat(folder, rule.counter)); value.has_value()) {
      watch->Take(rule, device, *value, now_ns, events);
    }
  }
}

// Remembers `now`, and tells what has changed.
void TakeLink(const std::string& device, const LinkState& now, const char* unit, int64_t now_ns,
              std::map<std::string, LinkState>* links, std::vector<HealthEvent>* events) {
  const auto known = links->find(device);
  if (known == links->end()) {
    if (links->size() < kMostDevices * kMostPorts) links->emplace(device, now);
    return;
  }
  for (HealthEvent& event : CompareLinks(device, known->second, now, unit, now_ns)) {
    events->push_back(std::move(event));
  }
  // The rate of a link that is down means nothing; what it was counts when it comes back.
  known->second = {now.up, now.up && now.rate > 0 ? now.rate : known->second.rate};
}

}  // namespace

std::vector<HealthEvent> CompareLinks(const std::string& device, const LinkState& before,
                                      const LinkState& now, const char* unit, int64_t now_ns) {
  std::vector<HealthEvent> events;
  const auto add = [&](const char* kind, std::string text, uint64_t number) {
    HealthEvent event;
    event.kind = kind;
    event.device = device;
    event.text = std::move(text);
    event.number = number;
    event.at_ns = now_ns;
    events.push_back(std::move(event));
  };
  if (before.up && !now.up) add(event_kind::kLinkDown, "the link is down", 0);
  if (!before.up && now.up) add(event_kind::kLinkUp, "the link is up", 0);
  if (now.up && before.rate > 0 && now.rate > 0 && now.rate < before.rate) {
    add(event_kind::kLinkSlow,
        Concat("the link runs at ", RateText(now.rate, unit), ", no longer at ", RateText(before.rate, unit)),
        static_cast<uint64_t>(now.rate));
  }
  return events;
}

absl::StatusOr<std::vector<HealthEvent>> InfinibandSource::Read(int64_t now_ns) {
  const std::string root = "/sys/class/infiniband/";
  std::vector<std::string> devices = files_.List(root);
  if (devices.empty()) return absl::NotFoundError("this node has no InfiniBand or RoCE device");
  if (devices.size() > kMostDevices) devices.resize(kMostDevices);
  std::vector<HealthEvent> events;
  for (const std::string& name : devices) {
    const std::string folder = Concat(root, name, "/ports/");
    std::vector<std::string> ports = files_.List(folder);
    if (ports.size() > kMostPorts) ports.resize(kMostPorts);
    const size_t before = events.size();
    for (const std::string& port : ports) {
      const std::string device = service::ToUtf8(ports.size() == 1 ? name : Concat(name, " port ", port));
      ReadPort(Concat(folder, port, "/"), device, now_ns, &events);
    }
    if (events.size() == before) continue;
    const std::vector<std::string> interfaces = files_.List(Concat(root, name, "/device/net"));
    for (size_t i = before; i < events.size() && !interfaces.empty(); ++i)
      events[i].interface = interfaces[0];
  }
  return events;
}

void InfinibandSource::ReadPort(const std::string& folder, const std::string& device, int64_t now_ns,
                                std::vector<HealthEvent>* events) {
  LinkState now;
  // "4: ACTIVE", "5: LinkUp", "400 Gb/sec (4X NDR)"
  const auto state = files_.Number(folder + "state");
  const auto physical = files_.Number(folder + "phys_state");
  constexpr uint64_t kActive = 4;
  constexpr uint64_t kLinkUp = 5;
  if (!state.has_value()) return;
  now.up = *state == kActive && physical.value_or(kLinkUp) == kLinkUp;
  // A fraction is possible: "2.5 Gb/sec (1X SDR)".
  if (const auto rate = files_.Word(folder + "rate"); rate.has_value())
    now.rate = strtod(rate->c_str(), nullptr);
  TakeLink(device, now, "Gb/s", now_ns, &links_, events);
  TakeCounters(files_, RuleSource::kInfiniband, folder + "counters/", device, now_ns, &counters_, events);
  TakeCounters(files_, RuleSource::kInfinibandHardware, folder + "hw_counters/", device, now_ns, &counters_,
               events);
}

bool EthernetSource::IsWatched(const std::string& interface) const {
  if (interface == "lo") return false;
  if (selects_ != nullptr) return selects_(interface);
  const std::string folder = Concat("/sys/class/net/", interface);
  return files_.Exists(folder + "/device") || files_.Exists(folder + "/bonding");
}

absl::StatusOr<std::vector<HealthEvent>> EthernetSource::Read(int64_t now_ns) {
  std::vector<HealthEvent> events;
  size_t watched = 0;
  for (const std::string& interface : files_.List("/sys/class/net")) {
    if (watched == kMostDevices) break;
    if (!IsWatched(interface)) continue;
    ++watched;
    const std::string folder = Concat("/sys/class/net/", interface, "/");
    const std::string device = service::ToUtf8(interface);
    const size_t before = events.size();
    // Of an interface that is set down by hand it cannot be read.
    const auto carrier = files_.Number(folder + "carrier");
    LinkState now;
    now.up = carrier.value_or(0) != 0;
    if (const auto speed = files_.Number(folder + "speed"); speed.has_value()) {
      now.rate = static_cast<double>(*speed);
    }
    TakeLink(device, now, "Mb/s", now_ns, &links_, &events);
    TakeCounters(files_, RuleSource::kEthernet, folder + "statistics/", device, now_ns, &counters_, &events);
    for (const CounterRule& rule : CounterRules()) {
      if (rule.source != RuleSource::kEthernet || rule.counter != "carrier_changes") continue;
      if (const auto value = files_.Number(folder + "carrier_changes"); value.has_value()) {
        counters_.Take(rule, device, *value, now_ns, &events);
      }
    }
    for (size_t i = before; i < events.size(); ++i) events[i].interface = interface;
  }
  if (watched == 0) return absl::NotFoundError("this node has no network interface to watch");
  return events;
}

}  // namespace c4::agent
