// What is said of libraries, plugins and settings; and the reading of those of this build.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/doctor/library_facts.h"
#include "tests/unit/cli/install/install_folder.h"

namespace c4::cli {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

LibraryFacts Good() {
  LibraryFacts facts;
  facts.loader = {"/nccl/lib/libnccl.so.2", true};
  facts.python = {"/nccl/lib/libnccl.so.2", true};
  facts.has_gpu = true;
  facts.own_path = "/nccl/lib/libnccl.so.2";
  facts.probe = LibraryProbe{.path = facts.own_path,
                             .ours = true,
                             .version = 22809,
                             .vendor_path = "/nccl/lib/libnccl-vendor.so.2",
                             .net_plugin = facts.own_path,
                             .profiler_plugin = facts.own_path,
                             .log = {"C4, engine vendor: NCCL 2.28.9, /v (beside us); net plugin: ours"}};
  facts.vendor_names = 105;
  facts.net = {{8, 9, 10, 11}, {6, 7, 8, 9, 10, 11, 12}};
  facts.profiler = {{3, 4, 5}, {1, 2, 3, 4, 5}};
  return facts;
}

Findings Judged(const LibraryFacts& facts) {
  Findings findings = JudgeLibraries(facts);
  for (const Finding& finding : findings) {
    EXPECT_FALSE(finding.grade == Grade::kProblem && finding.advice.empty()) << finding.text;
    EXPECT_EQ(finding.text.find('\n'), std::string::npos) << finding.text;
  }
  return findings;
}
// The worst of that subject.
Finding About(const LibraryFacts& facts, const std::string& subject) {
  Finding worst;
  for (const Finding& finding : Judged(facts)) {
    if (finding.subject == subject && (worst.subject.empty() || finding.grade > worst.grade)) worst = finding;
  }
  return worst;
}

TEST(JudgeLibrariesTest, AllGood) {
  for (const Finding& finding : Judged(Good())) EXPECT_EQ(finding.grade, Grade::kOk) << finding.text;
  EXPECT_EQ(About(Good(), "engine").text, "vendor: NCCL 2.28.9, /v (beside us)");
  EXPECT_THAT(About(Good(), "net").text, HasSubstr("v11 (NCCL knows v6 to v12"));
}

TEST(JudgeLibrariesTest, WhoGetsWhat) {
  LibraryFacts facts = Good();
  facts.python->ours = false;
  EXPECT_EQ(About(facts, "python").grade, Grade::kProblem);
  EXPECT_EQ(About(facts, "python").advice, "c4 install /nccl/lib");
  facts.preloaded = true;
  EXPECT_EQ(About(facts, "python").grade, Grade::kOk);
  facts = Good();
  facts.loader = {"/usr/lib/libnccl.so.2", false};
  EXPECT_EQ(About(facts, "library").grade, Grade::kNote);
  facts.python.reset();
  EXPECT_EQ(About(facts, "library").grade, Grade::kProblem);
  EXPECT_EQ(About(facts, "library").advice, "c4 install /usr/lib");
  facts.loader.reset();
  EXPECT_THAT(About(facts, "library").text, HasSubstr("neither"));
  facts.loader_fault = "libnccl.so.2 cannot be used: wrong ELF class";
  EXPECT_EQ(About(facts, "library").text, facts.loader_fault);
  facts.asked = {"/a/libnccl.so.2", false};
  EXPECT_THAT(About(facts, "library").text, HasSubstr("/a/libnccl.so.2 is not C4's"));
  facts.own_path = "";
  EXPECT_EQ(About(facts, "engine").grade, Grade::kProblem);
}

TEST(JudgeLibrariesTest, WhatSomebodyChangedSinceTheInstall) {
  LibraryFacts facts = Good();
  facts.install_faults = {"the original is gone. Reinstall it, then run c4 install again"};
  EXPECT_EQ(About(facts, "install").grade, Grade::kProblem);
  EXPECT_EQ(About(facts, "install").text, "the original is gone");
  EXPECT_EQ(About(facts, "install").advice, "Reinstall it, then run c4 install again");
  facts.install_faults = {"/x is no record"};
  EXPECT_THAT(About(facts, "install").advice, HasSubstr("docs/install.md"));
}

TEST(JudgeLibrariesTest, EnginesThatAreNotTheVendors) {
  LibraryFacts facts = Good();
  facts.probe->vendor_path = "";
  facts.probe->log = {"passed over: /usr/lib/libnccl.so.2 (of the system) is NCCL 2.18.3: C4 needs 2.24.0"};
  EXPECT_EQ(About(facts, "engine").grade, Grade::kProblem);
  EXPECT_THAT(About(facts, "engine").text, HasSubstr("2.18.3"));
  facts.has_gpu = false;
  EXPECT_EQ(About(facts, "engine").grade, Grade::kNote);
  facts.engine = "vendor";
  EXPECT_EQ(About(facts, "engine").grade, Grade::kProblem);
  facts.wanted = "/x";
  facts.wanted_fault = "it is a poem";
  EXPECT_THAT(About(facts, "engine").text, HasSubstr("C4_VENDOR_LIBRARY=/x will not do: it is a poem"));
  facts.engine = "host";
  EXPECT_EQ(About(facts, "engine").grade, Grade::kNote);
  facts.probe.reset();
  facts.probe_fault = "GLIBC_2.36 not found";
  EXPECT_EQ(About(facts, "engine").text, "GLIBC_2.36 not found");
}

TEST(JudgeLibrariesTest, NamesAndPlugins) {
  LibraryFacts facts = Good();
  facts.missing_names = {"ncclA", "ncclB", "ncclC", "ncclD", "ncclE"};
  EXPECT_THAT(About(facts, "names").text, AllOf(HasSubstr("5 of NCCL 2.28.9"), HasSubstr("ncclD, …")));
  facts.net.theirs = {12, 13};
  EXPECT_EQ(About(facts, "net").grade, Grade::kProblem);
  facts.net.ours.clear();
  EXPECT_EQ(About(facts, "net").grade, Grade::kNote);
  facts.profiler.theirs.clear();
  EXPECT_THAT(About(facts, "profiler").text, HasSubstr("takes no such plugin"));
}

TEST(JudgeLibrariesTest, SettingsThatDisplaceUs) {
  LibraryFacts facts = Good();
  facts.profiler_setting = {"inspector", "the environment"};
  facts.probe->profiler_plugin = "inspector";
  EXPECT_EQ(About(facts, "settings").grade, Grade::kProblem);
  EXPECT_THAT(About(facts, "settings").text, HasSubstr("NCCL_PROFILER_PLUGIN=inspector (the environment)"));
  facts = Good();
  facts.net_setting = {"aws", "/etc/nccl.conf"};
  facts.probe->net_plugin = "";
  EXPECT_EQ(About(facts, "settings").grade, Grade::kNote);
  EXPECT_THAT(About(facts, "settings").text, HasSubstr("/etc/nccl.conf"));
  facts = Good();
  facts.probe->default_net = "/opt/cloud/libnccl-net.so";
  EXPECT_EQ(About(facts, "settings").grade, Grade::kNote);
  EXPECT_THAT(About(facts, "settings").text, HasSubstr("/opt/cloud/libnccl-net.so carries the traffic"));
  facts = Good();
  facts.net_wanted = "IB";
  EXPECT_EQ(About(facts, "settings").grade, Grade::kNote);
  facts.net_wanted = "c4";
  EXPECT_EQ(About(facts, "settings").grade, Grade::kOk);
  facts.plugins_off = true;
  EXPECT_EQ(About(facts, "settings").grade, Grade::kNote);
}

TEST(UsersSettingTest, InNcclsOrder) {
  std::map<std::string, std::string> variables = {{"HOME", "/home/me"}};
  std::map<std::string, std::string> files = {{"/etc/nccl.conf", "# X\nXX=no\nX=etc \r\n"}};
  const auto setting = [&] {
    return UsersSetting(
        "X", "/ours", [&](const std::string& name) { return variables[name]; },
        [&](const std::string& path) { return files[path]; });
  };
  EXPECT_EQ(setting().value, "etc");
  EXPECT_EQ(setting().from, "/etc/nccl.conf");
  files["/home/me/.nccl.conf"] = "X=home";
  EXPECT_EQ(setting().value, "home");
  variables["NCCL_CONF_FILE"] = "/named";
  EXPECT_EQ(setting().value, "etc");
  variables["X"] = "/ours";  // left by a parent
  EXPECT_EQ(setting().value, "etc");
  variables["X"] = "users";
  EXPECT_EQ(setting().from, "the environment");
}

TEST(ReadLibrariesTest, OursInFrontOfADouble) {
  const VendorFolder folder(false, Double("fake_nccl_2.32.3"));
  std::filesystem::rename(folder.path(kLibraryName), folder.path(kInstalledName));
  folder.Copy(OurLibrary(), kLibraryName);
  // As a user has it; the tests' environment asks for the host engine.
  // NOLINTBEGIN(concurrency-mt-unsafe)
  const char* const before = getenv("C4_ENGINE");
  const std::string engine = before == nullptr ? "" : before;
  unsetenv("C4_ENGINE");
  const LibraryFacts facts = ReadLibraries({.library = folder.path(kLibraryName), .has_gpu = true});
  if (!engine.empty()) setenv("C4_ENGINE", engine.c_str(), 1);
  // NOLINTEND(concurrency-mt-unsafe)
  ASSERT_TRUE(facts.probe.has_value()) << facts.probe_fault;
  EXPECT_TRUE(facts.asked->ours);
  EXPECT_EQ(facts.probe->version, 23203);
  EXPECT_GT(facts.vendor_names, 30);
  EXPECT_EQ(About(facts, "library").grade, Grade::kOk);
  EXPECT_THAT(About(facts, "engine").text, AllOf(HasSubstr("vendor: NCCL 2.32.3"), HasSubstr("beside us")));
  EXPECT_TRUE(facts.install_faults.empty());  // put there by hand: there is no record to compare with
  folder.Write(kRecordName, "{");
  EXPECT_EQ(ReadLibraries({.library = folder.path(kLibraryName)}).install_faults.size(), 1u);
}

}  // namespace
}  // namespace c4::cli
