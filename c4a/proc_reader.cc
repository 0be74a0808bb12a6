#include "c4a/proc_reader.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <fcntl.h>
#include <unistd.h>
#include <vector>

#include "service/text.h"

namespace c4::agent {
namespace {

using service::Concat;

constexpr size_t kMaxFileBytes = 64 * 1024;

bool ParseNumber(std::string_view text, uint64_t* number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *number);
  return error == std::errc() && end == text.data() + text.size();
}

std::vector<std::string_view> Words(std::string_view text) {
  std::vector<std::string_view> words;
  constexpr std::string_view kSpace = " \t\n";
  for (size_t at = text.find_first_not_of(kSpace); at != std::string_view::npos;) {
    const size_t end = std::min(text.find_first_of(kSpace, at), text.size());
    words.push_back(text.substr(at, end - at));
    at = text.find_first_not_of(kSpace, end);
  }
  return words;
}

// The words behind "name:" at the start of a line; empty when there is none.
std::vector<std::string_view> LineOf(std::string_view text, std::string_view name) {
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    if (line.size() > name.size() && line.starts_with(name) && line[name.size()] == ':') {
      return Words(line.substr(name.size() + 1));
    }
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return {};
}

std::optional<uint64_t> NumberOf(std::string_view text, std::string_view name) {
  const std::vector<std::string_view> words = LineOf(text, name);
  uint64_t number = 0;
  if (words.empty() || !ParseNumber(words[0], &number)) return std::nullopt;
  return number;
}

}  // namespace

absl::StatusOr<ProcessStat> ParseProcessStat(std::string_view text) {
  const auto malformed = [](std::string_view what) {
    return absl::DataLossError(Concat("a process's stat file has no ", what));
  };
  // "pid (name) state …": the name may hold anything, also ") R 1": it ends at the last parenthesis.
  const size_t open = text.find('(');
  const size_t close = text.rfind(')');
  if (open == std::string_view::npos || close == std::string_view::npos || close < open)
    return malformed("name");
  const std::vector<std::string_view> before = Words(text.substr(0, open));
  const std::vector<std::string_view> after = Words(text.substr(close + 1));
  // Fields are numbered from 1 in proc(5); the state is the third.
  const auto field = [&](size_t number, uint64_t* value) {
    return number - 3 < after.size() && ParseNumber(after[number - 3], value);
  };
  ProcessStat stat;
  uint64_t pid = 0;
  uint64_t user = 0;
  uint64_t system = 0;
  if (before.size() != 1 || !ParseNumber(before[0], &pid) || pid > UINT32_MAX) return malformed("process id");
  if (after.empty() || after[0].size() != 1) return malformed("state");
  if (!field(14, &user) || !field(15, &system)) return malformed("processor times");
  if (!field(22, &stat.start_time_ticks)) return malformed("start time");
  stat.pid = static_cast<uint32_t>(pid);
  stat.name = std::string(text.substr(open + 1, close - open - 1));
  stat.state = after[0][0];
  stat.cpu_ticks = user + system;
  return stat;
}

ProcReader::ProcReader(std::string root)
    : root_(std::move(root)),
      ns_per_tick_(1'000'000'000u / static_cast<uint64_t>(std::max(1L, sysconf(_SC_CLK_TCK)))) {}

// Files of /proc have no size and may be read in one go only.
absl::StatusOr<std::string> ProcReader::ReadFile(const std::string& path) const {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return service::ErrnoStatus(errno, Concat("cannot open ", path));
  std::string text;
  char buffer[4096];
  ssize_t bytes = 0;
  int error = 0;
  do {
    bytes = read(fd, buffer, sizeof buffer);
    error = errno;
    if (bytes > 0) text.append(buffer, static_cast<size_t>(bytes));
  } while ((bytes > 0 && text.size() < kMaxFileBytes) || (bytes < 0 && error == EINTR));
  close(fd);
  if (bytes >= 0) return text;
  // ESRCH: the process ended between open and read.
  return service::ErrnoStatus(error == ESRCH ? ENOENT : error, Concat("cannot read ", path));
}

absl::StatusOr<ProcessStat> ProcReader::ReadStat(uint32_t pid) const {
  const absl::StatusOr<std::string> text = ReadFile(Concat(root_, "/", pid, "/stat"));
  if (!text.ok()) return text.status();
  return ParseProcessStat(*text);
}

absl::StatusOr<ProcessInfo> ProcReader::Read(uint32_t pid) const {
  absl::StatusOr<ProcessStat> stat = ReadStat(pid);
  if (!stat.ok()) return stat.status();
  ProcessInfo info;
  info.stat = *std::move(stat);
  info.cpu_ns = info.stat.cpu_ticks * ns_per_tick_;
  const std::string directory = Concat(root_, "/", pid, "/");
  if (const auto status = ReadFile(directory + "status"); status.ok()) {
    const std::vector<std::string_view> pids = LineOf(*status, "NSpid");
    uint64_t own = 0;
    if (!pids.empty() && ParseNumber(pids.back(), &own) && own <= UINT32_MAX) {
      info.pid_in_namespace = static_cast<uint32_t>(own);
    }
  }
  if (const auto channel = ReadFile(directory + "wchan"); channel.ok() && *channel != "0") {
    info.wait_channel = service::ToUtf8(*channel);
  }
  if (const auto io = ReadFile(directory + "io"); io.ok()) {
    const std::optional<uint64_t> in = NumberOf(*io, "rchar");
    const std::optional<uint64_t> out = NumberOf(*io, "wchar");
    if (in.has_value() && out.has_value()) info.io_bytes = *in + *out;
  }
  return info;
}

bool ProcReader::InOtherTimeNamespace(uint32_t pid) const {
  const auto read = [](const std::string& path) {
    char target[64];
    const ssize_t bytes = readlink(path.c_str(), target, sizeof target);
    return bytes > 0 ? std::string(target, static_cast<size_t>(bytes)) : std::string();
  };
  const std::string own = read(root_ + "/self/ns/time");
  const std::string other = read(Concat(root_, "/", pid, "/ns/time"));
  return !own.empty() && !other.empty() && own != other;
}

absl::StatusOr<std::array<uint8_t, 16>> ProcReader::BootId() const {
  const absl::StatusOr<std::string> text = ReadFile(root_ + "/sys/kernel/random/boot_id");
  if (!text.ok()) return text.status();
  std::array<uint8_t, 16> id{};
  size_t digits = 0;
  for (const char c : *text) {
    if (c == '-') continue;
    uint64_t value = 0;
    const auto [end, error] = std::from_chars(&c, &c + 1, value, 16);
    if (error != std::errc() || digits == 32) break;
    id[digits / 2] = static_cast<uint8_t>(id[digits / 2] << 4 | value);
    ++digits;
  }
  if (digits != 32) return absl::DataLossError("the kernel's boot id does not have 32 digits");
  return id;
}

std::string BootIdText(const uint8_t (&id)[16]) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (const uint8_t byte : id) {
    text.push_back(kDigits[byte >> 4]);
    text.push_back(kDigits[byte & 15]);
  }
  return text;
}

}  // namespace c4::agent
