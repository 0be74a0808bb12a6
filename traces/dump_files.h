// Finds and reads the dumps of a hung job. They may be files, folders, globs or tar archives of any name,
// packed or not, pickled or JSON.
//
// Any thread.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "analysis/dump_waits.h"

namespace c4::traces {

struct DumpFiles {
  std::vector<analysis::RankDump> dumps;  // one a rank, by rank
  std::vector<std::string> problems;      // a line for each file that is no dump, or was left out
  bool no_file = false;                   // something that was named is not there
  bool two_of_one_rank = false;           // which is to believe is not known
};

// What cannot be read is left out with a line about it.
DumpFiles ReadDumpFiles(const std::vector<std::string>& words);

}  // namespace c4::traces
