// libc4_verbs.so as the loader gives it to a program, on a double of libibverbs: its names, what it wants,
// and the segment that it writes.
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <string>
#include <sys/wait.h>
#include <vector>

#include "cli/install/elf_image.h"
#include "tests/unit/ccl/temp_dir.h"
#include "wire/segment.h"

namespace c4 {
namespace {

using ::testing::AnyOf;
using ::testing::Each;
using ::testing::StartsWith;

std::string Library() {
  return std::string(getenv("C4_BUILD_DIR")) + "/lib/libc4_verbs.so";
}

class PreloadTest : public ::testing::Test {
 protected:
  // The exit code of the program that uses verbs, with these words.
  int Run(const std::string& words, const std::string& environment = "") {
    const std::string command = "env C4_RUN_DIR=" + directory_.path() +
                                " C4_CONTROL=0 LD_PRELOAD=" + Library() + " " + environment + " " +
                                getenv("C4_BUILD_DIR") + "/tests/doubles/verbs_program " + words;
    const int status = std::system(command.c_str());
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }
  std::vector<std::string> Segments() {
    std::vector<std::string> files;
    for (const auto& entry : std::filesystem::directory_iterator(directory_.path())) {
      if (entry.path().extension() == wire::kSegmentSuffix) files.push_back(entry.path());
    }
    return files;
  }
  // The one segment that there is.
  wire::SegmentHeader Header(std::vector<wire::QueuePairSlot>* queue_pairs) {
    const std::vector<std::string> files = Segments();
    wire::SegmentHeader header{};
    EXPECT_EQ(files.size(), 1U);
    if (files.size() != 1) return header;
    std::ifstream file(files[0], std::ios::binary);
    file.read(reinterpret_cast<char*>(&header), sizeof header);
    for (uint32_t i = 0; i < header.queue_pairs.count; ++i) {
      wire::QueuePairSlot slot{};
      file.seekg(static_cast<std::streamoff>(header.queue_pairs.offset + i * sizeof slot));
      file.read(reinterpret_cast<char*>(&slot), sizeof slot);
      if (slot.phase != wire::kPhaseFree) queue_pairs->push_back(slot);
    }
    return header;
  }

  test::TempDir directory_;
};

TEST_F(PreloadTest, GivesNamesOfVerbsAloneAndWantsLibcAlone) {
  const ElfImage image = ElfImage::Read(Library());
  ASSERT_EQ(image.error, "");
  for (const ElfSymbol& symbol : image.exported) EXPECT_THAT(symbol.name, StartsWith("ibv_"));
  EXPECT_EQ(image.exported.size(), 6U);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  EXPECT_THAT(image.needed, Each(AnyOf("libc.so.6", "libm.so.6", StartsWith("ld-linux"))));
#endif
}

TEST_F(PreloadTest, AProgramsQueuePairsStandInItsOwnCommunicator) {
  ASSERT_EQ(Run("3 0"), 0);
  std::vector<wire::QueuePairSlot> queue_pairs;
  const wire::SegmentHeader header = Header(&queue_pairs);
  EXPECT_EQ(header.ended, 1U);  // though it left its queue pair where it was
  ASSERT_EQ(queue_pairs.size(), 1U);
  EXPECT_EQ(queue_pairs[0].peer, -1);
  EXPECT_EQ(queue_pairs[0].transport, wire::kTransportVerbs);
  EXPECT_EQ(queue_pairs[0].completed_messages, 3U);
  EXPECT_EQ(queue_pairs[0].completed_bytes, 3000U);
}

TEST_F(PreloadTest, AProgramThatFailsHasNotEndedWell) {
  ASSERT_EQ(Run("1 7"), 7);
  std::vector<wire::QueuePairSlot> queue_pairs;
  EXPECT_EQ(Header(&queue_pairs).ended, 0U);
}

TEST_F(PreloadTest, WhatAForkedChildSendsGoesThroughAndIsNotRecorded) {
  ASSERT_EQ(Run("2 0 fork"), 0);
  std::vector<wire::QueuePairSlot> queue_pairs;
  Header(&queue_pairs);
  ASSERT_EQ(queue_pairs.size(), 1U);
  EXPECT_EQ(queue_pairs[0].completed_messages, 2U);
}

TEST_F(PreloadTest, SwitchedOffItPassesOn) {
  ASSERT_EQ(Run("3 0", "C4_TAP=0"), 0);
  EXPECT_EQ(Segments().size(), 0U);
}

}  // namespace
}  // namespace c4
