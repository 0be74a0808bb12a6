#include "traces/input_files.h"

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "traces/chakra_events.h"

namespace c4::traces {

absl::StatusOr<std::vector<std::string>> JsonFiles(const std::vector<std::string>& words,
                                                   const std::string& what) {
  std::vector<std::string> files;
  for (const std::string& word : words) {
    std::error_code error;
    if (!std::filesystem::is_directory(word, error)) {
      files.push_back(word);
      continue;
    }
    const size_t before = files.size();
    std::filesystem::directory_iterator entry(word, error);
    for (; !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) {
      const std::string name = entry->path().filename().string();
      const bool wanted = name.find(".json") != std::string::npos || IsChakra(name);
      if (wanted && !entry->is_directory(error)) files.push_back(entry->path().string());
    }
    if (error) return absl::ErrnoToStatus(error.value(), absl::StrCat("cannot read ", word));
    if (files.size() == before) {
      return absl::NotFoundError(absl::StrCat("there is no ", what, " (*.json*) in ", word));
    }
    std::sort(files.begin() + static_cast<ptrdiff_t>(before), files.end());
  }
  return files;
}

}  // namespace c4::traces
