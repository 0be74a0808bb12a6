#include "cli/whatif/batch_share.h"

#include <algorithm>
#include <fstream>
#include <optional>
#include <thread>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "cli/base/process.h"

namespace c4::cli {
namespace {

constexpr int64_t kMebibyte = 1 << 20;

std::optional<int64_t> Number(const std::vector<std::string>& environment, const char* name) {
  const std::optional<std::string> text = EnvironmentValue(environment, name);
  int64_t value = 0;
  if (!text || !absl::SimpleAtoi(*text, &value) || value <= 0) return std::nullopt;
  return value;
}

// Of a file with one number; "max" is none.
std::optional<int64_t> NumberIn(const std::string& path) {
  std::ifstream file(path);
  int64_t value = 0;
  if (!(file >> value)) return std::nullopt;
  return value;
}

std::optional<int64_t> FreeOfMachineMib(const std::string& root) {
  std::ifstream file(absl::StrCat(root, "/proc/meminfo"));
  std::string key;
  int64_t kib = 0;
  for (std::string rest; file >> key >> kib; std::getline(file, rest)) {
    if (key == "MemAvailable:") return kib / 1024;
  }
  return std::nullopt;
}

// The least that any control group above this process leaves.
std::optional<int64_t> FreeOfGroupsMib(const std::string& root) {
  std::ifstream file(absl::StrCat(root, "/proc/self/cgroup"));
  std::string line;
  while (std::getline(file, line) && line.compare(0, 3, "0::") != 0) {
  }
  if (line.size() < 4) return std::nullopt;
  std::optional<int64_t> least;
  for (std::string group = line.substr(3);; group.resize(group.rfind('/'))) {
    const std::string folder = absl::StrCat(root, "/sys/fs/cgroup", group);
    const std::optional<int64_t> most = NumberIn(absl::StrCat(folder, "/memory.max"));
    const std::optional<int64_t> used = NumberIn(absl::StrCat(folder, "/memory.current"));
    if (most && used) {
      const int64_t left = std::max<int64_t>(1, (*most - *used) / kMebibyte);
      least = least ? std::min(*least, left) : left;
    }
    if (group.rfind('/') == std::string::npos) return least;
  }
}

}  // namespace

int UsableProcessors(const std::vector<std::string>& environment) {
  const auto of_process = static_cast<int64_t>(std::max(1U, std::thread::hardware_concurrency()));
  return static_cast<int>(
      std::min(Number(environment, "SLURM_CPUS_PER_TASK").value_or(of_process), of_process));
}

int64_t FreeMemoryMib(const std::vector<std::string>& environment, const std::string& root) {
  std::optional<int64_t> of_slurm = Number(environment, "SLURM_MEM_PER_NODE");
  if (const std::optional<int64_t> each = Number(environment, "SLURM_MEM_PER_CPU"); each && !of_slurm) {
    of_slurm = *each * Number(environment, "SLURM_CPUS_PER_TASK").value_or(1);
  }
  int64_t least = 0;
  for (const std::optional<int64_t>& limit : {of_slurm, FreeOfMachineMib(root), FreeOfGroupsMib(root)}) {
    if (limit && (least == 0 || *limit < least)) least = *limit;
  }
  return least;
}

}  // namespace c4::cli
