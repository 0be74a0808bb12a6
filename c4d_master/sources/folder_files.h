// The files that a source reads: those of a folder, or those whose paths begin with some text. Folders,
// pipes, links to nowhere and hidden files are none.
//
// One thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>

namespace c4::c4d {

struct FolderFile {
  uint64_t bytes = 0;
  uint64_t inode = 0;
  int64_t written_unix_ns = 0;
};

class FolderFiles {
 public:
  // A folder, or with '*' at its end what the paths begin with. `what`: of which files messages speak, "dumps
  // of Flight Recorder".
  FolderFiles(std::string folder, std::string what);

  // By path: the files whose names are wanted, at most so many; with a prefix all that begin so are. What is
  // wrong with the folder stands in the log, once.
  std::map<std::string, FolderFile> List(const std::function<bool(const std::string& name)>& wanted,
                                         size_t most);

  const std::string& folder() const { return folder_; }

 private:
  std::string folder_;
  std::string prefix_;  // of the names
  const std::string what_;
  std::string fault_;  // as it was said
};

}  // namespace c4::c4d
