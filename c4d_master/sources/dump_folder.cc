#include "c4d_master/sources/dump_folder.h"

#include <algorithm>
#include <dirent.h>
#include <memory>
#include <sys/stat.h>
#include <utility>

#include "absl/strings/ascii.h"
#include "service/log.h"
#include "service/text.h"
#include "traces/dump_files.h"

namespace c4::c4d {
namespace {

using service::Concat;

// A file that has not grown for so long is whole.
constexpr int64_t kSettledNs = 3 * kSecondNs;

struct Closer {
  void operator()(DIR* folder) const { closedir(folder); }
};

}  // namespace

DumpFolder::DumpFolder(std::string folder) : folder_(std::move(folder)) {
  if (!folder_.ends_with('*')) return;
  folder_.pop_back();
  const size_t slash = folder_.find_last_of('/');
  prefix_ = slash == std::string::npos ? folder_ : folder_.substr(slash + 1);
  folder_ = slash == std::string::npos ? "." : folder_.substr(0, std::max<size_t>(slash, 1));
}

// Brings files_ up to date; whether one of them has changed.
bool DumpFolder::Find() {
  const std::unique_ptr<DIR, Closer> folder(opendir(folder_.c_str()));
  std::string fault;
  std::map<std::string, File> found;
  if (folder == nullptr) {
    fault = Concat("the folder of Flight Recorder dumps cannot be read: ", service::ToUtf8(folder_));
  } else {
    // NOLINTNEXTLINE(concurrency-mt-unsafe): nobody else has this folder
    while (const dirent* const entry = readdir(folder.get())) {
      const std::string name = entry->d_name;
      if (name.starts_with('.') || !name.starts_with(prefix_)) continue;
      if (prefix_.empty() && absl::AsciiStrToLower(name).find("rank") == std::string::npos) continue;
      const std::string path = Concat(folder_, "/", name);
      struct stat facts {};
      if (stat(path.c_str(), &facts) != 0 || !S_ISREG(facts.st_mode)) continue;
      if (found.size() == kMostDumpFiles) {
        fault = Concat("there are more than ", kMostDumpFiles, " dumps in ", service::ToUtf8(folder_),
                       "; the others are not read");
        break;
      }
      File& file = found[path];
      file.bytes = static_cast<uint64_t>(facts.st_size);
      file.written_unix_ns = facts.st_mtim.tv_sec * kSecondNs + facts.st_mtim.tv_nsec;
    }
  }
  if (fault != fault_ && !fault.empty()) service::LogWarning(fault);
  fault_ = fault;
  bool changed = found.size() != files_.size();
  for (auto& [path, file] : found) {
    const auto before = files_.find(path);
    if (before != files_.end() && before->second == file) {
      file = std::move(before->second);
    } else {
      changed = true;
    }
  }
  files_ = std::move(found);
  return changed;
}

void DumpFolder::Read(const std::string& path, File* file) {
  file->read = true;
  traces::DumpFiles dumps = traces::ReadDumpFiles({path});
  for (const std::string& problem : dumps.problems) {
    service::LogWarning("a Flight Recorder dump is left out: ", service::ToUtf8(problem));
  }
  if (dumps.dumps.size() == 1) file->dump = std::move(dumps.dumps.front());
}

std::optional<HeardDumps> DumpFolder::Look(Now now) {
  if (Find()) {
    changed_at_ns_ = now.monotonic_ns;
    told_ = told_complete_ = false;
  }
  const int64_t quiet_ns = changed_at_ns_ == kNever ? 0 : now.monotonic_ns - changed_at_ns_;
  int64_t newest_unix_ns = 0;
  for (const auto& [path, file] : files_) newest_unix_ns = std::max(newest_unix_ns, file.written_unix_ns);
  const bool old = newest_unix_ns < now.unix_ns - kDumpsOldNs;
  if (old) {
    // Nothing that is to be said any more.
    if (!std::exchange(told_any_, false)) return std::nullopt;
    return HeardDumps();
  }
  if (quiet_ns < kSettledNs) return std::nullopt;
  const bool complete = quiet_ns >= kDumpsCompleteNs;
  if (told_ && (told_complete_ || !complete)) return std::nullopt;
  std::map<int, HeardDump> by_rank;  // the newest of each
  HeardDumps heard;
  heard.complete = complete;
  for (auto& [path, file] : files_) {
    if (file.written_unix_ns < newest_unix_ns - kDumpsApartNs) continue;
    if (!file.read) Read(path, &file);
    if (!file.dump.has_value()) {
      ++heard.unreadable;
      continue;
    }
    HeardDump& of_rank = by_rank[file.dump->rank];
    if (of_rank.written_unix_ns > file.written_unix_ns) continue;
    of_rank = {*file.dump, file.written_unix_ns};
  }
  for (auto& [rank, dump] : by_rank) heard.dumps.push_back(std::move(dump));
  told_ = true;
  told_complete_ = complete;
  told_any_ = true;
  return heard;
}

}  // namespace c4::c4d
