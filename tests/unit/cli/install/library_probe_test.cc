#include "cli/install/library_probe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/install/elf_image.h"
#include "tests/unit/cli/install/install_folder.h"

namespace c4::cli {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;

TEST(LibraryProbeTest, TheVendorsAndOurs) {
  const VendorFolder folder(false, Double("fake_nccl_2.32.3"));
  const StatusOr<LibraryProbe> theirs = ProbeLibrary({.library = folder.path(kLibraryName)});
  ASSERT_TRUE(theirs.ok()) << theirs.status();
  EXPECT_EQ(theirs->version, 23203);
  EXPECT_FALSE(theirs->ours);
  EXPECT_EQ(theirs->vendor_path, "");

  std::filesystem::rename(folder.path(kLibraryName), folder.path(kInstalledName));
  folder.Copy(OurLibrary(), kLibraryName);
  const StatusOr<LibraryProbe> ours = ProbeLibrary({.library = folder.path(kLibraryName)});
  ASSERT_TRUE(ours.ok()) << ours.status();
  EXPECT_TRUE(ours->ours);
  EXPECT_EQ(ours->version, 23203);
  EXPECT_EQ(ours->vendor_path, std::filesystem::canonical(folder.path(kInstalledName)));
  EXPECT_EQ(ours->net_plugin, ours->path);
  EXPECT_EQ(ours->profiler_plugin, ours->path);
  EXPECT_THAT(ours->log, Contains(AllOf(HasSubstr("engine vendor: NCCL 2.32.3"), HasSubstr("beside us"))));
}

TEST(LibraryProbeTest, FaultsAreSentences) {
  const VendorFolder folder;
  folder.Write("text", "no library");
  const auto fault = [](const std::string& library) {
    return ProbeLibrary({.library = library, .limit = std::chrono::seconds(20)}).status();
  };
  EXPECT_THAT(std::string(fault(folder.path("text")).message()), HasSubstr("cannot be used"));
  EXPECT_EQ(fault("libno-such-library.so.7").code(), StatusCode::kNotFound);
  EXPECT_THAT(std::string(fault("libm.so.6").message()), HasSubstr("is no NCCL"));
}

TEST(ElfImageTest, NumbersOfNames) {
  const VendorFolder folder;
  using std::string_literals::operator""s;
  folder.Write("names", "\0aNet_v9\0Net_v10\0Net_v\0Net_v7x\0Net_v10\0Net_v99999999999999\0Net_v3"s);
  std::vector<std::vector<int>> numbers;
  const ElfImage image = ElfImage::ReadWithNumbers(folder.path("names"), {"Net_v", "Other_v"}, &numbers);
  EXPECT_THAT(image.error, HasSubstr("no ELF file"));
  EXPECT_EQ(numbers, (std::vector<std::vector<int>>{{9, 10}, {}}));
}

}  // namespace
}  // namespace c4::cli
