// With programs that play Python: this machine need not have one.
#include "cli/install/python_nccl.h"

#include <filesystem>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/install/own_library.h"
#include "tests/unit/cli/install/install_folder.h"

namespace c4::cli {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class PythonNcclTest : public ::testing::Test {
 protected:
  StatusOr<std::string> Ask(const std::string& script) {
    folder_.Write("python", "#!/bin/sh\n" + script);
    std::filesystem::permissions(folder_.path("python"), std::filesystem::perms::owner_all);
    return PythonNcclFolder(folder_.path("python"));
  }
  std::string Fault(const std::string& script) { return std::string(Ask(script).status().message()); }

  VendorFolder folder_;
};

TEST_F(PythonNcclTest, TheAnswerIsFoundAmongOtherWords) {
  const StatusOr<std::string> folder = Ask(
      "echo hello from sitecustomize; echo 'c4-python:/x/python (3.11.2)'; echo c4-nccl-folder:/x/nccl/lib");
  ASSERT_TRUE(folder.ok()) << folder.status();
  EXPECT_EQ(*folder, "/x/nccl/lib");
}

TEST_F(PythonNcclTest, FaultsSayWhatToDo) {
  EXPECT_THAT(Fault("echo 'c4-python:/x/python (3.11.2)'"),
              AllOf(HasSubstr("/x/python (3.11.2) has no nvidia/nccl"), HasSubstr("--python PATH")));
  EXPECT_THAT(Fault("echo SyntaxError: no Python; exit 3"),
              AllOf(HasSubstr("exited with code 3"), HasSubstr("SyntaxError: no Python")));
  EXPECT_THAT(std::string(PythonNcclFolder(folder_.path("nowhere")).status().message()),
              AllOf(HasSubstr("nowhere"), HasSubstr("--python")));
  EXPECT_THAT(std::string(PythonNcclFolder(folder_.path("neighbour.txt")).status().message()),
              HasSubstr("not an executable file"));
}

TEST(OwnLibraryTest, InAFolderOfOursFirst) {
  EXPECT_THAT(
      OwnLibraryPlaces("/usr/bin"),
      ::testing::ElementsAre("/usr/bin/../lib/c4/libnccl.so.2", "/usr/bin/../portable/lib/libnccl.so.2",
                             "/usr/bin/../lib/libnccl.so.2", "/usr/bin/libnccl.so.2"));
}

}  // namespace
}  // namespace c4::cli
