// docs/first-program.md as it stands: its programs and commands are taken out and run by a user in a folder
// of his own, and what it promises to print is printed. PyTorch's part is left out where there is no PyTorch.
#include <gtest/gtest.h>
#include <vector>

#include "tests/service/harness.h"
#include "tests/service/page.h"

namespace c4::service_test {
namespace {

TEST(FirstProgramTest, EveryCommandOfThePageDoesWhatItSays) {
  const char* const source = getenv("C4_SOURCE_DIR");
  ASSERT_NE(source, nullptr);
  const ScratchDir home;
  MakeHome(home.path(), source);
  const std::vector<std::string> environment = HomeEnvironment(home.path());
  Process asks({"/usr/bin/python3", "-c", "import torch"}, environment, home.path() + "/asks");
  ASSERT_TRUE(asks.Wait(Seconds(60)));
  const bool has_torch = asks.exit_code() == 0;

  std::string script = "set -e\ncd " + home.path() + "\n";
  std::vector<std::string> promised;
  size_t commands = 0;
  bool of_torch = false;  // the block before is PyTorch's program
  for (const Block& block : BlocksOf(std::string(source) + "/docs/first-program.md")) {
    if (block.language == "c") WriteFile(home.path() + "/first.c", block.text);
    if (block.language == "python") WriteFile(home.path() + "/first.py", block.text);
    if (block.language == "python") of_torch = true;
    for (const std::string& line : LinesOf(block.text)) {
      const bool left_out = of_torch && !has_torch && line.find("first.py") != std::string::npos;
      if (block.language == "sh" && !left_out) script += line + "\n";
      if (block.language == "sh") ++commands;
      if (block.language == "text" && !(of_torch && !has_torch)) promised.push_back(line);
    }
    if (block.language == "text") of_torch = false;
  }
  ASSERT_GE(commands, 12U);
  ASSERT_GE(promised.size(), 5U);
  WriteFile(home.path() + "/commands.sh", script);
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
