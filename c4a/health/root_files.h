// Files of the kernel (/sys, /proc, /dev) below a root that tests replace. Whatever stands there is read up
// to a bound; what is missing or cannot be read is nothing, not an error: hardware differs from node to node.
//
// Each read may hang for ever, in a stuck driver: `note` is told the path before, so that somebody else can
// say in which file the thread hangs. One thread an object.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace c4::agent {

class RootFiles {
 public:
  using Note = std::function<void(const std::string& path)>;
  explicit RootFiles(std::string root, Note note = nullptr);

  static constexpr size_t kMostBytes = 64 * 1024;
  static constexpr size_t kMostEntries = 4096;  // of a directory

  // `path`: absolute, as without the root. At most kMostBytes of it.
  std::optional<std::string> Read(const std::string& path) const;
  // The file's first word as a number.
  std::optional<uint64_t> Number(const std::string& path) const;
  // The file without blanks at its ends.
  std::optional<std::string> Word(const std::string& path) const;
  // Names in a directory, sorted; none where there is no such directory.
  std::vector<std::string> List(const std::string& path) const;
  bool Exists(const std::string& path) const;
  // The last part of what a symbolic link points to; empty where it is none.
  std::string LinkName(const std::string& path) const;

  std::string FullPath(const std::string& path) const { return root_ + path; }
  void Tell(const std::string& what) const {
    if (note_ != nullptr) note_(what);
  }

 private:
  const std::string root_;  // without a slash at its end
  const Note note_;
};

// Pure. The number that a text begins with, behind blanks; nothing where there is none or it is too large.
std::optional<uint64_t> LeadingNumber(std::string_view text);
// The text without blanks and line ends on both sides.
std::string_view Trimmed(std::string_view text);

}  // namespace c4::agent
