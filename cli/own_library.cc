#include "cli/own_library.h"

#include <filesystem>

#include "absl/strings/str_cat.h"
#include "cli/installation.h"
#include "cli/process.h"

namespace c4::cli {

std::vector<std::string> OwnLibraryPlaces(const std::string& folder) {
  // In a folder of ours first: /usr/lib/libnccl.so.2 may well be the vendor's. In a build folder the portable
  // one before that which needs a system as new as this.
  std::vector<std::string> places;
  for (const char* place : {"/../lib/c4/", "/../portable/lib/", "/../lib/", "/"}) {
    places.push_back(absl::StrCat(folder, place, kLibraryName));
  }
  return places;
}

absl::StatusOr<std::string> OwnLibrary() {
  const absl::StatusOr<std::string> folder = OwnFolder();
  if (!folder.ok()) return folder.status();
  for (const std::string& place : OwnLibraryPlaces(*folder)) {
    std::error_code error;
    if (std::filesystem::is_regular_file(place, error)) {
      return std::filesystem::path(place).lexically_normal().string();
    }
  }
  return absl::NotFoundError(absl::StrCat("C4's ", kLibraryName, " is not beside this c4 (in ", *folder,
                                          "/../lib): name it with --library PATH"));
}

}  // namespace c4::cli
