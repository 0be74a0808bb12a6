// The small parts that c4-install has of its own, because it links nothing but libc.
#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "absl/strings/numbers.h"
#include "cli/base/absl_status.h"
#include "cli/base/child.h"
#include "cli/base/plain_file.h"
#include "cli/base/plain_text.h"
#include "cli/doctor/image_check.h"
#include "tests/unit/ccl/temp_dir.h"

namespace c4::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(StatusOrTest, AValueThatIsNothingIsAValue) {
  const StatusOr<std::optional<int>> nothing = std::nullopt;
  ASSERT_TRUE(nothing.ok());
  EXPECT_FALSE(nothing->has_value());
  const StatusOr<std::optional<int>> failed = NotFoundError("there is none");
  EXPECT_FALSE(failed.ok());
}

TEST(StatusOrTest, TheCodesAreAbseils) {
  for (const int error : {ENOENT, EACCES, EINVAL, EAGAIN, ETIMEDOUT, EIO, EBUSY}) {
    const Status status = ErrnoStatus(error, "cannot");
    const absl::Status theirs = ToAbsl(status);
    EXPECT_EQ(theirs.message(), status.message());
    EXPECT_EQ(static_cast<int>(theirs.code()), static_cast<int>(status.code()));
  }
  EXPECT_TRUE(absl::IsNotFound(ToAbsl(ErrnoStatus(ENOENT, "cannot"))));
  EXPECT_TRUE(absl::IsPermissionDenied(ToAbsl(ErrnoStatus(EACCES, "cannot"))));
  EXPECT_TRUE(absl::IsInternal(ToAbsl(ErrnoStatus(EIO, "cannot"))));
  EXPECT_EQ(*ToAbsl(StatusOr<std::string>("text")), "text");
}

TEST(PlainTextTest, TogetherAndApart) {
  EXPECT_EQ(Cat("a ", 7, " ", 0.25, " ", std::string("b"), size_t{9}), "a 7 0.25 b9");
  EXPECT_EQ(Join({"a", "b", "a"}, ", "), "a, b, a");
  EXPECT_EQ(Join({}, ", "), "");
  EXPECT_THAT(Split("a:b::", ":"), ElementsAre("a", "b", "", ""));
  EXPECT_THAT(Split("", ":"), ElementsAre(""));
  EXPECT_THAT(Words(" a: b", ": "), ElementsAre("a", "b"));
  EXPECT_EQ(Replaced("a|b|", "|", "\\|"), "a\\|b\\|");
  EXPECT_EQ(Padded("ab", 4), "ab  ");
  EXPECT_EQ(Padded("abcde", 4), "abcde");
}

TEST(PlainTextTest, FlagsAreWhatTheDaemonsTakeForFlags) {
  const Knob flag = {"F", "flag", "false", "true|false", "help"};
  for (const char* word :
       {"true", "TRUE", "t", "yes", "Y", "1", "false", "f", "no", "n", "0", "on", "", "2"}) {
    bool ignored = false;
    EXPECT_EQ(!ValueFault(flag, word).has_value(), absl::SimpleAtob(word, &ignored)) << word;
  }
}

TEST(PlainFileTest, WritesWholeFilesAndReadsSmallOnes) {
  const test::TempDir folder;
  const std::string path = folder.path() + "/file";
  ASSERT_TRUE(WriteFileAtomically(path, "some text", 0640).ok());
  struct stat status {};
  ASSERT_EQ(stat(path.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 07777U, 0640U);
  const StatusOr<std::string> text = ReadSmallFile(path, 9, Links::kRefuse);
  ASSERT_TRUE(text.ok()) << text.status();
  EXPECT_EQ(*text, "some text");
  EXPECT_THAT(ReadSmallFile(path, 8, Links::kRefuse).status().message(), HasSubstr("longer than 8 bytes"));
  std::filesystem::create_symlink("file", folder.path() + "/link");
  EXPECT_FALSE(ReadSmallFile(folder.path() + "/link", 9, Links::kRefuse).ok());
  EXPECT_TRUE(ReadSmallFile(folder.path() + "/link", 9, Links::kFollow).ok());
  EXPECT_TRUE(IsNotFound(ReadSmallFile(folder.path() + "/none", 9, Links::kFollow).status()));
  EXPECT_THAT(WriteFileAtomically(folder.path() + "/no/file", "", 0600).message(), HasSubstr("beside"));
}

TEST(ReapWithinTest, WaitsAndEndsWhatDoesNotEnd) {
  const StatusOr<pid_t> quick = StartProgram({"sh", {"-c", "exit 3"}, OwnEnvironment()});
  ASSERT_TRUE(quick.ok()) << quick.status();
  const StatusOr<int> ended = ReapWithin(*quick, std::chrono::seconds(20));
  ASSERT_TRUE(ended.ok()) << ended.status();
  EXPECT_EQ(ExitCode(*ended), 3);
  const StatusOr<pid_t> slow = StartProgram({"sleep", {"60"}, OwnEnvironment()});
  ASSERT_TRUE(slow.ok()) << slow.status();
  const Status status = ReapWithin(*slow, std::chrono::milliseconds(10)).status();
  EXPECT_EQ(status.code(), StatusCode::kDeadlineExceeded);
  EXPECT_EQ(kill(*slow, 0), -1) << "it is still there";
}

TEST(SignalNameTest, IsTheCLibrarys) {
  for (int signal = 1; signal < 32; ++signal) {
    EXPECT_EQ(SignalName(signal), std::string("SIG") + sigabbrev_np(signal));
  }
  EXPECT_EQ(SignalName(0), "signal 0");
  EXPECT_EQ(SignalName(40), "signal 40");
}

TEST(JudgeKnobsTest, SaysWhatIsRefusedAndWhatNothingReads) {
  const Findings findings = JudgeKnobs(ImageKnobTables(), {"C4_ENGINE=gpu", "C4_ENGIN=host", "C4A_LOG=1"});
  ASSERT_EQ(findings.size(), 2U);
  EXPECT_EQ(findings[0].grade, Grade::kNote);
  EXPECT_EQ(findings[0].advice, "is C4_ENGINE meant?");
  EXPECT_EQ(findings[1].grade, Grade::kProblem);
  EXPECT_THAT(findings[1].text, HasSubstr("C4_ENGINE=gpu is none of"));
  EXPECT_THAT(findings[1].advice, HasSubstr("the default holds"));
}

}  // namespace
}  // namespace c4::cli
