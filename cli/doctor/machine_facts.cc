#include "cli/doctor/machine_facts.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <sys/statvfs.h>
#include <sys/timex.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "cli/doctor/device_files.h"
#include "service/run_dir.h"

namespace c4::cli {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMostBytes = 16 << 20;  // /proc/cpuinfo of hundreds of cores

std::string Read(const std::string& path) {
  const absl::StatusOr<std::string> text = service::ReadSmallFile(path, kMostBytes, service::Links::kFollow);
  return text.ok() ? *text : "";
}

std::string FirstLine(const std::string& text) {
  return text.substr(0, text.find('\n'));
}

std::vector<std::string> NamesIn(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {
    names.push_back(entry.path().filename().string());
  }
  std::ranges::sort(names);
  return names;
}

uint64_t LimitValue(const std::string& text) {
  if (text == "unlimited") return kUnlimited;
  uint64_t value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

// "Max open files            1024                 1048576              files"
std::optional<MachineFacts::Limit> LimitNamed(const std::string& limits, const std::string& name) {
  for (const std::string& line : std::vector<std::string>(absl::StrSplit(limits, '\n'))) {
    if (!absl::StartsWith(line, name)) continue;
    const std::vector<std::string> words = absl::StrSplit(line.substr(name.size()), ' ', absl::SkipEmpty());
    if (words.size() >= 2) return MachineFacts::Limit{LimitValue(words[0]), LimitValue(words[1])};
  }
  return std::nullopt;
}

std::optional<bool> InvariantTsc(const std::string& cpuinfo) {
  for (const std::string& line : std::vector<std::string>(absl::StrSplit(cpuinfo, '\n'))) {
    if (!absl::StartsWith(line, "flags")) continue;
    const std::vector<std::string> flags = absl::StrSplit(line, ' ');
    const auto has = [&flags](const char* flag) { return std::ranges::find(flags, flag) != flags.end(); };
    return has("constant_tsc") && has("nonstop_tsc");
  }
  return std::nullopt;
}

// "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.82.07  Wed …": the first word that is a version.
std::string DriverVersion(const std::string& text) {
  const std::string line = FirstLine(text);
  for (const std::string& word : std::vector<std::string>(absl::StrSplit(line, ' ', absl::SkipEmpty()))) {
    if (word.find('.') != std::string::npos && word.find_first_not_of("0123456789.") == std::string::npos) {
      return word;
    }
  }
  return text.empty() ? "" : "of unknown version";
}

RdmaDevice ReadRdma(const std::string& folder, const std::string& name) {
  RdmaDevice device = {name};
  const std::string ports = folder + "/ports/";
  for (const std::string& port : NamesIn(ports)) {
    ++device.ports;
    if (absl::StartsWith(Read(absl::StrCat(ports, port, "/state")), "4:")) ++device.active_ports;
  }
  return device;
}

}  // namespace

MachineFacts ReadMachine(const std::string& root) {
  MachineFacts facts;
  struct statvfs space {};
  if (statvfs((root + "/dev/shm").c_str(), &space) == 0) {
    facts.shared_memory = {space.f_blocks * space.f_frsize, space.f_bavail * space.f_frsize};
  }
  const std::string limits = Read(root + "/proc/self/limits");
  facts.open_files = LimitNamed(limits, "Max open files");
  facts.locked_memory_bytes = LimitNamed(limits, "Max locked memory");
  facts.processes = LimitNamed(limits, "Max processes");
  facts.invariant_tsc = InvariantTsc(Read(root + "/proc/cpuinfo"));
  facts.clock_source =
      FirstLine(Read(root + "/sys/devices/system/clocksource/clocksource0/current_clocksource"));
  timex clock{};
  if (adjtimex(&clock) >= 0) facts.clock_synchronised = (clock.status & STA_UNSYNC) == 0;
  facts.gpu_driver = DriverVersion(Read(root + "/proc/driver/nvidia/version"));
  facts.gpus = CountGpus(root);
  const std::string rdma = root + "/sys/class/infiniband";
  for (const std::string& name : NamesIn(rdma))
    facts.rdma.push_back(ReadRdma(absl::StrCat(rdma, "/", name), name));
  facts.verbs_devices = NumberedNames(root + "/dev/infiniband", "uverbs");
  return facts;
}

}  // namespace c4::cli
