// A folder with a double of the vendor's library in it, as images have one, for tests of what `c4 install`
// does to it; removed with all that is in it. C4_BUILD_DIR says where the build is.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <string>

#include "cli/install/installation.h"
#include "cli/install/kept_file.h"
#include "tests/unit/ccl/temp_dir.h"

namespace c4::cli {

inline std::string BuildDir() {
  const char* const value = getenv("C4_BUILD_DIR");  // NOLINT(concurrency-mt-unsafe)
  return value == nullptr ? "." : value;
}
inline std::string Double(const std::string& name) {
  return BuildDir() + "/tests/doubles/" + name + ".so";
}
inline std::string OurLibrary() {
  return BuildDir() + "/lib/libnccl.so.2";
}

class VendorFolder {
 public:
  explicit VendorFolder(bool link = false, const std::string& library = Double("fake_nccl_2.28.9")) {
    namespace fs = std::filesystem;
    if (!link) {
      Copy(library, kLibraryName);
    } else {
      Copy(library, "libnccl.so.2.28.9");
      fs::create_symlink("libnccl.so.2.28.9", path(kLibraryName));
      fs::create_symlink(kLibraryName, path("libnccl.so"));
    }
    Write("neighbour.txt", "somebody else's");
  }

  const std::string& path() const { return temp_.path(); }
  std::string path(const std::string& name) const { return temp_.path() + "/" + name; }

  void Copy(const std::string& from, const std::string& name) const {
    std::filesystem::copy_file(from, path(name), std::filesystem::copy_options::overwrite_existing);
  }
  void Write(const std::string& name, const std::string& text) const {
    std::ofstream(path(name), std::ios::binary) << text;
  }
  // Changes one byte of a file.
  void Poke(const std::string& name, std::streamoff at, char byte) const {
    std::fstream file(path(name), std::ios::binary | std::ios::in | std::ios::out);
    file.seekp(at);
    file.put(byte);
  }
  // Everything about each name: kind, target, bytes, rights, time.
  std::map<std::string, std::string> Snapshot() const {
    std::map<std::string, std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(path())) {
      const auto file = LookAtFile(entry.path().string());
      names[entry.path().filename().string()] = file.ok() && file->has_value()
                                                    ? (*file)->link_target + " " + (*file)->sha256 + " " +
                                                          std::to_string((*file)->mode) + " " +
                                                          std::to_string((*file)->modified_ns)
                                                    : "unreadable";
    }
    return names;
  }

 private:
  test::TempDir temp_;
};

}  // namespace c4::cli
