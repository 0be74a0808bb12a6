// What the built library gives to and wants from the process that it is loaded into: exactly the committed
// names, no library but libc's own, and no newer libc than promised.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <dlfcn.h>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <map>
#include <string>
#include <vector>

#include "ccl/include/nccl.h"
#include "cli/elf_image.h"

namespace c4 {
namespace {

// The newest GLIBC_ version that the library may need: that of Debian 12, on which it is built. The vendor's
// wheel of 2.28.9 needs 2.18 only. Raising this takes systems away from users.
constexpr int kHighestGlibcMinor = 36;

std::string Folder(const char* variable) {
  const char* const value = getenv(variable);  // NOLINT(concurrency-mt-unsafe)
  return value == nullptr ? "." : value;
}

std::string LibraryPath() {
  return Folder("C4_BUILD_DIR") + "/lib/libnccl.so.2";
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
  ASSERT_EQ(committed.size(), 217u);
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

TEST_F(ApiExports, NameOfTheLibrary) {
  EXPECT_EQ(image_.soname, "libnccl.so.2");
}

TEST_F(ApiExports, NeedsNothingButLibc) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer brings libraries of its own";
#endif
  for (const std::string& needed : image_.needed) {
    EXPECT_TRUE(needed == "libc.so.6" || needed == "libm.so.6" || needed.starts_with("ld-linux")) << needed;
  }
}

TEST_F(ApiExports, NeedsNoNewerLibcThanPromised) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer brings libraries of its own";
#endif
  int highest = 0;
  for (const std::string& version : image_.versions) {
    int minor = 0;
    if (sscanf(version.c_str(), "GLIBC_2.%d", &minor) == 1) highest = std::max(highest, minor);
    EXPECT_THAT(version, ::testing::StartsWith("GLIBC_"));
  }
  printf("highest version needed: GLIBC_2.%d\n", highest);
  EXPECT_GT(highest, 0);
  EXPECT_LE(highest, kHighestGlibcMinor);
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
