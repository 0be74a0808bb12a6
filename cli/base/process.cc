#include "cli/base/process.h"

#include <charconv>
#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "cli/base/absl_status.h"

namespace c4::cli {

namespace fs = std::filesystem;

absl::StatusOr<std::string> FindProgram(const std::string& name,
                                        const std::vector<std::string>& environment) {
  return ToAbsl(ProgramPath(name, environment));
}

absl::StatusOr<pid_t> Spawn(const SpawnRequest& request) {
  return ToAbsl(StartProgram(request));
}

absl::StatusOr<std::string> OwnFolder() {
  return ToAbsl(ExecutableFolder());
}

std::optional<ProcessStat> ParseProcessStat(std::string_view text) {
  // The command, in parentheses, may hold anything: what counts starts after the last ')'.
  const size_t end = text.rfind(')');
  if (end == std::string_view::npos || end + 2 >= text.size()) return std::nullopt;
  const std::vector<std::string> fields =
      absl::StrSplit(absl::string_view(text.data() + end + 2, text.size() - end - 2), ' ');
  constexpr size_t kState = 0, kParent = 1, kGroup = 2, kStartTime = 19;  // fields 3, 4, 5 and 22
  if (fields.size() <= kStartTime || fields[kState].size() != 1) return std::nullopt;
  ProcessStat stat;
  stat.state = fields[kState][0];
  const auto number = [&fields](size_t index, auto* value) {
    const std::string& field = fields[index];
    return std::from_chars(field.data(), field.data() + field.size(), *value).ec == std::errc();
  };
  if (!number(kParent, &stat.parent) || !number(kGroup, &stat.group) ||
      !number(kStartTime, &stat.start_time_ticks)) {
    return std::nullopt;
  }
  return stat;
}

std::optional<ProcessStat> ReadProcessStat(pid_t pid) {
  std::ifstream file(absl::StrCat("/proc/", pid, "/stat"));
  std::string text;
  std::getline(file, text,
               '\0');  // all of it; a process that ends meanwhile is an error, which iterators throw
  return ParseProcessStat(text);
}

bool IsStopped(pid_t pid) {
  const std::optional<ProcessStat> stat = ReadProcessStat(pid);
  return stat.has_value() && (stat->state == 'T' || stat->state == 't');
}

std::vector<pid_t> ChildrenOf(pid_t parent) {
  std::vector<pid_t> children;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator("/proc", error)) {
    const std::string name = entry.path().filename();
    pid_t pid = 0;
    const auto parsed = std::from_chars(name.data(), name.data() + name.size(), pid);
    if (parsed.ec != std::errc() || parsed.ptr != name.data() + name.size()) continue;
    const std::optional<ProcessStat> stat = ReadProcessStat(pid);
    if (stat.has_value() && stat->parent == parent && stat->state != 'Z') children.push_back(pid);
  }
  return children;
}

}  // namespace c4::cli
