#include "c4d_master/sources/inspector_folder.h"

#include <algorithm>
#include <fcntl.h>
#include <string_view>
#include <unistd.h>
#include <utility>

#include "service/log.h"
#include "service/text.h"

namespace c4::c4d {
namespace {

using service::Concat;

constexpr int64_t kOldNs = 600 * kSecondNs;

class Descriptor {
 public:
  explicit Descriptor(const std::string& path) : fd_(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {}
  ~Descriptor() {
    if (fd_ >= 0) close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }

 private:
  const int fd_;
};

// Up to so many bytes from there; fewer at the end of the file, or where it cannot be read.
std::string ReadFrom(int fd, uint64_t from, uint64_t bytes) {
  std::string text(bytes, '\0');
  size_t got = 0;
  while (got < text.size()) {
    const ssize_t count = pread(fd, text.data() + got, text.size() - got, static_cast<off_t>(from + got));
    if (count <= 0) break;
    got += static_cast<size_t>(count);
  }
  text.resize(got);
  return text;
}

}  // namespace

InspectorFolder::InspectorFolder(std::string folder) : folder_(std::move(folder), "Inspector's logs") {}

std::vector<InspectorRecord> InspectorFolder::Look(Now now) {
  const auto is_log = [](const std::string& name) { return name.ends_with(".log"); };
  const std::map<std::string, FolderFile> found = folder_.List(is_log, kMostInspectorFiles);
  std::erase_if(files_, [&](const auto& entry) { return !found.contains(entry.first); });
  std::vector<InspectorRecord> records;
  for (const auto& [path, facts] : found) {
    const auto [at, is_new] = files_.try_emplace(path);
    File& file = at->second;
    const bool begins = is_new || file.inode != facts.inode || facts.bytes < file.read_bytes;
    if (begins) file = {.inode = facts.inode, .told = file.told};
    if (begins && facts.written_unix_ns < now.unix_ns - kOldNs) file.read_bytes = facts.bytes;
    const uint64_t most = begins && first_ ? kInspectorHistoryBytes : kMostInspectorLookBytes;
    if (facts.bytes - file.read_bytes > most) {
      if (!begins) {
        bytes_left_out_ += facts.bytes - most - file.read_bytes;
        Refuse(
            path,
            "it grows faster than it is read; set a longer NCCL_INSPECTOR_DUMP_THREAD_INTERVAL_MICROSECONDS",
            &file);
      }
      file.read_bytes = facts.bytes - most;
      file.skips_line = true;
    }
    if (facts.bytes > file.read_bytes && !Read(path, facts.bytes, &file, &records)) {
      Refuse(path, "it cannot be read", &file);
    }
  }
  first_ = false;
  return records;
}

bool InspectorFolder::Read(const std::string& path, uint64_t size, File* file,
                           std::vector<InspectorRecord>* records) {
  const Descriptor descriptor(path);
  if (descriptor.get() < 0) return false;
  const std::string text = ReadFrom(descriptor.get(), file->read_bytes, size - file->read_bytes);
  std::string_view rest = text;
  while (true) {
    const size_t end = rest.find('\n');
    if (end == std::string_view::npos) break;
    const std::string_view line = rest.substr(0, end);
    rest.remove_prefix(end + 1);
    if (std::exchange(file->skips_line, false) || line.find_first_not_of(" \t\r") == line.npos) continue;
    absl::StatusOr<InspectorRecord> record = ParseInspectorLine(line);
    if (record.ok()) {
      records->push_back(*std::move(record));
    } else {
      ++lines_refused_;
      Refuse(path, Concat("a line of it is left out: ", record.status().message()), file);
    }
  }
  // A line that will never end is no line of Inspector's.
  if (rest.size() > kMostInspectorLineBytes) {
    ++lines_refused_;
    Refuse(path, "it has lines of more than 1 MiB", file);
    file->skips_line = true;
    rest = {};
  }
  file->read_bytes += text.size() - rest.size();
  return true;
}

void InspectorFolder::Refuse(const std::string& path, const std::string& why, File* file) {
  if (std::exchange(file->told, true)) return;
  service::LogWarning("the log of Inspector ", service::ToUtf8(path), " is not read as it should be: ", why);
}

}  // namespace c4::c4d
