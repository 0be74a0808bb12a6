// What the built library gives to and wants from the process that it is loaded into: exactly the committed
// names, no library but libc's own, and no newer libc than promised.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <dlfcn.h>
#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <iterator>
#include <map>
#include <string>
#include <vector>

#include "ccl/include/nccl.h"
#include "cli/install/elf_image.h"

namespace c4 {
namespace {

// The newest GLIBC_ version that a library built by the system's compiler may need: that of Debian 12.
// Raising this takes systems away from users.
constexpr int kHighestGlibcMinor = 36;
// That of the portable library (scripts/portable.sh, which sets C4_PORTABLE): no more than any of the
// vendor's wheels from 2.24 on. Those of 2.24 to 2.27 need the least.
constexpr int kPortableGlibcMinor = 17;

std::string Folder(const char* variable) {
  const char* const value = getenv(variable);  // NOLINT(concurrency-mt-unsafe)
  return value == nullptr ? "." : value;
}

std::string LibraryPath() {
  const char* const named = getenv("C4_LIBRARY");  // NOLINT(concurrency-mt-unsafe)
  return named != nullptr ? named : Folder("C4_BUILD_DIR") + "/lib/libnccl.so.2";
}

bool Portable() {
  return getenv("C4_PORTABLE") != nullptr;  // NOLINT(concurrency-mt-unsafe)
}

// "GLIBC_2.17": 17.
int HighestGlibcMinor(const ElfImage& image) {
  int highest = 0;
  for (const std::string& version : image.versions) {
    int minor = 0;
    if (sscanf(version.c_str(), "GLIBC_2.%d", &minor) == 1) highest = std::max(highest, minor);
  }
  return highest;
}

// The vendor's libraries that scripts/test_vendor.sh has fetched.
std::vector<std::string> Wheels() {
  const char* const named = getenv("C4_VENDOR_CACHE");  // NOLINT(concurrency-mt-unsafe)
  const std::string folder = named != nullptr ? named : Folder("HOME") + "/.cache/c4/nccl";
  std::vector<std::string> wheels;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    const std::filesystem::path library = entry.path() / "libnccl.so.2";
    if (std::filesystem::is_regular_file(library, error)) wheels.push_back(library.string());
  }
  return wheels;
}

std::vector<std::string> CommittedNames() {
  std::ifstream file(Folder("C4_SOURCE_DIR") + "/ccl/api/exports.txt");
  std::vector<std::string> names;
  for (std::string line; std::getline(file, line);) names.push_back(line);
  return names;
}

class ApiExports : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_EQ(image_.error, ""); }

  const ElfImage image_ = ElfImage::Read(LibraryPath());
};

TEST_F(ApiExports, NamesAreTheCommittedList) {
  const std::vector<std::string> committed = CommittedNames();
  ASSERT_EQ(committed.size(), 221u);
  EXPECT_TRUE(std::is_sorted(committed.begin(), committed.end()));
  std::vector<std::string> exported;
  for (const ElfSymbol& symbol : image_.exported) exported.push_back(symbol.name);
  std::sort(exported.begin(), exported.end());
  EXPECT_EQ(exported, committed);
}

// A profiler replaces the weak ncclX and calls on through pncclX.
TEST_F(ApiExports, EachFunctionHasAWeakNameAndAStrongTwin) {
  std::map<std::string, ElfSymbol> symbols;
  for (const ElfSymbol& symbol : image_.exported) symbols[symbol.name] = symbol;
  int twins = 0;
  for (const auto& [name, symbol] : symbols) {
    // A plugin's table is looked up by the one name it has.
    const bool table = name.starts_with("ncclNetPlugin_v") || name.starts_with("ncclProfiler_v");
    if (!name.starts_with("nccl") || name == "ncclResetDebugInitInternal" || table) {
      EXPECT_FALSE(symbol.weak) << name;
      continue;
    }
    EXPECT_TRUE(symbol.weak) << name;
    ASSERT_EQ(symbols.count("p" + name), 1u) << name;
    EXPECT_EQ(symbols["p" + name].address, symbol.address) << name;
    ++twins;
  }
  EXPECT_EQ(twins, 96);
}

// The C++ library is linked in. Of it, streams with their locales (ccl/base/kernel.h says what they cost)
// come in by one careless #include; types have their names in what is loaded, also where the symbols are
// stripped.
TEST_F(ApiExports, BringsNoStreamsAndLocales) {
  std::ifstream file(LibraryPath(), std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  ASSERT_GT(bytes.size(), 1000000u);
  EXPECT_EQ(bytes.find("NSt6locale5facetE"), std::string::npos);
}

TEST_F(ApiExports, NameOfTheLibrary) {
  EXPECT_EQ(image_.soname, "libnccl.so.2");
}

TEST_F(ApiExports, NeedsNothingButLibc) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer brings libraries of its own";
#endif
  for (const std::string& needed : image_.needed) {
    // The last two are parts of libc up to 2.33, and empty since.
    EXPECT_TRUE(needed == "libc.so.6" || needed == "libm.so.6" || needed.starts_with("ld-linux") ||
                (Portable() && (needed == "libpthread.so.0" || needed == "libdl.so.2")))
        << needed;
  }
}

TEST_F(ApiExports, NeedsNoNewerLibcThanPromised) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer brings libraries of its own";
#endif
  for (const std::string& version : image_.versions) EXPECT_THAT(version, ::testing::StartsWith("GLIBC_"));
  const int highest = HighestGlibcMinor(image_);
  printf("highest version needed: GLIBC_2.%d\n", highest);
  EXPECT_GT(highest, 0);
  EXPECT_LE(highest, Portable() ? kPortableGlibcMinor : kHighestGlibcMinor);
}

// The portable library loads wherever the vendor's does. Where no wheel has been fetched, the figure above
// has to do.
TEST_F(ApiExports, PortableNeedsNoNewerLibcThanTheVendors) {
  if (!Portable()) GTEST_SKIP() << "built by the system's compiler, for systems as new as this one";
  for (const std::string& path : Wheels()) {
    const ElfImage wheel = ElfImage::Read(path);
    ASSERT_EQ(wheel.error, "");
    const int theirs = HighestGlibcMinor(wheel);
    printf("%s needs GLIBC_2.%d\n", path.c_str(), theirs);
    EXPECT_GT(theirs, 0) << path;
    EXPECT_LE(HighestGlibcMinor(image_), theirs) << path;
  }
}

TEST_F(ApiExports, LoadsAndAnswers) {
  void* const library = dlopen(LibraryPath().c_str(), RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(library, nullptr) << dlerror();  // NOLINT(concurrency-mt-unsafe)
  const auto get_version = reinterpret_cast<decltype(&ncclGetVersion)>(dlsym(library, "ncclGetVersion"));
  ASSERT_NE(get_version, nullptr);
  int version = 0;
  EXPECT_EQ(get_version(&version), ncclSuccess);
  EXPECT_EQ(version, NCCL_VERSION_CODE);
}

}  // namespace
}  // namespace c4
