// Whose plugins the vendor's library is told of: the user's wherever there is a word of theirs. And where the
// vendor's library is looked for.
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <map>

#include "ccl/engine/vendor/library.h"
#include "ccl/engine/vendor/settings.h"

namespace c4::vendor {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr char kOurs[] = "/opt/c4/libnccl.so.2";

struct Machine {
  std::map<std::string, std::string> environment;
  std::map<std::string, std::string> files;

  PluginSettings Choose() const {
    return ChoosePlugins(
        kOurs,
        [this](const char* name) {
          const auto found = environment.find(name);
          return found == environment.end() ? nullptr : found->second.c_str();
        },
        [this](const std::string& path) {
          const auto found = files.find(path);
          return found == files.end() ? std::string() : found->second;
        });
  }
};

TEST(VendorSettings, OursWhereNobodySaysOtherwise) {
  const PluginSettings settings = Machine{}.Choose();
  EXPECT_TRUE(settings.net.ours);
  EXPECT_EQ(settings.net.value, kOurs);
  EXPECT_TRUE(settings.profiler.ours);
}

TEST(VendorSettings, TheUsersPluginWins) {
  const PluginSettings settings = Machine{{{"NCCL_NET_PLUGIN", "ofi"}}, {}}.Choose();
  EXPECT_FALSE(settings.net.ours);
  EXPECT_EQ(settings.net.value, "ofi");
  EXPECT_EQ(settings.net.from, "the environment");
  EXPECT_TRUE(settings.profiler.ours);
}

TEST(VendorSettings, SoDoesNone) {
  EXPECT_FALSE((Machine{{{"NCCL_PROFILER_PLUGIN", "none"}}, {}}).Choose().profiler.ours);
}

TEST(VendorSettings, AProfilerOfTheUsersRunsBesideOurs) {
  const Setting profiler = Machine{{{"NCCL_PROFILER_PLUGIN", "inspector"}}, {}}.Choose().profiler;
  EXPECT_TRUE(profiler.ours);
  EXPECT_EQ(profiler.value, kOurs);
  EXPECT_EQ(profiler.beside, "inspector");
  EXPECT_EQ(profiler.from, "the environment");
  // As the processes that it starts find it.
  const Setting inherited =
      Machine{{{"NCCL_PROFILER_PLUGIN", kOurs}, {"C4_USER_PROFILER", "inspector"}}, {}}.Choose().profiler;
  EXPECT_TRUE(inherited.ours);
  EXPECT_EQ(inherited.beside, "inspector");
  // Never ourselves.
  const Setting own = Machine{{{"C4_USER_PROFILER", kOurs}}, {}}.Choose().profiler;
  EXPECT_TRUE(own.ours);
  EXPECT_EQ(own.beside, "");
}

TEST(VendorSettings, ATunerIsTheUsersAlone) {
  EXPECT_EQ(Machine{}.Choose().tuner.value, "");
  const Setting tuner = Machine{{}, {{"/etc/nccl.conf", "NCCL_TUNER_PLUGIN=mine"}}}.Choose().tuner;
  EXPECT_EQ(tuner.value, "mine");
  EXPECT_FALSE(tuner.ours);
}

TEST(VendorSettings, WhatAParentLeftBehindIsOurs) {
  EXPECT_TRUE((Machine{{{"NCCL_NET_PLUGIN", kOurs}}, {}}).Choose().net.ours);
}

TEST(VendorSettings, ConfigurationFilesWin) {
  const Machine machine{{{"HOME", "/home/u"}},
                        {{"/home/u/.nccl.conf", "# of ours\nNCCL_DEBUG=INFO\nNCCL_NET_PLUGIN=aws \r\n"},
                         {"/etc/nccl.conf", "NCCL_NET_PLUGIN=other\nNCCL_PROFILER_PLUGIN=inspector"}}};
  const PluginSettings settings = machine.Choose();
  EXPECT_EQ(settings.net.value, "aws");
  EXPECT_EQ(settings.net.from, "/home/u/.nccl.conf");
  EXPECT_EQ(settings.profiler.beside, "inspector");
}

TEST(VendorSettings, ANamedFileTakesThePlaceOfTheHomeFolders) {
  const Machine machine{
      {{"HOME", "/home/u"}, {"NCCL_CONF_FILE", "/job/nccl.conf"}},
      {{"/home/u/.nccl.conf", "NCCL_NET_PLUGIN=home"}, {"/job/nccl.conf", "NCCL_PROFILER_PLUGIN=job"}}};
  EXPECT_TRUE(machine.Choose().net.ours);
  EXPECT_EQ(machine.Choose().profiler.beside, "job");
}

TEST(VendorSettings, NamesThatOnlyBeginAlikeAreOthers) {
  const Machine machine{{}, {{"/etc/nccl.conf", "NCCL_NET_PLUGIN_REF_COUNT=1\nXNCCL_NET_PLUGIN=x\n"}}};
  EXPECT_TRUE(machine.Choose().net.ours);
}

TEST(VendorSettings, TheLineSaysWhatIsSeen) {
  const PluginSettings ours = {{kOurs, true, "", ""}, {kOurs, true, "", ""}, {}};
  EXPECT_THAT(Describe(ours, 22809, KernelTimes::kProfiler), HasSubstr("kernel times: from NCCL"));
  EXPECT_THAT(Describe(ours, 22605, KernelTimes::kProfiler), HasSubstr("when we hear of them"));
  EXPECT_THAT(Describe(ours, 22403, KernelTimes::kProfiler),
              testing::AllOf(HasSubstr("from 2.26 on only"), HasSubstr("not their kernels")));
  EXPECT_THAT(Describe(ours, 22403, KernelTimes::kStamps), HasSubstr("from stamps of ours"));
  EXPECT_THAT(Describe(ours, 22809, KernelTimes::kNone), HasSubstr("not their kernels"));
  EXPECT_THAT(Describe({{"ofi", false, "the environment", ""}, {"none", false, "the environment", ""}, {}},
                       22809, KernelTimes::kProfiler),
              testing::AllOf(HasSubstr("net plugin: ofi (the environment)"), HasSubstr("calls are seen")));
}

TEST(VendorSettings, OneSourceOfKernelTimes) {
  EXPECT_EQ(ChooseKernelTimes("auto", 22700), KernelTimes::kProfiler);
  EXPECT_EQ(ChooseKernelTimes("auto", 22605), KernelTimes::kStamps);
  EXPECT_EQ(ChooseKernelTimes("profiler", 22605), KernelTimes::kProfiler);
  EXPECT_EQ(ChooseKernelTimes("stamp", 23203), KernelTimes::kStamps);
  EXPECT_EQ(ChooseKernelTimes("off", 22403), KernelTimes::kNone);
}

class VendorPlaces : public ::testing::Test {
 protected:
  VendorPlaces() {
    char name[] = "/tmp/c4-places-XXXXXX";
    root_ = mkdtemp(name);
    places_.root = root_ + "/system";
    places_.own_path = Make("/image/lib/libnccl.so.2");
    places_.environment = [this](const char* variable) {
      const auto found = environment_.find(variable);
      return found == environment_.end() ? nullptr : found->second.c_str();
    };
  }
  ~VendorPlaces() override { std::filesystem::remove_all(root_); }

  std::string Make(const std::string& path) {
    std::filesystem::create_directories(std::filesystem::path(root_ + path).parent_path());
    std::ofstream(root_ + path) << path;
    return root_ + path;
  }
  std::vector<std::string> Found() {
    std::vector<std::string> paths;
    for (const Candidate& candidate : Candidates(places_)) paths.push_back(candidate.path);
    return paths;
  }

  std::string root_;
  std::map<std::string, std::string> environment_;
  Places places_;
};

TEST_F(VendorPlaces, NothingIsFoundWhereNothingIs) {
  EXPECT_THAT(Found(), IsEmpty());
}

TEST_F(VendorPlaces, OrderOfThePlaces) {
  const std::string system = Make("/system/usr/lib/x86_64-linux-gnu/libnccl.so.2");
  const std::string conda = Make("/conda/lib/libnccl.so.2");
  const std::string wheel = Make("/env/site-packages/nvidia/nccl/lib/libnccl.so.2");
  const std::string beside = Make(std::string("/image/lib/") + kInstalledName);
  environment_["CONDA_PREFIX"] = root_ + "/conda";
  places_.loaded = {root_ + "/env/site-packages/torch/lib/libtorch_cuda.so"};
  EXPECT_THAT(Found(), ElementsAre(beside, wheel, conda, system));
}

TEST_F(VendorPlaces, AWishIsTheOnlyPlace) {
  Make("/system/usr/lib64/libnccl.so.2");
  places_.wanted = "/nowhere";
  EXPECT_THAT(Found(), ElementsAre("/nowhere"));
}

TEST_F(VendorPlaces, NeverOurselvesUnderAnyName) {
  std::filesystem::create_directories(root_ + "/system/usr/lib64");
  std::filesystem::create_symlink(places_.own_path, root_ + "/system/usr/lib64/libnccl.so.2");
  EXPECT_THAT(Found(), IsEmpty());
}

// As `c4 install --undo` leaves it to a process that has loaded us before.
TEST_F(VendorPlaces, WhatWasPutInOurPlaceSinceIsNotUs) {
  places_.own_file = {1, 1};
  EXPECT_THAT(Found(), ElementsAre(root_ + "/image/lib/./libnccl.so.2"));
  const std::string beside = Make(std::string("/image/lib/") + kInstalledName);
  EXPECT_THAT(Found(), ElementsAre(beside, root_ + "/image/lib/./libnccl.so.2"));
}

TEST_F(VendorPlaces, EachFileOnce) {
  const std::string wheel = Make("/env/site-packages/nvidia/nccl/lib/libnccl.so.2");
  places_.loaded = {root_ + "/env/site-packages/torch/lib/a.so", root_ + "/env/site-packages/torch/lib/b.so"};
  std::filesystem::create_directories(root_ + "/system/usr/lib64");
  std::filesystem::create_symlink(wheel, root_ + "/system/usr/lib64/libnccl.so.2");
  EXPECT_THAT(Found(), ElementsAre(wheel));
}

TEST_F(VendorPlaces, OursInAWheelsPlaceFindsWhatWasKeptBeside) {
  places_.own_path = Make("/env/site-packages/nvidia/nccl/lib/libnccl.so.2");
  const std::string kept = Make(std::string("/env/site-packages/nvidia/nccl/lib/") + kInstalledName);
  EXPECT_THAT(Found(), ElementsAre(kept));
}

}  // namespace
}  // namespace c4::vendor
