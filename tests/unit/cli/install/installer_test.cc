// Swapping and putting back, with doubles of the vendor's library and of ours (once with the built one);
// killed after each step.
#include "cli/install/installer.h"

#include <csignal>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/install/library_probe.h"
#include "tests/unit/cli/install/install_folder.h"

namespace c4::cli {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

InstallRequest Request(const VendorFolder& folder) {
  return {.folder = folder.path(), .library = OurLibrary()};
}
InstallResult Installed(const InstallRequest& request) {
  const StatusOr<InstallOutcome> outcome = Install(request);
  EXPECT_TRUE(outcome.ok()) << outcome.status();
  return outcome.ok() ? outcome->result : InstallResult::kNothingToUndo;
}
InstallResult Undone(const InstallRequest& request) {
  const StatusOr<InstallOutcome> outcome = UndoInstall(request);
  EXPECT_TRUE(outcome.ok()) << outcome.status();
  return outcome.ok() ? outcome->result : InstallResult::kInstalled;
}
std::string Refusal(const StatusOr<InstallOutcome>& outcome) {
  EXPECT_FALSE(outcome.ok());
  return std::string(outcome.status().message());
}

// What a job needs at any moment: a library that works and has NCCL's version.
void ExpectUsable(const VendorFolder& folder) {
  const StatusOr<LibraryProbe> probe = ProbeLibrary({.library = folder.path(kLibraryName)});
  ASSERT_TRUE(probe.ok()) << probe.status();
  EXPECT_EQ(probe->version, 22809);
  if (!probe->ours) return;
  EXPECT_EQ(fs::path(probe->vendor_path).parent_path(), fs::canonical(folder.path()));
}

// The kinds of original, and of file system.
struct Kind {
  bool link;
  bool without_hard_links;
};
class InstallerStepsTest : public ::testing::TestWithParam<Kind> {
 protected:
  InstallRequest Request(const VendorFolder& folder) const {
    InstallRequest request = cli::Request(folder);
    request.library = Double("fake_c4");
    request.without_hard_links = GetParam().without_hard_links;
    return request;
  }
  // Does `work` in a process that ends after step number `step`; false when there are fewer.
  static bool KilledAfter(int step, InstallRequest request,
                          StatusOr<InstallOutcome> (*work)(const InstallRequest&)) {
    const pid_t pid = fork();
    if (pid == 0) {
      request.after_step = [&step](const std::string&) {
        if (step-- == 0) raise(SIGKILL);
      };
      _exit(work(request).ok() ? 0 : 1);
    }
    int status = 0;
    waitpid(pid, &status, 0);
    EXPECT_TRUE(WIFSIGNALED(status) || WEXITSTATUS(status) == 0);
    return WIFSIGNALED(status);
  }
};

TEST_P(InstallerStepsTest, ThereAndBack) {
  const VendorFolder folder(GetParam().link);
  const auto before = folder.Snapshot();
  const InstallRequest request = Request(folder);
  EXPECT_EQ(Installed(request), InstallResult::kInstalled);
  ExpectUsable(folder);
  const auto installed = folder.Snapshot();
  EXPECT_EQ(installed.size(), before.size() + 2);
  EXPECT_EQ(installed.at(kInstalledName), before.at(kLibraryName));
  EXPECT_EQ(Installed(request), InstallResult::kAlready);
  EXPECT_EQ(folder.Snapshot(), installed);
  EXPECT_EQ(Undone(request), InstallResult::kUndone);
  EXPECT_EQ(folder.Snapshot(), before);
  EXPECT_EQ(Undone(request), InstallResult::kNothingToUndo);
  EXPECT_EQ(folder.Snapshot(), before);
}

TEST_P(InstallerStepsTest, KilledWhileInstalling) {
  for (int step = 0;; ++step) {
    SCOPED_TRACE(step);
    const VendorFolder folder(GetParam().link);
    const auto before = folder.Snapshot();
    if (!KilledAfter(step, Request(folder), &Install)) {
      EXPECT_GE(step, 4);
      return;
    }
    ExpectUsable(folder);
    EXPECT_NE(Undone(Request(folder)), InstallResult::kInstalled);
    EXPECT_EQ(folder.Snapshot(), before);
    EXPECT_TRUE(KilledAfter(step, Request(folder), &Install));
    EXPECT_NE(Installed(Request(folder)), InstallResult::kNothingToUndo);
    ExpectUsable(folder);
    EXPECT_EQ(folder.Snapshot().size(), before.size() + 2);
    EXPECT_EQ(Undone(Request(folder)), InstallResult::kUndone);
    EXPECT_EQ(folder.Snapshot(), before);
  }
}

TEST_P(InstallerStepsTest, KilledWhilePuttingBack) {
  for (int step = 0;; ++step) {
    SCOPED_TRACE(step);
    const VendorFolder folder(GetParam().link);
    const auto before = folder.Snapshot();
    EXPECT_EQ(Installed(Request(folder)), InstallResult::kInstalled);
    if (!KilledAfter(step, Request(folder), &UndoInstall)) {
      EXPECT_GE(step, 2);
      return;
    }
    ExpectUsable(folder);
    EXPECT_NE(Undone(Request(folder)), InstallResult::kInstalled);
    EXPECT_EQ(folder.Snapshot(), before);
  }
}

TEST_P(InstallerStepsTest, AnOlderOneIsUpdatedAlsoWhenKilled) {
  for (int step = 0;; ++step) {
    SCOPED_TRACE(step);
    const VendorFolder folder(GetParam().link);
    const auto before = folder.Snapshot();
    InstallRequest older = Request(folder);
    const VendorFolder elsewhere;
    elsewhere.Copy(older.library, "older.so");
    std::ofstream(elsewhere.path("older.so"), std::ios::app) << "older";
    older.library = elsewhere.path("older.so");
    EXPECT_EQ(Installed(older), InstallResult::kInstalled);
    const bool killed = KilledAfter(step, Request(folder), &Install);
    ExpectUsable(folder);
    const InstallResult again = Installed(Request(folder));
    EXPECT_TRUE(again == InstallResult::kUpdated || again == InstallResult::kAlready);
    EXPECT_EQ(folder.Snapshot().size(), before.size() + 2);
    EXPECT_EQ(Undone(Request(folder)), InstallResult::kUndone);
    EXPECT_EQ(folder.Snapshot(), before);
    if (!killed) return;
  }
}

TEST(InstallerTest, TheRealOneThereAndBack) {
  const VendorFolder folder;
  const auto before = folder.Snapshot();
  EXPECT_EQ(Installed(Request(folder)), InstallResult::kInstalled);
  ExpectUsable(folder);
  EXPECT_EQ(Installed(Request(folder)), InstallResult::kAlready);
  EXPECT_EQ(Undone(Request(folder)), InstallResult::kUndone);
  EXPECT_EQ(folder.Snapshot(), before);
}

INSTANTIATE_TEST_SUITE_P(Kinds, InstallerStepsTest,
                         ::testing::Values(Kind{false, false}, Kind{true, false}, Kind{false, true},
                                           Kind{true, true}),
                         [](const auto& kind) {
                           return std::string(kind.param.link ? "Link" : "File") +
                                  (kind.param.without_hard_links ? "Copied" : "Linked");
                         });

TEST(InstallerRefusalTest, WhatIsNoNcclForThisMachine) {
  constexpr std::streamoff kClass = 4, kMachine = 18;
  const VendorFolder folder;
  const auto refused = [&folder] {
    const auto before = folder.Snapshot();
    std::string sentence = Refusal(Install(Request(folder)));
    EXPECT_EQ(folder.Snapshot(), before);
    return sentence;
  };
  folder.Poke(kLibraryName, kClass, 1);
  EXPECT_THAT(refused(), HasSubstr("is a 32-bit library"));
  folder.Poke(kLibraryName, kClass, 2);
  folder.Poke(kLibraryName, kMachine, static_cast<char>(21));
  EXPECT_THAT(refused(), AllOf(HasSubstr("machine 21"), HasSubstr("not for this machine")));
  folder.Write(kLibraryName, "some text");
  EXPECT_THAT(refused(), HasSubstr("no ELF file"));
  folder.Write(kLibraryName, "");
  EXPECT_THAT(refused(), HasSubstr("no ELF file"));
  folder.Copy(Double("fake_nccl_2.23.4"), kLibraryName);
  EXPECT_THAT(refused(), AllOf(HasSubstr("NCCL 2.23.4"), HasSubstr("2.24.0 or later")));
  fs::remove(folder.path(kLibraryName));
  EXPECT_THAT(refused(), AllOf(HasSubstr("has no libnccl.so.2"), HasSubstr("--pip")));
  fs::create_symlink("nowhere", folder.path(kLibraryName));
  EXPECT_THAT(refused(), HasSubstr("cannot be opened"));
  fs::remove(folder.path(kLibraryName));
  fs::create_directory(folder.path(kLibraryName));
  EXPECT_THAT(Refusal(Install(Request(folder))), HasSubstr("is a directory"));
}

TEST(InstallerRefusalTest, FoldersThatAreNone) {
  const VendorFolder folder;
  InstallRequest request = Request(folder);
  request.folder = folder.path(kLibraryName);
  EXPECT_THAT(Refusal(Install(request)), HasSubstr("is no folder"));
  request.folder = folder.path("nowhere");
  EXPECT_THAT(Refusal(Install(request)), AllOf(HasSubstr("nowhere"), HasSubstr("No such file")));
  EXPECT_THAT(Refusal(UndoInstall(request)), HasSubstr("nowhere"));
}

TEST(InstallerRefusalTest, ALibraryThatIsNotOurs) {
  const VendorFolder folder;
  const auto before = folder.Snapshot();
  InstallRequest request = Request(folder);
  request.library = Double("fake_nccl_2.28.9");
  EXPECT_THAT(Refusal(Install(request)), AllOf(HasSubstr("is not C4's library"), HasSubstr("--library")));
  request.library = folder.path("nowhere");
  EXPECT_THAT(Refusal(Install(request)), HasSubstr("nowhere"));
  request.library = folder.path();
  EXPECT_THAT(Refusal(Install(request)), HasSubstr("is a directory"));
  EXPECT_EQ(folder.Snapshot(), before);
}

// A wheel upgraded over us; the whole of the sentences is in installation_test.cc.
TEST(InstallerRefusalTest, WhatItDidNotLeave) {
  const VendorFolder folder;
  EXPECT_EQ(Installed(Request(folder)), InstallResult::kInstalled);
  fs::remove(folder.path(kLibraryName));
  folder.Copy(Double("fake_nccl_2.32.3"), kLibraryName);
  const auto upgraded = folder.Snapshot();
  EXPECT_THAT(Refusal(Install(Request(folder))), HasSubstr("upgraded"));
  EXPECT_THAT(Refusal(UndoInstall(Request(folder))), HasSubstr("upgraded"));
  EXPECT_EQ(folder.Snapshot(), upgraded);
  // As the sentence says.
  fs::remove(folder.path(kInstalledName));
  fs::remove(folder.path(kRecordName));
  EXPECT_EQ(Installed(Request(folder)), InstallResult::kInstalled);
  folder.Write(kRecordName, "{");
  EXPECT_THAT(Refusal(UndoInstall(Request(folder))), HasSubstr("is not what c4 install wrote"));
}

TEST(InstallerTest, WhatDoesNotWorkIsTakenOutAgain) {
  const VendorFolder folder(true);
  const auto before = folder.Snapshot();
  InstallRequest request = Request(folder);
  request.library = Double("fake_c4_alone");
  EXPECT_THAT(Refusal(Install(request)),
              AllOf(HasSubstr("no library of the vendor's"), HasSubstr("The original is back")));
  EXPECT_EQ(folder.Snapshot(), before);
}

TEST(InstallerTest, AFullDiskLeavesWhatWasThere) {
  const VendorFolder folder;
  const auto before = folder.Snapshot();
  const rlimit none = {4096, RLIM_INFINITY};
  const rlimit unlimited = {RLIM_INFINITY, RLIM_INFINITY};
  signal(SIGXFSZ, SIG_IGN);
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &none), 0);
  const StatusOr<InstallOutcome> outcome = Install(Request(folder));
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &unlimited), 0);
  EXPECT_THAT(Refusal(outcome), HasSubstr("cannot write"));
  EXPECT_EQ(folder.Snapshot(), before);
}

TEST(InstallerTest, OneAtATime) {
  const VendorFolder folder;
  InstallRequest request = Request(folder);
  std::string second;
  request.after_step = [&](const std::string&) { second = Refusal(Install(Request(folder))); };
  EXPECT_EQ(Installed(request), InstallResult::kInstalled);
  EXPECT_THAT(second, HasSubstr("another c4 install is at work"));
}

}  // namespace
}  // namespace c4::cli
