#include "tests/service/page.h"

#include <filesystem>
#include <fstream>
#include <sstream>

#include "tests/service/harness.h"

namespace c4::service_test {

namespace fs = std::filesystem;

std::vector<Block> BlocksOf(const std::string& path) {
  std::vector<Block> blocks;
  std::ifstream page(path);
  bool inside = false;
  for (std::string line; std::getline(page, line);) {
    if (line.rfind("```", 0) == 0) {
      inside = !inside;
      if (inside) blocks.push_back({line.substr(3), ""});
    } else if (inside) {
      blocks.back().text += line + "\n";
    }
  }
  return blocks;
}

std::vector<std::string> LinesOf(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

void WriteFile(const std::string& path, const std::string& text) {
  std::ofstream(path) << text;
}

void MakeHome(const std::string& home, const std::string& source) {
  fs::create_directories(home + "/c4");
  for (const char* folder : {"ccl", "examples"}) {
    fs::create_directory_symlink(fs::path(source) / folder, home + "/c4/" + folder);
  }
  fs::create_directory_symlink(fs::path(Binary("c4")).parent_path().parent_path(), home + "/c4/build");
}

std::vector<std::string> HomeEnvironment(const std::string& home) {
  return {"PATH=/usr/bin:/bin", "HOME=" + home, "C4_RUN_DIR=" + home + "/run", "C4_LOG_DIR=" + home + "/log"};
}

}  // namespace c4::service_test
