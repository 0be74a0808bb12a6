// What the built library refuses as the vendor's, and that each refusal names the file and the reason.
#include <cstdlib>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "ccl/include/c4/installed.h"
#include "tests/unit/ccl/front_door.h"

namespace c4::front_door {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string SentenceFor(const std::string& path, const std::string& engine = "auto") {
  return InChild({{"C4_VENDOR_LIBRARY", path}, {"C4_ENGINE", engine}, {"NCCL_DEBUG", "NONE"}}, [] {
    Door door;
    ncclUniqueId id;
    if (DOOR(door, ncclGetUniqueId)(&id) == ncclSuccess) return std::string("it was taken");
    return std::string(DOOR(door, ncclGetLastError)(nullptr));
  });
}

TEST(FrontDoor, RefusesWhatIsNoVendorsLibrary) {
  EXPECT_THAT(SentenceFor("/nowhere/libnccl.so.2"),
              AllOf(HasSubstr("/nowhere/libnccl.so.2"), HasSubstr("C4_VENDOR_LIBRARY")));
  EXPECT_THAT(SentenceFor("/tmp"), AllOf(HasSubstr("/tmp"), HasSubstr("cannot be opened")));
  EXPECT_THAT(SentenceFor("/etc/passwd"), HasSubstr("cannot be opened"));
  EXPECT_THAT(SentenceFor(OurLibrary()), HasSubstr("this library itself"));
  EXPECT_THAT(SentenceFor(Double("2.23.4")), AllOf(HasSubstr("2.23.4"), HasSubstr("needs 2.24.0 or later")));
  EXPECT_THAT(SentenceFor("/lib/x86_64-linux-gnu/libm.so.6"), HasSubstr("is no NCCL"));
}

TEST(FrontDoor, RefusesAnotherCopyOfItself) {
  char folder[] = "/tmp/c4-copy-XXXXXX";
  ASSERT_NE(mkdtemp(folder), nullptr);
  const std::string copy = std::string(folder) + "/libnccl.so.2";
  std::ifstream from(OurLibrary(), std::ios::binary);
  std::ofstream(copy, std::ios::binary) << from.rdbuf();
  EXPECT_THAT(SentenceFor(copy), HasSubstr("another copy of C4"));
  const std::string link = std::string(folder) + "/link.so";
  ASSERT_EQ(symlink(OurLibrary().c_str(), link.c_str()), 0);
  EXPECT_THAT(SentenceFor(link), HasSubstr("this library itself"));
  unlink(link.c_str());
  unlink(copy.c_str());
  rmdir(folder);
}

// Loaded in an installation that is undone before the first call: the original is where we were.
TEST(FrontDoor, AnUndoneInstallationIsFoundInOurPlace) {
  char folder[] = "/tmp/c4-undo-XXXXXX";
  ASSERT_NE(mkdtemp(folder), nullptr);
  const std::string ours = std::string(folder) + "/libnccl.so.2";
  const std::string kept = std::string(folder) + "/" + kInstalledName;
  const auto copy = [](const std::string& from, const std::string& to) {
    std::ifstream source(from, std::ios::binary);
    std::ofstream(to, std::ios::binary) << source.rdbuf();
  };
  copy(OurLibrary(), ours);
  copy(Double("2.24.0"), kept);
  EXPECT_EQ(InChild({},
                    [&] {
                      Door door(ours);
                      DOOR_CHECK(door.error().empty());
                      DOOR_CHECK(rename(kept.c_str(), ours.c_str()) == 0);
                      int version = 0;
                      DOOR_CHECK(DOOR(door, ncclGetVersion)(&version) == ncclSuccess);
                      DOOR_CHECK(version == 22400);
                      return std::string();
                    }),
            "");
  unlink(ours.c_str());
  unlink(kept.c_str());
  rmdir(folder);
}

// An object for another machine: the head of one is enough for the loader to say so.
TEST(FrontDoor, RefusesA32BitLibrary) {
  char path[] = "/tmp/c4-elf32-XXXXXX";
  const int fd = mkstemp(path);
  ASSERT_GE(fd, 0);
  unsigned char head[256] = {0x7f, 'E', 'L', 'F', 1, 1, 1};
  head[16] = 3;  // a shared object
  head[18] = 3;  // for the 80386
  ASSERT_EQ(write(fd, head, sizeof head), static_cast<ssize_t>(sizeof head));
  close(fd);
  EXPECT_THAT(SentenceFor(path), AllOf(HasSubstr("cannot be opened"), HasSubstr("ELFCLASS32")));
  unlink(path);
}

}  // namespace
}  // namespace c4::front_door
