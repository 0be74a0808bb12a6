// docs/first-program.md as it stands: its programs and commands are taken out and run by a user in a folder
// of his own, and what it promises to print is printed. PyTorch's part is left out where there is no PyTorch.
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <sstream>
#include <vector>

#include "tests/service/harness.h"

namespace c4::service_test {
namespace {

namespace fs = std::filesystem;

struct Block {
  std::string language;
  std::string text;
};

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

void Write(const std::string& path, const std::string& text) {
  std::ofstream(path) << text;
}

TEST(FirstProgramTest, EveryCommandOfThePageDoesWhatItSays) {
  const char* const source = getenv("C4_SOURCE_DIR");
  ASSERT_NE(source, nullptr);
  const ScratchDir home;
  // Where the page has the repository: the sources and this build.
  fs::create_directories(home.path() + "/c4");
  fs::create_directory_symlink(std::string(source) + "/ccl", home.path() + "/c4/ccl");
  fs::create_directory_symlink(fs::path(Binary("c4")).parent_path().parent_path(), home.path() + "/c4/build");
  const std::vector<std::string> environment = {"PATH=/usr/bin:/bin", "HOME=" + home.path(),
                                                "C4_RUN_DIR=" + home.path() + "/run",
                                                "C4_LOG_DIR=" + home.path() + "/log"};
  Process asks({"/usr/bin/python3", "-c", "import torch"}, environment, home.path() + "/asks");
  ASSERT_TRUE(asks.Wait(Seconds(60)));
  const bool has_torch = asks.exit_code() == 0;

  std::string script = "set -e\ncd " + home.path() + "\n";
  std::vector<std::string> promised;
  size_t commands = 0;
  bool of_torch = false;  // the block before is PyTorch's program
  for (const Block& block : BlocksOf(std::string(source) + "/docs/first-program.md")) {
    if (block.language == "c") Write(home.path() + "/first.c", block.text);
    if (block.language == "python") Write(home.path() + "/first.py", block.text);
    if (block.language == "python") of_torch = true;
    std::istringstream lines(block.text);
    for (std::string line; std::getline(lines, line);) {
      const bool left_out = of_torch && !has_torch && line.find("first.py") != std::string::npos;
      if (block.language == "sh" && !left_out) script += line + "\n";
      if (block.language == "sh") ++commands;
      if (block.language == "text" && !(of_torch && !has_torch)) promised.push_back(line);
    }
    if (block.language == "text") of_torch = false;
  }
  ASSERT_GE(commands, 12U);
  ASSERT_GE(promised.size(), 5U);
  Write(home.path() + "/commands.sh", script);
  Process shell({"/bin/bash", home.path() + "/commands.sh"}, environment, home.path() + "/shell");
  ASSERT_TRUE(shell.Wait(Seconds(120))) << shell.Output() << shell.Errors();
  EXPECT_EQ(shell.exit_code(), 0) << shell.Output() << shell.Errors();
  const std::string output = shell.Output();
  for (const std::string& line : promised) {
    EXPECT_NE(output.find(line), std::string::npos) << line << "\n" << output << shell.Errors();
  }
  if (!has_torch) printf("PyTorch's part was left out: there is no PyTorch here\n");
}

}  // namespace
}  // namespace c4::service_test
