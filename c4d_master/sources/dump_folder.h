// A folder into which a job's ranks write Flight Recorder dumps, looked at again and again: dumps are read
// once, when they have stopped growing. Those that lie kDumpsApart before the newest are of an earlier
// standstill and are left out, and so is everything once the newest is older than kDumpsOld.
//
// One thread. What cannot be read is said once in the log and counted.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "c4d_master/job_state.h"
#include "c4d_master/sources/dump_findings.h"
#include "c4d_master/sources/folder_files.h"

namespace c4::c4d {

inline constexpr int64_t kDumpsApartNs = 600 * kSecondNs;
inline constexpr int64_t kDumpsOldNs = 600 * kSecondNs;
inline constexpr size_t kMostDumpFiles = 1 << 17;  // that are looked at

class DumpFolder {
 public:
  // The files of `folder` itself in whose name "rank" stands, or with `folder` ending in '*' those whose path
  // begins so.
  explicit DumpFolder(std::string folder);

  // The dumps to judge the job by, when they are others than the last time, or are complete now. Nothing
  // while files grow.
  std::optional<HeardDumps> Look(Now now);

 private:
  struct File {
    uint64_t bytes = 0;
    int64_t written_unix_ns = 0;
    bool read = false;
    std::optional<analysis::RankDump> dump;  // read, and a dump

    bool operator==(const File& other) const {
      return bytes == other.bytes && written_unix_ns == other.written_unix_ns;
    }
  };
  bool Find();
  void Read(const std::string& path, File* file);

  FolderFiles folder_;
  std::map<std::string, File> files_;
  int64_t changed_at_ns_ = kNever;
  bool told_ = true;  // the dumps as they are
  bool told_complete_ = true;
  bool told_any_ = false;  // the last answer had dumps
};

}  // namespace c4::c4d
