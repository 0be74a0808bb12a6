// A page of docs/ as a user reads it: its fenced blocks, and its commands run one after the other.
#pragma once

#include <string>
#include <vector>

namespace c4::service_test {

struct Block {
  std::string language;  // what stands behind the fence
  std::string text;      // with the newline of each line
};

// Empty where there is no such page.
std::vector<Block> BlocksOf(const std::string& path);

std::vector<std::string> LinesOf(const std::string& text);

void WriteFile(const std::string& path, const std::string& text);

// A folder of a user whose clone of the repository is in ~/c4: the sources that the pages use, and this
// build. `source`: the repository.
void MakeHome(const std::string& home, const std::string& source);

// What the pages' commands are run with.
std::vector<std::string> HomeEnvironment(const std::string& home);

}  // namespace c4::service_test
