#include "c4a/health/kernel_log.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cstdio>

#include "absl/strings/ascii.h"
#include "c4a/health/root_files.h"
#include "service/printable.h"
#include "service/text.h"
#include "service/xid.h"

namespace c4::agent {
namespace {

using service::Concat;

constexpr size_t kMostText = 160;   // of what a message is quoted
constexpr size_t kMostDevice = 64;  // bytes of a name
constexpr size_t kMostMessage = 2048;
constexpr int64_t kMostStampUs = int64_t{1} << 52;  // 140 years

bool Has(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

// Whatever the case of the letters.
bool HasWords(std::string_view text, std::string_view part) {
  const auto same = [](char a, char b) { return absl::ascii_tolower(a) == absl::ascii_tolower(b); };
  return std::search(text.begin(), text.end(), part.begin(), part.end(), same) != text.end();
}

// What stands behind the first `mark`; nothing where there is none.
std::optional<std::string_view> After(std::string_view text, std::string_view mark) {
  const size_t at = text.find(mark);
  if (at == std::string_view::npos) return std::nullopt;
  return text.substr(at + mark.size());
}

std::string Quoted(std::string_view text, size_t most = kMostText) {
  return service::Printable(service::ToUtf8(Trimmed(text.substr(0, most))));
}

std::string_view FirstWord(std::string_view text) {
  text = Trimmed(text);
  return text.substr(0, std::min(text.find_first_of(" \t"), text.size()));
}

// The first address of the PCI bus in the message; empty: none.
std::string FindPci(std::string_view message) {
  constexpr size_t kMostWords = 16;
  for (size_t words = 0; words < kMostWords && !message.empty(); ++words) {
    std::string_view word = FirstWord(message);
    message.remove_prefix(
        std::min<size_t>(message.size(), static_cast<size_t>(word.data() - message.data()) + word.size()));
    while (!word.empty() && (word.back() == ':' || word.back() == ')' || word.back() == ','))
      word.remove_suffix(1);
    while (!word.empty() && word.front() == '(') word.remove_prefix(1);
    if (std::string address = PciAddress(word); !address.empty()) return address;
  }
  return {};
}

HealthEvent Event(const char* kind, std::string device, std::string text, uint64_t number = 0) {
  HealthEvent event;
  event.kind = kind;
  event.device = std::move(device);
  event.text = std::move(text);
  event.number = number;
  return event;
}

// "NVRM: Xid (PCI:0000:3b:00): 79, pid=4711, name=python, GPU has fallen off the bus."
std::optional<HealthEvent> ParseXid(std::string_view message) {
  const auto rest = After(message, "NVRM: Xid (");
  if (!rest.has_value()) return std::nullopt;
  const size_t close = rest->find(')');
  if (close == std::string_view::npos) return std::nullopt;
  const std::string address = PciAddress(rest->substr(0, close));
  const auto behind = After(rest->substr(close), ": ");
  if (address.empty() || !behind.has_value()) return std::nullopt;
  const std::optional<uint64_t> number = LeadingNumber(*behind);
  if (!number.has_value()) return std::nullopt;
  std::string text = Concat("Xid ", *number, ", ", service::MeaningOfXid(*number).words);
  // Whose it is; the driver writes <unknown> where it does not know.
  const auto pid = After(*behind, "pid=");
  const std::optional<uint64_t> process =
      pid.has_value() ? LeadingNumber(pid->substr(pid->starts_with('\'') ? 1 : 0)) : std::nullopt;
  if (process.has_value()) absl::StrAppend(&text, " (process ", *process, ")");
  return Event(event_kind::kXid, address, std::move(text), *number);
}

// "nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 12028, Non-fatal, Link 44 egress ..."
std::optional<HealthEvent> ParseSxid(std::string_view message) {
  const auto rest = After(message, ": SXid (");
  if (!rest.has_value()) return std::nullopt;
  const auto behind = After(*rest, "): ");
  const std::optional<uint64_t> number = behind.has_value() ? LeadingNumber(*behind) : std::nullopt;
  if (!number.has_value()) return std::nullopt;
  const std::string_view name = FirstWord(message.substr(0, message.find(": SXid (")));
  return Event(event_kind::kSxid, Quoted(name, kMostDevice), Concat("SXid ", Quoted(*behind)), *number);
}

// "Memory cgroup out of memory: Killed process 4711 (python) total-vm:8388608kB, ..."
std::optional<HealthEvent> ParseOutOfMemory(std::string_view message) {
  if (!HasWords(message, "out of memory")) return std::nullopt;
  auto rest = After(message, "Killed process ");
  if (!rest.has_value()) rest = After(message, "Kill process ");
  const std::optional<uint64_t> pid = rest.has_value() ? LeadingNumber(*rest) : std::nullopt;
  if (!pid.has_value()) return std::nullopt;
  const size_t open = rest->find('(');
  const size_t close = rest->find(')', open == std::string_view::npos ? 0 : open);
  std::string device = Concat("process ", *pid);
  if (open != std::string_view::npos && close != std::string_view::npos) {
    absl::StrAppend(&device, " (", Quoted(rest->substr(open + 1, close - open - 1), kMostDevice), ")");
  }
  const bool of_group = HasWords(message, "memory cgroup");
  return Event(
      event_kind::kOutOfMemory, std::move(device),
      of_group ? "killed, for its memory control group was full" : "killed, for the host's memory was full",
      *pid);
}

// "INFO: task python:4711 blocked for more than 120 seconds."
std::optional<HealthEvent> ParseBlocked(std::string_view message) {
  const auto rest = After(message, "INFO: task ");
  if (!rest.has_value()) return std::nullopt;
  const size_t end = rest->find(" blocked for more than ");
  if (end == std::string_view::npos) return std::nullopt;
  const std::string_view who = rest->substr(0, end);
  const size_t colon = who.rfind(':');
  const std::optional<uint64_t> pid =
      colon == std::string_view::npos ? std::nullopt : LeadingNumber(who.substr(colon + 1));
  const std::optional<uint64_t> seconds = LeadingNumber(*After(*rest, " blocked for more than "));
  if (!pid.has_value() || !seconds.has_value()) return std::nullopt;
  return Event(event_kind::kTaskBlocked,
               Concat("process ", *pid, " (", Quoted(who.substr(0, colon), kMostDevice), ")"),
               Concat("blocked in the kernel for more than ", *seconds, " s"), *pid);
}

// "watchdog: BUG: soft lockup - CPU#12 stuck for 22s! [python:4711]", "rcu: INFO: rcu_sched self-detected
// stall"
std::optional<HealthEvent> ParseStuck(std::string_view message) {
  const bool lockup = Has(message, "soft lockup") || Has(message, "hard LOCKUP");
  const bool stall = Has(message, "rcu") && Has(message, "detected stall");
  if (!lockup && !stall) return std::nullopt;
  auto cpu = After(message, "CPU#");
  if (!cpu.has_value()) cpu = After(message, "on cpu ");
  const std::optional<uint64_t> number = cpu.has_value() ? LeadingNumber(*cpu) : std::nullopt;
  return Event(event_kind::kCpuStuck, number.has_value() ? Concat("CPU ", *number) : "a CPU", Quoted(message),
               number.value_or(0));
}

// "mce: [Hardware Error]: CPU 12: Machine Check: 0 Bank 4: b200...", "EDAC MC0: 1 CE memory read error on
// ..."
std::optional<HealthEvent> ParseMachineCheck(std::string_view message) {
  if (const auto memory = After(message, "EDAC MC"); memory.has_value()) {
    const bool error = Has(*memory, " CE ") || Has(*memory, " UE ");
    const std::optional<uint64_t> controller = LeadingNumber(*memory);
    if (!error || !controller.has_value()) return std::nullopt;
    return Event(event_kind::kMachineCheck, Concat("memory controller ", *controller),
                 Concat(Has(*memory, " UE ") ? "error that could not be corrected: " : "corrected error: ",
                        Quoted(Trimmed(memory->substr(std::min(memory->find(':') + 1, memory->size()))))));
  }
  const bool check = Has(message, "Machine Check") || Has(message, "Machine check events logged");
  if (!check || !HasWords(message, "hardware error")) return std::nullopt;
  const auto cpu = After(message, "CPU ");
  const std::optional<uint64_t> number = cpu.has_value() ? LeadingNumber(*cpu) : std::nullopt;
  return Event(event_kind::kMachineCheck, number.has_value() ? Concat("CPU ", *number) : "a CPU",
               Quoted(*After(message, "]: ")));
}

// "CPU12: Core temperature above threshold, cpu clock throttled (total events = 3)"
std::optional<HealthEvent> ParseThermal(std::string_view message) {
  if (!Has(message, "temperature above threshold")) return std::nullopt;
  const auto cpu = After(message, "CPU");
  const std::optional<uint64_t> number = cpu.has_value() ? LeadingNumber(*cpu) : std::nullopt;
  if (!number.has_value()) return std::nullopt;
  return Event(event_kind::kThermal, Concat("CPU ", *number), "too hot, its clock is throttled", *number);
}

// "pcieport 0000:3a:00.0: AER: Uncorrected (Fatal) error received: 0000:3b:00.0",
// "nvidia 0000:3b:00.0: PCIe Bus Error: severity=Corrected, type=Physical Layer, ...",
// "pcieport 0000:3a:00.0: pciehp: Slot(65): Link Down"
std::optional<HealthEvent> ParsePcie(std::string_view message) {
  if (Has(message, "pciehp:") && HasWords(message, "link down")) {
    return Event(event_kind::kPcieError, FindPci(message), "the device behind this port has left the bus");
  }
  const bool received = Has(message, "AER:") && HasWords(message, "error") && HasWords(message, "received");
  const bool bus_error = Has(message, "PCIe Bus Error:");
  const bool contained = Has(message, "DPC:") && Has(message, "containment event");
  if (!received && !bus_error && !contained) return std::nullopt;
  std::string device = FindPci(message);
  if (received) {
    // The port hears of it; whose error it is stands behind.
    if (std::string source = FindPci(*After(message, "AER:")); !source.empty()) device = std::move(source);
  }
  if (device.empty()) return std::nullopt;
  const bool corrected = HasWords(message, "corrected") && !HasWords(message, "uncorrected");
  return Event(event_kind::kPcieError, std::move(device),
               contained   ? "the port was cut off after an error of the PCIe bus"
               : corrected ? "corrected error of the PCIe bus"
                           : "error of the PCIe bus that could not be corrected");
}

// The name of the interface in "mlx5_core 0000:5e:00.0 eth2: Link down", "bond0: (slave eth1): link status
// definitely down, disabling it", "ixgbe 0000:01:00.0 eth0: NIC Link is Down": mostly the last word before a
// colon.
std::string InterfaceIn(std::string_view before) {
  if (const auto slave = After(before, "(slave "); slave.has_value()) {
    return Quoted(slave->substr(0, std::min(slave->find(')'), slave->size())), kMostDevice);
  }
  const size_t colon = before.rfind(':');
  // "igb: eth0 NIC Link is Down": then behind it.
  const std::string_view behind = FirstWord(before.substr(colon + 1));
  if (!behind.empty() && behind != "NIC") return Quoted(behind, kMostDevice);
  before = Trimmed(before.substr(0, colon));
  return Quoted(before.substr(before.find_last_of(" \t") + 1), kMostDevice);
}

std::optional<HealthEvent> ParseLink(std::string_view message) {
  struct Phrase {
    std::string_view words;
    const char* kind;
  };
  constexpr std::array<Phrase, 6> kPhrases = {{{"link down", event_kind::kLinkDown},
                                               {"link is down", event_kind::kLinkDown},
                                               {"link status definitely down", event_kind::kLinkDown},
                                               {"link up", event_kind::kLinkUp},
                                               {"link is up", event_kind::kLinkUp},
                                               {"link status definitely up", event_kind::kLinkUp}}};
  const std::string lower = absl::AsciiStrToLower(absl::string_view(message.data(), message.size()));
  for (const Phrase& phrase : kPhrases) {
    const size_t at = lower.find(phrase.words);
    if (at == std::string::npos || at == 0) continue;
    const std::string_view before = message.substr(0, at);
    if (!Has(before, ":")) continue;
    if (Has(before, "SATA")) return std::nullopt;  // a disk's
    std::string device = InterfaceIn(before);
    if (std::string address = PciAddress(device); !address.empty()) device = std::move(address);
    const bool down = phrase.kind == event_kind::kLinkDown;
    return Event(phrase.kind, std::move(device), down ? "the link is down" : "the link is up");
  }
  return std::nullopt;
}

// "mlx5_core 0000:17:00.0: Port module event[error]: module 1, Cable error, High Temperature",
// "mlx5_core 0000:17:00.0: device's health compromised - reached miss count"
std::optional<HealthEvent> ParseNic(std::string_view message) {
  if (!Has(message, "mlx5_core ") && !Has(message, "mlx4_core ")) return std::nullopt;
  const std::string device = FindPci(message);
  if (device.empty()) return std::nullopt;
  constexpr std::array<std::string_view, 6> kBad = {"cable error", "cable unplugged", "health compromised",
                                                    "fatal error", "timeout",         "high temperature"};
  if (std::none_of(kBad.begin(), kBad.end(), [&](std::string_view bad) { return HasWords(message, bad); })) {
    return std::nullopt;
  }
  const auto module = After(message, "ort module event");
  const auto rest = module.has_value() ? After(*module, ": ") : After(message, ": ");
  return Event(event_kind::kNicError, device, Quoted(rest.value_or(message)));
}

// "nfs: server store7 not responding, still trying", "blk_update_request: I/O error, dev nvme0n1, sector
// 2048"
std::optional<HealthEvent> ParseStorage(std::string_view message) {
  if (const auto server = After(message, "nfs: server "); server.has_value()) {
    if (!Has(*server, "not responding")) return std::nullopt;
    return Event(event_kind::kStorage, Concat("NFS server ", Quoted(FirstWord(*server), kMostDevice)),
                 "does not answer");
  }
  const auto dev = After(message, "I/O error, dev ");
  if (!dev.has_value()) return std::nullopt;
  return Event(event_kind::kStorage, Quoted(dev->substr(0, dev->find_first_of(", ")), kMostDevice),
               "input/output error");
}

}  // namespace

std::string PciAddress(std::string_view text) {
  if (text.starts_with("PCI:")) text.remove_prefix(4);
  // DOMAIN:BUS:DEVICE[.FUNCTION]
  std::array<uint32_t, 4> parts{};
  constexpr std::array<size_t, 4> kMostDigits = {8, 2, 2, 1};
  size_t part = 0;
  for (; part < parts.size(); ++part) {
    const size_t digits = std::min(text.find_first_not_of("0123456789abcdefABCDEF"), text.size());
    if (digits == 0 || digits > kMostDigits[part]) return {};
    std::from_chars(text.data(), text.data() + digits, parts[part], 16);
    text.remove_prefix(digits);
    if (text.empty()) break;
    if (text.front() != (part < 2 ? ':' : '.') || part == 3) return {};
    text.remove_prefix(1);
  }
  if (part < 2) return {};
  char address[24];
  snprintf(address, sizeof address, "%04x:%02x:%02x.%x", parts[0], parts[1], parts[2], parts[3]);
  return address;
}

std::optional<KernelLine> SplitKernelLine(std::string_view line) {
  if (line.empty() || line.front() == ' ') return std::nullopt;
  KernelLine result;
  // PRIORITY,SEQUENCE,MICROSECONDS,FLAGS;
  if (isdigit(static_cast<unsigned char>(line.front())) != 0) {
    const size_t end = line.find(';');
    const std::string_view head = line.substr(0, std::min(end, line.size()));
    const size_t first = head.find(',');
    const size_t second = first == std::string_view::npos ? first : head.find(',', first + 1);
    if (end != std::string_view::npos && second != std::string_view::npos) {
      const std::optional<uint64_t> stamp = LeadingNumber(head.substr(second + 1));
      if (stamp.has_value() && *stamp <= static_cast<uint64_t>(kMostStampUs)) {
        result.stamp_us = static_cast<int64_t>(*stamp);
      }
      result.message = line.substr(end + 1);
      return result;
    }
  }
  if (const auto behind = After(line, " kernel: "); behind.has_value()) line = *behind;
  result.message = line;
  if (!line.starts_with('[')) return result;
  const size_t close = line.find(']');
  if (close == std::string_view::npos) return result;
  double seconds = -1;
  const std::string_view stamp = Trimmed(line.substr(1, close - 1));
  const auto [end, error] = std::from_chars(stamp.data(), stamp.data() + stamp.size(), seconds);
  if (error != std::errc() || end != stamp.data() + stamp.size()) return result;
  if (seconds >= 0 && seconds * 1e6 <= static_cast<double>(kMostStampUs)) {
    result.stamp_us = static_cast<int64_t>(seconds * 1e6);
  }
  result.message = Trimmed(line.substr(close + 1));
  return result;
}

std::optional<HealthEvent> ParseKernelMessage(std::string_view message) {
  message = message.substr(0, kMostMessage);
  using Parser = std::optional<HealthEvent> (*)(std::string_view);
  constexpr std::array<Parser, 11> kParsers = {ParseXid,   ParseSxid,         ParseOutOfMemory, ParseBlocked,
                                               ParseStuck, ParseMachineCheck, ParseThermal,     ParsePcie,
                                               ParseNic,   ParseLink,         ParseStorage};
  for (const Parser parse : kParsers) {
    std::optional<HealthEvent> event = parse(message);
    if (!event.has_value()) continue;
    if (event->device.empty()) return std::nullopt;  // it only looks like one
    return event;
  }
  return std::nullopt;
}

}  // namespace c4::agent
