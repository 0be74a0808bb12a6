#include "c4d_master/sources/dump_folder.h"

#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"

namespace c4::c4d {
namespace {

using ::testing::IsEmpty;
using ::testing::SizeIs;

namespace fs = std::filesystem;

std::string Source(const std::string& name) {
  // NOLINTNEXTLINE(concurrency-mt-unsafe): nobody writes the environment
  const char* source = getenv("C4_SOURCE_DIR");
  return absl::StrCat(source == nullptr ? "." : source, "/", name);
}

class DumpFolderTest : public ::testing::Test {
 protected:
  DumpFolderTest() {
    char name[] = "/tmp/c4-dump-folder-XXXXXX";
    path_ = mkdtemp(name);
  }
  ~DumpFolderTest() override { fs::remove_all(path_); }

  // One of the dumps that PyTorch wrote.
  void Copy(int rank, const std::string& as, int64_t seconds_ago = 1) {
    const fs::path to = fs::path(path_) / as;
    fs::copy_file(Source(absl::StrCat("tests/data/flight-recorder-pytorch/absent/nccl_trace_rank_", rank)),
                  to, fs::copy_options::overwrite_existing);
    Date(as, seconds_ago);
  }
  void Date(const std::string& name, int64_t seconds_ago) {
    const timespec when{.tv_sec = now_.unix_ns / kSecondNs - seconds_ago, .tv_nsec = 0};
    const timespec both[2] = {when, when};
    ASSERT_EQ(utimensat(AT_FDCWD, absl::StrCat(path_, "/", name).c_str(), both, 0), 0);
  }
  // Once a second for so long; what was told last, if anything was.
  std::optional<HeardDumps> Watch(DumpFolder* folder, int seconds) {
    std::optional<HeardDumps> heard;
    for (int second = 0; second < seconds; ++second) {
      now_.monotonic_ns += kSecondNs;
      now_.unix_ns += kSecondNs;
      if (std::optional<HeardDumps> news = folder->Look(now_)) {
        heard = std::move(news);
        ++told_;
      }
    }
    return heard;
  }

  std::string path_;
  Now now_{1000 * kSecondNs, 1'700'000'000 * kSecondNs};
  int told_ = 0;
};

TEST_F(DumpFolderTest, AsTheyCome) {
  DumpFolder folder(path_);
  EXPECT_FALSE(Watch(&folder, 10).has_value());
  for (int rank = 0; rank < 3; ++rank) Copy(rank, absl::StrCat("nccl_trace_rank_", rank));
  EXPECT_FALSE(Watch(&folder, 3).has_value());  // they may still grow
  std::optional<HeardDumps> heard = Watch(&folder, 5);
  ASSERT_TRUE(heard.has_value());
  EXPECT_THAT(heard->dumps, SizeIs(3));
  EXPECT_FALSE(heard->complete);
  EXPECT_GT(heard->dumps[0].dump.last_call_unix_ns, 1'600'000'000 * kSecondNs);  // as PyTorch says it
  Copy(3, "nccl_trace_rank_3", 0);
  heard = Watch(&folder, 5);
  ASSERT_TRUE(heard.has_value());
  EXPECT_THAT(heard->dumps, SizeIs(4));
  told_ = 0;
  heard = Watch(&folder, 100);
  ASSERT_TRUE(heard.has_value());
  EXPECT_TRUE(heard->complete);
  EXPECT_EQ(told_, 1);
  heard = Watch(&folder, 600);  // they have become old
  ASSERT_TRUE(heard.has_value());
  EXPECT_THAT(heard->dumps, IsEmpty());
  EXPECT_FALSE(Watch(&folder, 600).has_value());
  // The next standstill writes over them.
  for (int rank = 0; rank < 4; ++rank) Copy(rank, absl::StrCat("nccl_trace_rank_", rank));
  heard = Watch(&folder, 5);
  ASSERT_TRUE(heard.has_value());
  EXPECT_THAT(heard->dumps, SizeIs(4));
}

TEST_F(DumpFolderTest, OnlyThoseOfOneMoment) {
  Copy(0, "a_rank_0", 5000);
  Copy(1, "a_rank_1", 20);
  Copy(2, "b_rank_2", 10);
  Copy(1, "b_rank_1", 10);
  DumpFolder folder(path_);
  std::optional<HeardDumps> heard = Watch(&folder, 6);
  ASSERT_TRUE(heard.has_value());
  ASSERT_THAT(heard->dumps, SizeIs(2));
  EXPECT_EQ(heard->dumps[0].dump.rank, 1);
  EXPECT_EQ(heard->dumps[0].written_unix_ns, (1'700'000'000 - 10) * kSecondNs);  // the newer of rank 1's
  EXPECT_EQ(heard->dumps[1].dump.rank, 2);
  // Those that begin like this alone.
  DumpFolder some(path_ + "/a_*");
  heard = Watch(&some, 6);
  ASSERT_TRUE(heard.has_value());
  EXPECT_THAT(heard->dumps, SizeIs(1));
}

TEST_F(DumpFolderTest, WhatElseLiesThere) {
  Copy(0, "nccl_trace_rank_0");
  std::ofstream(path_ + "/rank_1.json") << R"({"entries": [)";  // cut off
  std::ofstream(path_ + "/rank_2") << "";
  std::ofstream(path_ + "/notes.txt") << "of nobody";
  std::ofstream(path_ + "/.rank_7") << "of nobody";
  for (const char* name : {"rank_1.json", "rank_2", "notes.txt", ".rank_7"}) Date(name, 1);
  ASSERT_EQ(mkfifo((path_ + "/rank_3.pipe").c_str(), 0600), 0);
  fs::create_directory(path_ + "/rank_4");
  fs::create_symlink("/dev/zero", path_ + "/rank_5");
  fs::create_symlink("nowhere", path_ + "/rank_6");
  DumpFolder folder(path_ + "/");
  const std::optional<HeardDumps> heard = Watch(&folder, 6);
  ASSERT_TRUE(heard.has_value());
  EXPECT_THAT(heard->dumps, SizeIs(1));
  EXPECT_EQ(heard->unreadable, 2U);
}

TEST_F(DumpFolderTest, NoFolder) {
  DumpFolder folder(path_ + "/later");
  EXPECT_FALSE(Watch(&folder, 6).has_value());
  fs::create_directory(path_ + "/later");
  Copy(0, "later/rank_0", 0);
  const std::optional<HeardDumps> heard = Watch(&folder, 6);
  ASSERT_TRUE(heard.has_value());
  EXPECT_THAT(heard->dumps, SizeIs(1));
}

}  // namespace
}  // namespace c4::c4d
