// A library's own look-ups go where they are sent, however it was bound, and go back; nobody else's change.
#include "ccl/tap/import_slots.h"

#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <fstream>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace c4::tap {
namespace {

using ::testing::HasSubstr;

int answer;
void* Answer(void* /*handle*/, const char* /*symbol*/) {
  return &answer;
}

class ImportSlotsTest : public ::testing::TestWithParam<const char*> {
 protected:
  ImportSlotsTest() {
    handle_ = dlopen(Path().c_str(), RTLD_LAZY | RTLD_LOCAL);
    EXPECT_NE(handle_, nullptr) << dlerror();
    look_ = reinterpret_cast<void* (*)(void*, const char*)>(dlsym(handle_, "looker_dlsym"));
  }
  ~ImportSlotsTest() override { dlclose(handle_); }

  static std::string Path() {
    return std::string(getenv("C4_BUILD_DIR")) + "/tests/doubles/fake_looker_" + GetParam() + ".so";
  }
  // Of each mapping of the library, its rights.
  static std::string Rights() {
    std::ifstream maps("/proc/self/maps");
    std::string all;
    for (std::string line; std::getline(maps, line);) {
      if (line.find("fake_looker") != std::string::npos) all += line.substr(line.find(' ') + 1, 4) + " ";
    }
    return all;
  }

  void* handle_ = nullptr;
  void* (*look_)(void*, const char*) = nullptr;
};

TEST_P(ImportSlotsTest, ItsLookUpsGoWhereTheyAreSentAndBack) {
  void* const before = look_(RTLD_DEFAULT, "malloc");
  const std::string rights = Rights();
  ImportSlots slots;
  const Result redirected =
      ImportSlots::Redirect(handle_, {{"dlsym", reinterpret_cast<void*>(&Answer)}}, &slots);
  ASSERT_TRUE(redirected.ok()) << redirected.message();
  EXPECT_EQ(slots.count(), 1U);
  EXPECT_TRUE(slots.Has("dlsym"));
  EXPECT_EQ(look_(RTLD_DEFAULT, "malloc"), &answer);
  EXPECT_EQ(dlsym(RTLD_DEFAULT, "malloc"), before);  // ours
  EXPECT_EQ(Rights(), rights);
  ASSERT_TRUE(slots.Restore().ok());
  EXPECT_EQ(look_(RTLD_DEFAULT, "malloc"), before);
  EXPECT_EQ(slots.count(), 0U);
}

// A program may have loaded it for itself before: it is the same one, and both are served.
TEST_P(ImportSlotsTest, SoDoThoseOfALibraryThatSomebodyElseHasLoaded) {
  void* const before = look_(RTLD_DEFAULT, "malloc");
  void* const again = dlopen(Path().c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND);
  ASSERT_EQ(again, handle_);
  ImportSlots slots;
  ASSERT_TRUE(ImportSlots::Redirect(again, {{"dlsym", reinterpret_cast<void*>(&Answer)}}, &slots).ok());
  EXPECT_EQ(look_(RTLD_DEFAULT, "malloc"), &answer);
  ASSERT_TRUE(slots.Restore().ok());
  dlclose(again);
  EXPECT_EQ(look_(RTLD_DEFAULT, "malloc"), before);
}

TEST_P(ImportSlotsTest, WhatItDoesNotImportIsPassedOver) {
  ImportSlots slots;
  ASSERT_TRUE(
      ImportSlots::Redirect(handle_, {{"no_such_function", reinterpret_cast<void*>(&Answer)}}, &slots).ok());
  EXPECT_EQ(slots.count(), 0U);
}

INSTANTIATE_TEST_SUITE_P(Bindings, ImportSlotsTest, ::testing::Values("lazy", "now", "noplt"),
                         [](const auto& tested) { return std::string(tested.param); });

TEST(ImportSlots, NoHandleIsRefused) {
  ImportSlots slots;
  EXPECT_THAT(ImportSlots::Redirect(nullptr, {}, &slots).message(), HasSubstr("no loaded library"));
}

}  // namespace
}  // namespace c4::tap
