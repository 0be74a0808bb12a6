#include "cli/install/own_library.h"

#include <filesystem>

#include "cli/base/child.h"
#include "cli/base/plain_text.h"
#include "cli/base/program.h"
#include "cli/install/installation.h"

namespace c4::cli {

std::vector<std::string> OwnLibraryPlaces(const std::string& folder) {
  // In a folder of ours first: /usr/lib/libnccl.so.2 may well be the vendor's. In a build folder the portable
  // one before that which needs a system as new as this.
  std::vector<std::string> places;
  for (const char* place : {"/../lib/c4/", "/../portable/lib/", "/../lib/", "/"}) {
    places.push_back(Cat(folder, place, kLibraryName));
  }
  return places;
}

StatusOr<std::string> OwnLibrary() {
  const StatusOr<std::string> folder = ExecutableFolder();
  if (!folder.ok()) return folder.status();
  for (const std::string& place : OwnLibraryPlaces(*folder)) {
    std::error_code error;
    if (std::filesystem::is_regular_file(place, error)) {
      return std::filesystem::path(place).lexically_normal().string();
    }
  }
  return NotFoundError(Cat("C4's ", kLibraryName, " is not beside this ", ProgramName(), " (in ", *folder,
                           " or its ../lib): copy it there, or name it with --library PATH"));
}

}  // namespace c4::cli
