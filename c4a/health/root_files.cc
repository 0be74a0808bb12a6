#include "c4a/health/root_files.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>
#include <utility>

namespace c4::agent {

std::string_view Trimmed(std::string_view text) {
  constexpr std::string_view kBlank = " \t\r\n";
  const size_t begin = text.find_first_not_of(kBlank);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kBlank) - begin + 1);
}

std::optional<uint64_t> LeadingNumber(std::string_view text) {
  text = Trimmed(text);
  uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc()) return std::nullopt;
  return number;
}

RootFiles::RootFiles(std::string root, Note note)
    : root_(root.ends_with('/') ? root.substr(0, root.size() - 1) : std::move(root)),
      note_(std::move(note)) {}

std::optional<std::string> RootFiles::Read(const std::string& path) const {
  Tell(path);
  const int fd = open(FullPath(path).c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return std::nullopt;
  std::string text;
  char buffer[4096];
  ssize_t bytes = 0;
  do {
    bytes = read(fd, buffer, sizeof buffer);
    if (bytes > 0) text.append(buffer, std::min(static_cast<size_t>(bytes), kMostBytes - text.size()));
  } while ((bytes > 0 && text.size() < kMostBytes) || (bytes < 0 && errno == EINTR));
  close(fd);
  if (bytes < 0) return std::nullopt;
  return text;
}

std::optional<uint64_t> RootFiles::Number(const std::string& path) const {
  const std::optional<std::string> text = Read(path);
  return text.has_value() ? LeadingNumber(*text) : std::nullopt;
}

std::optional<std::string> RootFiles::Word(const std::string& path) const {
  const std::optional<std::string> text = Read(path);
  if (!text.has_value()) return std::nullopt;
  return std::string(Trimmed(*text));
}

std::vector<std::string> RootFiles::List(const std::string& path) const {
  Tell(path);
  std::vector<std::string> names;
  DIR* const directory = opendir(FullPath(path).c_str());
  if (directory == nullptr) return names;
  // NOLINTNEXTLINE(concurrency-mt-unsafe): the stream is this call's own
  while (const dirent* entry = readdir(directory)) {
    const std::string_view name = entry->d_name;
    if (name == "." || name == "..") continue;
    if (names.size() == kMostEntries) break;
    names.emplace_back(name);
  }
  closedir(directory);
  std::sort(names.begin(), names.end());
  return names;
}

bool RootFiles::Exists(const std::string& path) const {
  return access(FullPath(path).c_str(), F_OK) == 0;
}

std::string RootFiles::LinkName(const std::string& path) const {
  char target[512];
  const ssize_t bytes = readlink(FullPath(path).c_str(), target, sizeof target);
  if (bytes <= 0) return {};
  const std::string_view text(target, static_cast<size_t>(bytes));
  return std::string(text.substr(text.find_last_of('/') + 1));
}

}  // namespace c4::agent
