// Every verb's --help and --version: what is walked here is what `c4 --help` lists, so that a new verb is
// looked at as well.
#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <set>
#include <sstream>

#include <nlohmann/json.hpp>

#include "tests/service/harness.h"

namespace c4::service_test {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

using Words = std::vector<std::string>;

Words LinesOf(const std::string& text) {
  Words lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

std::string FirstWord(const std::string& line) {
  std::istringstream stream(line);
  std::string word;
  stream >> word;
  return word;
}

std::string Joined(const Words& words) {
  std::string text = "c4";
  for (const std::string& word : words) text += " " + word;
  return text;
}

CommandResult Help(Words verb) {
  verb.emplace_back("--help");
  return RunC4(verb);
}

// An indented line of a list of verbs: "  up [SIZE]   make a fabric".
bool IsEntry(const std::string& line) {
  return line.size() > 3 && line.starts_with("  ") && line[2] >= 'a' && line[2] <= 'z';
}

// Each verb, and where it has verbs of its own, each of those.
std::vector<Words> AllVerbs() {
  std::vector<Words> verbs;
  for (const std::string& line : LinesOf(RunC4({"--help"}).output)) {
    if (!IsEntry(line)) continue;
    const Words verb = {FirstWord(line)};
    const std::string help = Help(verb).output;
    if (help.find("usage: " + Joined(verb) + " VERB") == std::string::npos) {
      verbs.push_back(verb);
      continue;
    }
    for (const std::string& inner : LinesOf(help)) {
      if (IsEntry(inner)) verbs.push_back({verb.front(), FirstWord(inner)});
    }
  }
  return verbs;
}

// The lines below `heading` up to the next empty one, each entry with its help joined to one line.
Words Entries(const std::string& help, const std::string& heading) {
  Words entries;
  bool inside = false;
  for (const std::string& line : LinesOf(help)) {
    if (line == heading + ":") {
      inside = true;
    } else if (line.empty()) {
      inside = false;
    } else if (inside && line.starts_with("  ") && line[2] != ' ') {
      entries.push_back(line.substr(2));
    } else if (inside) {
      entries.back() += " " + line;
    }
  }
  return entries;
}

TEST(HelpTest, EveryVerbSaysHowItIsCalled) {
  const std::vector<Words> verbs = AllVerbs();
  EXPECT_GE(verbs.size(), 35U);
  for (const Words& verb : verbs) {
    SCOPED_TRACE(Joined(verb));
    const CommandResult help = Help(verb);
    EXPECT_EQ(help.exit_code, 0);
    EXPECT_EQ(help.errors, "");
    const Words lines = LinesOf(help.output);
    ASSERT_FALSE(lines.empty());
    EXPECT_THAT(lines.front(), StartsWith(Joined(verb) + ": "));
    const auto usage = std::ranges::find_if(
        lines, [&verb](const std::string& line) { return line.starts_with("usage: " + Joined(verb)); });
    ASSERT_NE(usage, lines.end()) << help.output;
    for (const std::string& word : Entries(help.output, "words")) {
      EXPECT_THAT(*usage, HasSubstr(word.substr(0, word.find("  ")))) << "a word that the usage line lacks";
    }
    for (const std::string& line : lines) EXPECT_LE(line.size(), 100U) << line;
  }
}

TEST(HelpTest, NumbersAndChoicesSayTheirDefault) {
  const std::set<std::string> measures = {"N", "SECONDS", "MBPS", "PERCENT", "MS", "MIB", "DAYS", "HOURS"};
  for (const Words& verb : AllVerbs()) {
    for (const std::string& entry : Entries(Help(verb).output, "options")) {
      const std::string names = entry.substr(0, entry.find("  "));
      const std::string metavar = names.substr(names.rfind(' ') + 1);
      const bool chosen = metavar.find('|') != std::string::npos;
      if (!measures.contains(metavar) && !chosen) continue;
      EXPECT_TRUE(entry.find("default") != std::string::npos || entry.find("required") != std::string::npos)
          << Joined(verb) << ": " << entry;
    }
  }
}

TEST(HelpTest, WhatHasOutputHasItAsJson) {
  // The program's own output; a file that is JSON already; nothing is printed.
  const std::set<std::string> without = {"c4 run", "c4 fabric topology", "c4 pki init", "c4 pki renew",
                                         "c4 pki key", "c4 page",
                                         // Their words have it.
                                         "c4 alerts", "c4 recovery"};
  for (const Words& verb : AllVerbs()) {
    const bool has = Help(verb).output.find("\n  --json") != std::string::npos;
    EXPECT_EQ(has, !without.contains(Joined(verb))) << Joined(verb);
  }
}

TEST(HelpTest, EveryProgramSaysItsVersion) {
  const std::string version = RunC4({"--version"}).output;
  EXPECT_THAT(version, StartsWith("c4 "));
  std::vector<Words> verbs = AllVerbs();
  for (const char* outer : {"fabric", "smon", "alerts", "recovery", "pki"}) verbs.push_back({outer});
  for (Words verb : verbs) {
    verb.emplace_back("--version");
    const CommandResult result = RunC4(verb);
    EXPECT_EQ(result.exit_code, 0) << Joined(verb);
    EXPECT_EQ(result.output, version) << Joined(verb);
  }
}

TEST(HelpTest, VersionTellsTheFormatsOfTheirPages) {
  const CommandResult result = RunC4({"version", "--json"});
  ASSERT_EQ(result.exit_code, 0) << result.errors;
  const auto said = nlohmann::json::parse(result.output);
  EXPECT_EQ("c4 " + said["version"].get<std::string>() + "\n", RunC4({"--version"}).output);
  EXPECT_NE(said["commit"], "");
  const char* source = std::getenv("C4_SOURCE_DIR");  // NOLINT(concurrency-mt-unsafe)
  ASSERT_NE(source, nullptr) << "C4_SOURCE_DIR is not set";
  int pages = 0;
  for (const auto& [format, version] : said["formats"].items()) {
    std::ifstream page(std::string(source) + "/docs/formats/" + format + ".md");
    ASSERT_TRUE(page.is_open()) << format;
    const std::string text(std::istreambuf_iterator<char>(page), {});
    const size_t found = text.find("**Version ");
    if (found == std::string::npos) continue;  // proto and recording tell theirs in a sentence
    EXPECT_EQ(text.compare(found, 12 + version.get<std::string>().size(),
                           "**Version " + version.get<std::string>() + "**"),
              0)
        << format << " " << version;
    ++pages;
  }
  EXPECT_EQ(pages, 5);
}

// They are started without ranks, and start nothing themselves.
TEST(HelpTest, MeasuringProgramsHelpWithoutAJob) {
  const ScratchDir scratch;
  for (const char* program : {"all_reduce_perf", "broadcast_perf", "sendrecv_perf"}) {
    for (const auto& [option, text] : {std::pair("--help", "usage: "), std::pair("-h", "--minbytes SIZE"),
                                       std::pair("--version", "NCCL interface 2.")}) {
      Process asked({Binary(program), option}, {"PATH=/usr/bin:/bin"}, scratch.path() + "/out");
      ASSERT_TRUE(asked.Wait(Seconds(10)));
      EXPECT_EQ(asked.exit_code(), 0) << program << " " << option << asked.Errors();
      EXPECT_THAT(asked.Output(), HasSubstr(text));
    }
  }
}

}  // namespace
}  // namespace c4::service_test
