// What is found in a folder, judged.
#include "cli/install/installation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace c4::cli {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

KeptFile File(const std::string& sha256) {
  return {.sha256 = sha256, .size_bytes = 7, .mode = 0644, .modified_ns = 1'600'000'000'123'456'789};
}
KeptFile Link(const std::string& target, const std::string& sha256) {
  KeptFile link = File(sha256);
  link.is_link = true;
  link.link_target = target;
  return link;
}

class JudgeTest : public ::testing::Test {
 protected:
  JudgeTest() {
    folder_.path = "/lib";
    folder_.library = File("ours");
    folder_.library_is_ours = true;
    folder_.original = File("theirs");
    folder_.record = InstallRecord{File("theirs"), "2.28.9", "ours", "0.1.0"};
  }
  void Vendor(const KeptFile& file) {
    folder_.library = file;
    folder_.library_is_ours = false;
  }
  Standing Good() {
    const StatusOr<Standing> standing = Judge(folder_);
    EXPECT_TRUE(standing.ok()) << standing.status();
    return standing.ok() ? *standing : Standing::kUntouched;
  }
  std::string Refusal() {
    const Status status = Judge(folder_).status();
    EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition) << status;
    return std::string(status.message());
  }

  InstallFolder folder_;
};

TEST_F(JudgeTest, KnowsWhatItLeft) {
  EXPECT_EQ(Good(), Standing::kInstalled);
  Vendor(File("theirs"));
  EXPECT_EQ(Good(), Standing::kBegun);  // killed before the swap
  folder_.original.reset();
  EXPECT_EQ(Good(), Standing::kBegun);  // killed before the original was kept, or after it was put back
  folder_.record.reset();
  EXPECT_EQ(Good(), Standing::kUntouched);
}

TEST_F(JudgeTest, LinksAreTheSameByWhereTheyLead) {
  folder_.original = Link("libnccl.so.2.28.9", "theirs");
  folder_.record->original = Link("libnccl.so.2.28.9", "theirs");
  EXPECT_EQ(Good(), Standing::kInstalled);
  folder_.original->sha256 = "";
  EXPECT_THAT(Refusal(), AllOf(HasSubstr("libnccl.so.2.28.9, which is gone"), HasSubstr("einstall")));
  folder_.original = File("theirs");
  EXPECT_THAT(Refusal(), HasSubstr("is not the NCCL 2.28.9"));
}

TEST_F(JudgeTest, NoLibrary) {
  folder_.library.reset();
  EXPECT_THAT(Refusal(),
              AllOf(HasSubstr("removed the package"), HasSubstr("rm /lib/libnccl-vendor.so.2 /lib/")));
  folder_.original.reset();
  folder_.record.reset();
  EXPECT_EQ(Judge(folder_).status().code(), StatusCode::kNotFound);
}

TEST_F(JudgeTest, SomebodyUpgradedOverUs) {
  Vendor(File("newer"));
  EXPECT_THAT(Refusal(),
              AllOf(HasSubstr("upgraded"), HasSubstr("2.28.9"), HasSubstr("rm /lib/libnccl-vendor.so.2")));
}

TEST_F(JudgeTest, TheOriginalIsGoneOrAnother) {
  folder_.original = File("another");
  EXPECT_THAT(Refusal(), HasSubstr("is not the NCCL 2.28.9"));
  folder_.original.reset();
  EXPECT_THAT(Refusal(), AllOf(HasSubstr("is gone"), HasSubstr("2.28.9"), HasSubstr("--force-reinstall")));
}

TEST_F(JudgeTest, NoRecord) {
  folder_.record.reset();
  EXPECT_THAT(Refusal(), HasSubstr("mv /lib/libnccl-vendor.so.2 /lib/libnccl.so.2"));
  folder_.original.reset();
  EXPECT_THAT(Refusal(), HasSubstr("did not put it there"));
  folder_.original = File("somebody's");
  Vendor(File("theirs"));
  EXPECT_THAT(Refusal(), HasSubstr("move it away"));
}

TEST(InstallRecordTest, IsReadAsWritten) {
  const InstallRecord record = {Link("libnccl.so.2.28.9", "abc"), "2.28.9", "def", "0.1.0"};
  const StatusOr<InstallRecord> read = ParseRecord(RecordText(record));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_TRUE(read->original.is_link);
  EXPECT_EQ(read->original.link_target, "libnccl.so.2.28.9");
  EXPECT_EQ(read->original.sha256, "abc");
  EXPECT_EQ(read->original.size_bytes, 7u);
  EXPECT_EQ(read->original.mode, 0644u);
  EXPECT_EQ(read->original.modified_ns, 1'600'000'000'123'456'789);
  EXPECT_EQ(read->original_version, "2.28.9");
  EXPECT_EQ(read->our_sha256, "def");
  EXPECT_EQ(read->our_version, "0.1.0");
}

TEST(InstallRecordTest, WhatIsNoRecordIsRefused) {
  for (const char* text : {"", "{", "[]", "{\"format\":1}", "{\"format\":\"x\"}", "\xff\xfe"}) {
    EXPECT_THAT(std::string(ParseRecord(text).status().message()), HasSubstr("is not what c4 install wrote"))
        << text;
  }
  EXPECT_THAT(std::string(ParseRecord("{\"format\":2}").status().message()), HasSubstr("use a newer one"));
}

}  // namespace
}  // namespace c4::cli
