// The front door before real releases of NVIDIA's library, on a machine without a GPU: what such a machine
// can show. C4_VENDOR_LIBRARIES is a list of them, colons between; scripts/test_vendor.sh gets them. Prints
// one line a release for docs/compatibility.md.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sstream>
#include <utility>

#include "ccl/tap/import_slots.h"
#include "cli/install/elf_image.h"
#include "tests/unit/ccl/front_door.h"

namespace c4::front_door {
namespace {

using ::testing::HasSubstr;

std::vector<std::string> Libraries() {
  const char* const list = getenv("C4_VENDOR_LIBRARIES");
  std::vector<std::string> paths;
  std::istringstream stream(list == nullptr ? "" : list);
  for (std::string path; std::getline(stream, path, ':');) paths.push_back(path);
  return paths;
}

bool IsNcclName(const std::string& name) {
  return name.starts_with("nccl") || name.starts_with("pnccl");
}

// What the release looks for in plugins, by the strings in it: the newest of a kind.
int NewestPlugin(const std::string& bytes, const std::string& kind) {
  int newest = 0;
  for (size_t at = bytes.find(kind); at != std::string::npos; at = bytes.find(kind, at + 1)) {
    newest = std::max(newest, atoi(bytes.c_str() + at + kind.size()));
  }
  return newest;
}

class VendorTest : public ::testing::TestWithParam<std::string> {
 protected:
  static std::map<std::string, std::string> Environment() {
    return {{"C4_VENDOR_LIBRARY", GetParam()}, {"C4_ENGINE", "vendor"}};
  }
  static void ExpectGood(const std::function<std::string()>& body) {
    const std::string fault = InChild(Environment(), body);
    EXPECT_EQ(fault, "");
  }
};

// What a release has that we do not, nobody could call through us.
TEST_P(VendorTest, EverySymbolOfTheReleaseIsOurs) {
  const ElfImage theirs = ElfImage::Read(GetParam());
  ASSERT_EQ(theirs.error, "");
  const ElfImage ours = ElfImage::Read(OurLibrary());
  std::vector<std::string> names;
  for (const ElfSymbol& symbol : ours.exported) names.push_back(symbol.name);
  std::sort(names.begin(), names.end());
  int count = 0;
  for (const ElfSymbol& symbol : theirs.exported) {
    if (!IsNcclName(symbol.name)) continue;
    ++count;
    EXPECT_TRUE(std::binary_search(names.begin(), names.end(), symbol.name)) << symbol.name;
  }
  EXPECT_GT(count, 60);
  std::string bytes(std::filesystem::file_size(GetParam()), '\0');
  std::ifstream(GetParam(), std::ios::binary).read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  const int net = NewestPlugin(bytes, "ncclNetPlugin_v");
  const int profiler = NewestPlugin(bytes, "ncclProfiler_v");
  RecordProperty("symbols", count);
  // A program of a later nccl.h reaches what is there and is told of what is not.
  void* const library = dlopen(GetParam().c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND);
  ASSERT_NE(library, nullptr) << dlerror();
  int version = 0;
  reinterpret_cast<decltype(&ncclGetVersion)>(dlsym(library, "ncclGetVersion"))(&version);
  printf("| %d.%d.%d | %d | net v%d, profiler v%d |\n", version / 10000, version / 100 % 100, version % 100,
         count, net, profiler);
}

TEST_P(VendorTest, AnswersAreTheVendors) {
  ExpectGood([] {
    Door door;
    void* const library = dlopen(GetParam().c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND);
    DOOR_CHECK(library != nullptr);
    const auto theirs = [&](const char* name) { return dlsym(library, name); };
    int version = 0;
    int their_version = 1;
    DOOR_CHECK(DOOR(door, ncclGetVersion)(&version) == ncclSuccess);
    DOOR_CHECK(reinterpret_cast<decltype(&ncclGetVersion)>(theirs("ncclGetVersion"))(&their_version) ==
               ncclSuccess);
    DOOR_CHECK(version == their_version);
    const auto text = reinterpret_cast<decltype(&ncclGetErrorString)>(theirs("ncclGetErrorString"));
    for (int code = 0; code < 12; ++code) {
      const auto result = static_cast<ncclResult_t>(code);
      DOOR_CHECK(std::string(DOOR(door, ncclGetErrorString)(result)) == text(result));
    }
    return std::string();
  });
}

TEST_P(VendorTest, UniqueIdsDiffer) {
  ExpectGood([] {
    Door door;
    ncclUniqueId first;
    ncclUniqueId second;
    DOOR_CHECK(DOOR(door, ncclGetUniqueId)(&first) == ncclSuccess);
    DOOR_CHECK(DOOR(door, ncclGetUniqueId)(&second) == ncclSuccess);
    DOOR_CHECK(memcmp(&first, &second, sizeof first) != 0);
    return std::string();
  });
}

// Without a GPU a communicator is refused, by the vendor and in its words, and is nowhere written down as
// made.
TEST_P(VendorTest, ACommunicatorWithoutAGpuIsTheVendorsOwnError) {
  ExpectGood([] {
    Door door;
    ncclUniqueId id;
    DOOR_CHECK(DOOR(door, ncclGetUniqueId)(&id) == ncclSuccess);
    ncclComm_t comm = nullptr;
    const ncclResult_t result = DOOR(door, ncclCommInitRank)(&comm, 1, id, 0);
    if (result == ncclSuccess) {  // this machine has a GPU
      DOOR_CHECK(DOOR(door, ncclCommDestroy)(comm) == ncclSuccess);
      return std::string();
    }
    DOOR_CHECK(result == ncclUnhandledCudaError && comm == nullptr);
    const std::string sentence = DOOR(door, ncclGetLastError)(nullptr);
    if (sentence.find("CUDA") == std::string::npos) return "the sentence was: " + sentence;
    for (const auto& slot : Door::Communicators()) DOOR_CHECK(slot.phase == wire::kPhaseFailed);
    return std::string();
  });
}

TEST_P(VendorTest, UnloadingIsHarmless) {
  ExpectGood([] {
    for (int i = 0; i < 3; ++i) {
      Door door;
      ncclUniqueId id;
      DOOR_CHECK(DOOR(door, ncclGetUniqueId)(&id) == ncclSuccess);
      DOOR_CHECK(dlclose(door.handle()) == 0);
    }
    return std::string();
  });
}

// As a program that was linked against NCCL has us: for all to see, before the vendor's library.
int look_ups = 0;
void* Counted(void* handle, const char* symbol) {
  ++look_ups;
  return dlsym(handle, symbol);
}

// Its own look-ups go through ours, its answers stay what they were, and it gets its slots back.
TEST_P(VendorTest, ItsLookUpsCanBeTakenOver) {
  ExpectGood([]() -> std::string {
    void* const theirs = dlopen(GetParam().c_str(), RTLD_NOW | RTLD_LOCAL);
    if (theirs == nullptr) return "it cannot be opened";
    const auto init = reinterpret_cast<ncclResult_t (*)(ncclComm_t*, int, ncclUniqueId, int)>(
        dlsym(theirs, "ncclCommInitRank"));
    const auto id_of = reinterpret_cast<ncclResult_t (*)(ncclUniqueId*)>(dlsym(theirs, "ncclGetUniqueId"));
    tap::ImportSlots slots;
    const Result redirected =
        tap::ImportSlots::Redirect(theirs, {{"dlsym", reinterpret_cast<void*>(&Counted)}}, &slots);
    if (!redirected.ok()) return redirected.message();
    if (slots.count() == 0) return "it has no slot for dlsym";
    ncclUniqueId id;
    if (id_of(&id) != ncclSuccess) return "no unique id";
    ncclComm_t comm = nullptr;
    const ncclResult_t with = init(&comm, 1, id, 0);
    const Result restored = slots.Restore();
    if (!restored.ok()) return restored.message();
    const int counted = look_ups;
    const ncclResult_t without = init(&comm, 1, id, 0);
    if (with != without) return "the answers differ";
    if (look_ups != counted) return "a slot was not given back";
    return "";
  });
}

TEST_P(VendorTest, LinkedForAllToSee) {
  ExpectGood([] {
    DOOR_CHECK(dlopen(OurLibrary().c_str(), RTLD_NOW | RTLD_GLOBAL) != nullptr);
    Door door;
    int version = 0;
    ncclUniqueId id;
    ncclComm_t comm = nullptr;
    DOOR_CHECK(DOOR(door, ncclGetVersion)(&version) == ncclSuccess);
    DOOR_CHECK(DOOR(door, ncclGetUniqueId)(&id) == ncclSuccess);
    const auto in_a_group = [&](auto find) {
      reinterpret_cast<decltype(&ncclGroupStart)>(find("ncclGroupStart"))();
      const auto init = reinterpret_cast<decltype(&ncclCommInitRank)>(find("ncclCommInitRank"));
      const ncclResult_t inside = init(&comm, 1, id, 0);
      const ncclResult_t end = reinterpret_cast<decltype(&ncclGroupEnd)>(find("ncclGroupEnd"))();
      const auto destroy = reinterpret_cast<decltype(&ncclCommDestroy)>(find("ncclCommDestroy"));
      if (inside == ncclSuccess && end == ncclSuccess) destroy(std::exchange(comm, nullptr));
      return std::make_pair(inside, end);
    };
    void* const vendor = dlopen(GetParam().c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND);
    DOOR_CHECK(vendor != nullptr);
    const auto ours = in_a_group([&](const char* name) { return door.Symbol(name); });
    const auto theirs = in_a_group([&](const char* name) { return dlsym(vendor, name); });
    DOOR_CHECK(ours == theirs);
    return std::string();
  });
}

std::string NameOf(const ::testing::TestParamInfo<std::string>& info) {
  std::string name = info.param;
  for (char& letter : name) letter = isalnum(static_cast<unsigned char>(letter)) != 0 ? letter : '_';
  return name;
}

INSTANTIATE_TEST_SUITE_P(Releases, VendorTest, ::testing::ValuesIn(Libraries()), NameOf);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(VendorTest);

}  // namespace
}  // namespace c4::front_door
