// Recordings as tests: each tests/data/recordings/NAME.c4rec is diagnosed again by the code of `c4 replay`,
// and what changed when is compared with NAME.expected. C4_WRITE_GOLDEN=1 writes the files that are missing;
// one that is there is only ever changed by hand, or removed and written anew.
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "c4d_master/recording.h"
#include "gtest/gtest.h"
#include "service/verdict_json.h"

namespace c4::c4d {
namespace {

namespace fs = std::filesystem;

fs::path Folder() {
  const char* source = std::getenv("C4_SOURCE_DIR");
  return fs::path(source == nullptr ? "." : source) / "tests/data/recordings";
}

std::string CulpritText(const v1::Culprit& culprit) {
  std::string text(service::CulpritKindWord(culprit.kind()));
  if (culprit.rank() >= 0 && culprit.kind() == v1::CULPRIT_KIND_RANK)
    absl::StrAppend(&text, " ", culprit.rank());
  if (!culprit.host().empty()) absl::StrAppend(&text, " on ", culprit.host());
  if (!culprit.nic().empty()) absl::StrAppend(&text, " ", culprit.nic());
  for (const int32_t rank : culprit.candidates()) absl::StrAppend(&text, " ", rank);
  if (culprit.connections_size() != 0)
    absl::StrAppend(&text, ", ", culprit.connections_size(), " connections");
  return text;
}

// One line a change that says something new: "12.3 s  #1 confirmed communication slow: nic on host2 10.0.0.3,
// 9 connections". Verdicts are numbered as they come; their ids depend on the master's epoch.
std::string ChangesText(const Replay& replay) {
  std::string text;
  std::map<std::string, std::pair<size_t, std::string>> last;  // by id: number and line
  for (const ReplayChange& change : replay.changes) {
    const v1::Verdict& verdict = change.verdict;
    auto& [number, before] = last.try_emplace(verdict.id(), last.size() + 1, "").first->second;
    const std::string line = absl::StrFormat(
        "#%u %s %s: %s", number, std::string(service::VerdictStateWord(verdict.state())),
        std::string(service::SyndromeWord(verdict.syndrome())), CulpritText(verdict.culprit()));
    if (line == before) continue;
    before = line;
    absl::StrAppendFormat(&text, "%7.1f s  %s\n", static_cast<double>(change.since_begin_ns) / 1e9, line);
  }
  return text;
}

class RecordingsTest : public ::testing::TestWithParam<std::string> {};

TEST_P(RecordingsTest, SaysWhatItSaidBefore) {
  const fs::path recording = Folder() / (GetParam() + ".c4rec");
  const absl::StatusOr<Replay> replay = ReplayRecording(recording.string());
  ASSERT_TRUE(replay.ok()) << replay.status();
  EXPECT_TRUE(replay->end.ok()) << replay->end;
  EXPECT_EQ(replay->refused, 0U);
  const std::string changes = ChangesText(*replay);
  const fs::path expected = fs::path(recording).replace_extension(".expected");
  if (!fs::exists(expected)) {
    ASSERT_NE(std::getenv("C4_WRITE_GOLDEN"), nullptr)
        << expected << " is missing; C4_WRITE_GOLDEN=1 writes it:\n"
        << changes;
    std::ofstream(expected) << changes;
    return;
  }
  std::stringstream before;
  before << std::ifstream(expected).rdbuf();
  EXPECT_EQ(changes, before.str());
}

std::vector<std::string> Names() {
  std::vector<std::string> names;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(Folder(), error)) {
    if (entry.path().extension() == ".c4rec") names.push_back(entry.path().stem().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

INSTANTIATE_TEST_SUITE_P(All, RecordingsTest, ::testing::ValuesIn(Names()), [](const auto& parameter) {
  std::string name = parameter.param;
  std::replace_if(
      name.begin(), name.end(), [](unsigned char c) { return isalnum(c) == 0; }, '_');
  return name;
});

// The folder is part of the tree: without it this would pass and test nothing.
TEST(RecordingsFolderTest, HoldsRecordings) {
  EXPECT_FALSE(Names().empty()) << Folder();
}

}  // namespace
}  // namespace c4::c4d
