// The formats as the code lays them out, compared with what docs/formats/ promises to others.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <map>
#include <regex>
#include <set>
#include <sstream>

#include "tests/unit/wire/golden.h"

namespace c4::wire {
namespace {

std::string ReadPage(const std::string& name) {
  return ReadSource("docs/formats/" + name);
}

// "### `Header`, 64 bytes" opens a structure; "| 0 | 8 | type | `magic` | meaning |" is a field of it.
std::map<std::string, Layout> ParsePage(const std::string& page) {
  static const std::regex heading(R"(^### `(\w+)`, (\d+) bytes$)");
  static const std::regex row(R"(^\| (\d+) \| (\d+) \| [^|]+ \| `(\w+)` \|.*\|$)");
  std::map<std::string, Layout> found;
  Layout* open = nullptr;
  std::istringstream lines(ReadPage(page));
  std::smatch match;
  for (std::string line; std::getline(lines, line);) {
    if (std::regex_match(line, match, heading)) {
      open = &found[match[1]];
      *open = {match[1], page, std::stoul(match[2]), {}};
    } else if (line.starts_with("#")) {
      open = nullptr;
    } else if (open != nullptr && std::regex_match(line, match, row)) {
      open->fields.push_back({match[3], std::stoul(match[1]), std::stoul(match[2])});
    }
  }
  return found;
}

std::vector<std::string> Lines(const Layout& layout) {
  std::vector<std::string> lines{layout.name + ", " + std::to_string(layout.bytes) + " bytes"};
  for (const Field& field : layout.fields) {
    lines.push_back(std::to_string(field.offset) + " " + std::to_string(field.bytes) + " " + field.name);
  }
  return lines;
}

// Padding would be bytes that nobody wrote, and a field that the table forgot would go unchecked.
TEST(Layout, FieldsFillEachStructureWithoutGaps) {
  for (const Layout& layout : AllLayouts()) {
    size_t end = 0;
    for (const Field& field : layout.fields) {
      EXPECT_EQ(field.offset, end) << layout.name << "::" << field.name;
      end = field.offset + field.bytes;
    }
    EXPECT_EQ(end, layout.bytes) << layout.name;
  }
}

TEST(Layout, PagesSayWhatTheCodeDoes) {
  std::map<std::string, std::map<std::string, Layout>> pages;
  for (const Layout& layout : AllLayouts()) {
    if (!pages.contains(layout.page)) pages[layout.page] = ParsePage(layout.page);
    const auto found = pages[layout.page].find(layout.name);
    ASSERT_NE(found, pages[layout.page].end()) << layout.page << " has no table for " << layout.name;
    EXPECT_EQ(Lines(found->second), Lines(layout)) << "in docs/formats/" << layout.page;
    pages[layout.page].erase(found);
  }
  for (const auto& [page, left] : pages) {
    EXPECT_TRUE(left.empty()) << page << " describes a structure that the code does not have: "
                              << left.begin()->first;
  }
}

std::string Version(uint16_t major, uint16_t minor) {
  return "Version " + std::to_string(major) + "." + std::to_string(minor);
}

TEST(Layout, PagesNameTheVersionsInForce) {
  EXPECT_THAT(ReadPage("segment.md"), testing::HasSubstr(Version(kSegmentMajor, kSegmentMinor)));
  EXPECT_THAT(ReadPage("control.md"), testing::HasSubstr(Version(kControlMajor, kControlMinor)));
  EXPECT_THAT(ReadPage("bootstrap.md"), testing::HasSubstr(Version(bootstrap::kMajor, bootstrap::kMinor)));
  EXPECT_THAT(ReadPage("tcp.md"), testing::HasSubstr(Version(kHelloMajor, kHelloMinor)));
  EXPECT_THAT(ReadPage("shm.md"), testing::HasSubstr(Version(shm::kMajor, shm::kMinor)));
}

// What two threads write must not share a cache line.
TEST(Layout, WritersOwnWholeLines) {
  EXPECT_EQ(offsetof(CommunicatorSlot, called) % 64, 0u);
  EXPECT_EQ(offsetof(CommunicatorSlot, started) % 64, 0u);
  EXPECT_EQ(offsetof(CommunicatorSlot, name) % 64, 0u);
  EXPECT_EQ(offsetof(CommunicatorSlot, p2p_called) % 64, 0u);
  EXPECT_EQ(offsetof(CommunicatorSlot, p2p_started) % 64, 0u);
  EXPECT_EQ(offsetof(QueuePairSlot, posted_messages) % 64, 0u);
  EXPECT_EQ(offsetof(QueuePairSlot, latency_histogram) % 64, 0u);
  EXPECT_EQ(offsetof(QueuePairSlot, wanted_messages) % 64, 0u);
  EXPECT_EQ(offsetof(QueuePairSlot, first_waits) % 64, 0u);
  EXPECT_EQ(sizeof(CommunicatorSlot) % 64, 0u);
  EXPECT_EQ(sizeof(QueuePairSlot) % 64, 0u);
  EXPECT_EQ(sizeof(RingHeader) % 64, 0u);
  EXPECT_EQ(sizeof(Record) % 64, 0u);
  EXPECT_EQ(sizeof(SegmentHeader) % 64, 0u);
  EXPECT_EQ(offsetof(shm::Region, cookie) % 64, 0u);
  EXPECT_EQ(offsetof(shm::Region, closed) % 64, 0u);
  EXPECT_EQ(offsetof(shm::Region, consumed) % 64, 0u);
  EXPECT_EQ(sizeof(shm::Region) % 64, 0u);
  EXPECT_EQ(offsetof(shm::BellPage, sleeping) % 64, 0u);
  EXPECT_EQ(shm::OwnGeometry().slot_bytes % 64, 0u);
}

TEST(Layout, MagicsReadAsTextInAFileDump) {
  const uint64_t magic = kSegmentMagic;
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(&magic), 8), "C4SEGMNT");
  const std::set<uint64_t> magics = {
      kSegmentMagic,          kControlMagic,         bootstrap::kIdMagic,  bootstrap::kJoinMagic,
      bootstrap::kTableMagic, bootstrap::kMeetMagic, bootstrap::kMetMagic, kHelloMagic,
      kHelloAnswerMagic,      shm::kRegionMagic,     shm::kBellMagic};
  EXPECT_EQ(magics.size(), 11u);
}

}  // namespace
}  // namespace c4::wire
