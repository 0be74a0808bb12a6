// The folder into which a job's processes write their logs of NCCL's Inspector, one a process: what has been
// appended since the last look.
//
// What stands in a log when a master that has just come sees it first is history, of which only the end is
// read, and nothing where nobody has written to it for ten minutes. A log that is another file now, or
// shorter than it was, is read from its beginning.
//
// One thread. What cannot be read is counted, and said once a file in the log.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "c4d_master/job_state.h"
#include "c4d_master/sources/folder_files.h"
#include "c4d_master/sources/inspector_record.h"

namespace c4::c4d {

inline constexpr size_t kMostInspectorFiles = 1 << 16;
// That are read of a file in one look; what is older than the last so many is left out.
inline constexpr uint64_t kMostInspectorLookBytes = uint64_t{4} << 20;
// Of what stands in a log at first so much is read.
inline constexpr uint64_t kInspectorHistoryBytes = uint64_t{64} << 10;

class InspectorFolder {
 public:
  // The files of `folder` itself whose names end in ".log", or with `folder` ending in '*' those whose path
  // begins so.
  explicit InspectorFolder(std::string folder);

  // What is new, in each file's own order; of lines that are not whole yet nothing.
  std::vector<InspectorRecord> Look(Now now);

  uint64_t lines_refused() const { return lines_refused_; }
  uint64_t bytes_left_out() const { return bytes_left_out_; }

 private:
  struct File {
    uint64_t inode = 0;
    uint64_t read_bytes = 0;
    bool skips_line = false;  // what comes up to the next end of a line: its beginning was left out
    bool told = false;        // something of it was said
  };
  // False: it cannot be read.
  bool Read(const std::string& path, uint64_t size, File* file, std::vector<InspectorRecord>* records);
  void Refuse(const std::string& path, const std::string& why, File* file);

  FolderFiles folder_;
  std::map<std::string, File> files_;
  bool first_ = true;
  uint64_t lines_refused_ = 0;
  uint64_t bytes_left_out_ = 0;
};

}  // namespace c4::c4d
