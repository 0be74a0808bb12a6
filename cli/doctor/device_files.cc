#include "cli/doctor/device_files.h"

#include <filesystem>

namespace c4::cli {

int NumberedNames(const std::string& folder, const std::string& prefix) {
  int count = 0;
  std::error_code error;
  for (const std::filesystem::directory_entry& entry : std::filesystem::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    const bool numbered = name.size() > prefix.size() && name.starts_with(prefix) &&
                          name.find_first_not_of("0123456789", prefix.size()) == std::string::npos;
    if (numbered) ++count;
  }
  return count;
}

int CountGpus(const std::string& root) {
  return NumberedNames(root + "/dev", "nvidia");
}

}  // namespace c4::cli
