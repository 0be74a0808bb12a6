#include "c4d_master/sources/dump_folder.h"

#include <algorithm>
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

}  // namespace

DumpFolder::DumpFolder(std::string folder) : folder_(std::move(folder), "Flight Recorder dumps") {}

// Brings files_ up to date; whether one of them has changed.
bool DumpFolder::Find() {
  const auto has_rank = [](const std::string& name) {
    return absl::AsciiStrToLower(name).find("rank") != std::string::npos;
  };
  std::map<std::string, File> found;
  for (const auto& [path, facts] : folder_.List(has_rank, kMostDumpFiles)) {
    found[path] = {facts.bytes, facts.written_unix_ns, false, std::nullopt};
  }
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
