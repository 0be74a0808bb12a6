// The built c4-install as a training image has it: what it needs, and that it installs, checks and puts back.
// C4_IMAGE_PROGRAM names another one than this build's (scripts/portable.sh: that for old systems, with
// C4_PORTABLE, and C4_LIBRARY for the library that belongs to it).
#include <filesystem>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/base/child.h"
#include "cli/base/memory_file.h"
#include "cli/base/plain_text.h"
#include "cli/install/elf_image.h"
#include "tests/unit/cli/install/install_folder.h"

namespace c4::cli {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

std::string Variable(const std::string& name, const std::string& otherwise) {
  return EnvironmentValue(OwnEnvironment(), name).value_or(otherwise);
}
std::string Program() {
  return Variable("C4_IMAGE_PROGRAM", BuildDir() + "/bin/c4-install");
}
std::string Library() {
  return Variable("C4_LIBRARY", OurLibrary());
}

struct Ran {
  int exit_code = -1;
  std::string text;  // both streams
};

Ran RunProgram(const std::string& program, const std::vector<std::string>& arguments,
               std::vector<std::string> environment = {"PATH=/usr/bin:/bin"}) {
  const MemoryFile out("c4-test");
  const StatusOr<pid_t> pid = StartProgram({.program = program,
                                            .arguments = arguments,
                                            .environment = std::move(environment),
                                            .stdout_fd = out.fd(),
                                            .stderr_fd = out.fd()});
  EXPECT_TRUE(pid.ok()) << pid.status();
  if (!pid.ok()) return {};
  const StatusOr<int> ended = ReapWithin(*pid, std::chrono::seconds(30));
  EXPECT_TRUE(ended.ok()) << ended.status();
  return {ended.ok() ? ExitCode(*ended) : -1, out.Text()};
}

TEST(ImageProgramTest, NeedsNothingButLibc) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer brings its own library";
#endif
  const ElfImage image = ElfImage::Read(Program());
  ASSERT_EQ(image.error, "");
  EXPECT_FALSE(image.needed.empty());
  for (const std::string& library : image.needed) {
    EXPECT_THAT(library,
                AnyOf(StartsWith("libc.so."), StartsWith("libm.so."), StartsWith("libdl.so."),
                      StartsWith("libpthread.so."), StartsWith("librt.so."), StartsWith("ld-linux")));
  }
  for (const std::string& version : image.versions) {
    EXPECT_THAT(version, StartsWith("GLIBC_"));
    if (Variable("C4_PORTABLE", "").empty()) continue;
    int minor = 0;
    ASSERT_EQ(sscanf(version.c_str(), "GLIBC_2.%d", &minor), 1) << version;
    EXPECT_LE(minor, 17) << version;
  }
}

TEST(ImageProgramTest, InstallsChecksAndPutsBack) {
  const VendorFolder folder;
  const auto before = folder.Snapshot();
  const Ran installed = RunProgram(Program(), {folder.path(), "--library", Library()});
  EXPECT_EQ(installed.exit_code, 0);
  EXPECT_THAT(installed.text, AllOf(StartsWith("installed: "), HasSubstr("NCCL 2.28.9")));
  const Ran checked = RunProgram(Program(), {"doctor", "--library", folder.path(kLibraryName)});
  EXPECT_EQ(checked.exit_code, 0);
  EXPECT_THAT(checked.text, AllOf(StartsWith("no problems"), HasSubstr("NCCL 2.28.9")));
  const Ran undone = RunProgram(Program(), {folder.path(), "--undo"});
  EXPECT_EQ(undone.exit_code, 0);
  EXPECT_THAT(undone.text, StartsWith("undone: "));
  EXPECT_EQ(folder.Snapshot(), before);
}

TEST(ImageProgramTest, FindsItsLibraryBesideItself) {
  const VendorFolder folder, image;
  fs::create_directories(image.path("bin"));
  fs::copy_file(Program(), image.path("bin/c4-install"));
  const Ran without = RunProgram(image.path("bin/c4-install"), {folder.path()});
  EXPECT_EQ(without.exit_code, 1);
  EXPECT_THAT(without.text, AllOf(StartsWith("c4-install: "), HasSubstr("is not beside this c4-install"),
                                  HasSubstr(image.path("bin")), HasSubstr("--library PATH")));
  for (const char* place : {"bin", "lib"}) {
    fs::create_directories(image.path(place));
    fs::copy_file(Library(), image.path(place + std::string("/libnccl.so.2")));
    const Ran installed = RunProgram(image.path("bin/c4-install"), {folder.path()});
    EXPECT_EQ(installed.exit_code, 0) << installed.text;
    EXPECT_EQ(RunProgram(Program(), {folder.path(), "--undo"}).exit_code, 0);
    fs::remove(image.path(place + std::string("/libnccl.so.2")));
  }
}

TEST(ImageProgramTest, NamesItselfAndNotTheCommandThatIsNotThere) {
  EXPECT_THAT(RunProgram(Program(), {"--version"}).text, StartsWith("c4-install "));
  const Ran help = RunProgram(Program(), {"--help"});
  EXPECT_EQ(help.exit_code, 0);
  EXPECT_THAT(help.text, AllOf(HasSubstr("usage: c4-install [OPTIONS] [DIR]"), HasSubstr("c4-install doctor"),
                               HasSubstr("c4-install env")));
  const Ran wrong = RunProgram(Program(), {"--no-such-option"});
  EXPECT_EQ(wrong.exit_code, 64);
  EXPECT_THAT(wrong.text, HasSubstr("Try `c4-install --help`"));
  EXPECT_THAT(RunProgram(Program(), {}).text,
              AllOf(StartsWith("c4-install: "), Not(HasSubstr("c4 install"))));
}

TEST(ImageProgramTest, ShowsTheSettingsThatAnImageHas) {
  const Ran shown = RunProgram(Program(), {"env"}, {"C4_ENGIN=host"});
  EXPECT_EQ(shown.exit_code, 0);
  EXPECT_THAT(shown.text,
              AllOf(HasSubstr("C4_ENGINE "), HasSubstr("did you mean C4_ENGINE?"), Not(HasSubstr("C4A_"))));
}

}  // namespace
}  // namespace c4::cli
