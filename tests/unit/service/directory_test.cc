#include "service/directory.h"

#include <atomic>
#include <gmock/gmock.h>
#include <sys/stat.h>
#include <thread>
#include <unistd.h>

#include "service/address.h"
#include "service/run_dir.h"
#include "tests/unit/service/temporary_directory.h"

namespace c4::service {
namespace {

using testing::HasSubstr;

MasterEntry Entry(const std::string& job, uint64_t epoch) {
  return {.job = job,
          .address = "127.0.0.1:" + std::to_string(epoch % 60000),
          .http_address = "127.0.0.1:80",
          .epoch = epoch,
          .pid = 42,
          .host = "node"};
}

TEST(DirectoryFileName, KeepsOnlySafeCharacters) {
  EXPECT_EQ(DirectoryFileName("llama-70B.v2_x"), "llama-70B.v2_x.json");
  EXPECT_EQ(DirectoryFileName("../a b/ü"), ".._a_b___.json");
}

TEST(MasterDirectory, PublishLookUpRemove) {
  const test::TemporaryDirectory root;
  const MasterDirectory directory(root.File("c4/masters"));
  EXPECT_TRUE(absl::IsNotFound(directory.LookUp("job/1").status()));
  EXPECT_EQ(directory.List()->size(), 0u);
  ASSERT_TRUE(directory.Publish(Entry("job/1", 0xfedcba9876543210)).ok());
  const auto found = directory.LookUp("job/1");
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(found->epoch, 0xfedcba9876543210);  // all 64 bits
  EXPECT_EQ(found->http_address, "127.0.0.1:80");
  EXPECT_EQ(found->pid, 42);
  EXPECT_EQ(found->host, "node");
  struct stat status {};
  ASSERT_EQ(stat(directory.path().c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 07777, 01777u);

  ASSERT_TRUE(directory.Publish(Entry("job/1", 2)).ok());           // a restarted master
  ASSERT_TRUE(directory.Remove("job/1", 0xfedcba9876543210).ok());  // the late goodbye of the old one
  EXPECT_EQ(directory.LookUp("job/1")->epoch, 2u);
  ASSERT_TRUE(directory.Remove("job/1", 2).ok());
  EXPECT_TRUE(absl::IsNotFound(directory.LookUp("job/1").status()));
  EXPECT_TRUE(directory.Remove("job/1", 2).ok());
}

TEST(MasterDirectory, TwoJobsOfOneFileNameAreTold) {
  const test::TemporaryDirectory root;
  const MasterDirectory directory(root.path());
  ASSERT_TRUE(directory.Publish(Entry("a/b", 1)).ok());
  EXPECT_THAT(std::string(directory.Publish(Entry("a_b", 2)).message()), HasSubstr("a/b"));
  EXPECT_TRUE(absl::IsAlreadyExists(directory.LookUp("a_b").status()));
  EXPECT_EQ(directory.LookUp("a/b")->epoch, 1u);
}

TEST(MasterDirectory, FaultsAreListedAndNotFatal) {
  const test::TemporaryDirectory root;
  const MasterDirectory directory(root.path());
  ASSERT_TRUE(directory.Publish(Entry("b", 1)).ok());
  ASSERT_TRUE(directory.Publish(Entry("a", 2)).ok());
  root.Write("broken.json", "{\"job\": ");
  root.Write("wrong.json", "{\"job\": 7, \"address\": \"x\", \"epoch\": 1}");
  root.Write("negative.json", "[1, 2]");
  root.Write("long.json", std::string(100000, ' '));
  root.Write("b.json.k1Zq0p", "half an entry");  // what a killed master leaves
  ASSERT_EQ(symlink("/etc/passwd", root.File("link.json").c_str()), 0);
  ASSERT_EQ(mkfifo(root.File("fifo.json").c_str(), 0666), 0);
  std::vector<std::string> faults;
  const auto entries = directory.List(&faults);
  ASSERT_TRUE(entries.ok());
  ASSERT_EQ(entries->size(), 2u);
  EXPECT_EQ((*entries)[0].job, "a");
  EXPECT_EQ(faults.size(), 6u);
}

TEST(MasterDirectory, ANameThatIsNotUtf8IsRefused) {
  const test::TemporaryDirectory root;
  EXPECT_FALSE(MasterDirectory(root.path()).Publish(Entry("job\xff", 1)).ok());
  EXPECT_FALSE(MasterDirectory(root.path()).Publish(Entry("", 1)).ok());
}

// A reader sees the old entry or the new one, never none and never a part.
TEST(MasterDirectory, ReplacingIsAtomic) {
  const test::TemporaryDirectory root;
  const MasterDirectory directory(root.path());
  ASSERT_TRUE(directory.Publish(Entry("job", 1)).ok());
  std::atomic<bool> done = false;
  std::thread writer([&] {
    for (uint64_t epoch = 2; epoch < 60; ++epoch) EXPECT_TRUE(directory.Publish(Entry("job", epoch)).ok());
    done = true;
  });
  uint64_t last = 0;
  absl::Status fault;
  bool in_order = true;
  while (!done && fault.ok()) {
    const auto entry = directory.LookUp("job");
    fault = entry.status();
    if (!fault.ok()) break;
    in_order = in_order && entry->epoch >= last;
    last = entry->epoch;
  }
  writer.join();
  EXPECT_TRUE(fault.ok()) << fault;
  EXPECT_TRUE(in_order);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(root.path()), {}),
            1);  // no temporary files stay
}

TEST(WriteFileAtomically, LeavesTheOldFileWhenItCannot) {
  const test::TemporaryDirectory root;
  EXPECT_FALSE(WriteFileAtomically(root.File("no/such/file"), "x", 0644).ok());
  std::filesystem::create_directory(root.File("dir"));
  EXPECT_FALSE(WriteFileAtomically(root.File("dir"), "x", 0644).ok());
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(root.path()), {}), 1);
}

TEST(Address, ParsesAndRefuses) {
  EXPECT_EQ(ParseHostPort("127.0.0.1:80")->host, "127.0.0.1");
  EXPECT_EQ(ParseHostPort("[::1]:0")->host, "::1");
  EXPECT_EQ(ParseHostPort("node-1:65535")->port, 65535);
  for (const char* wrong :
       {"", ":80", "host", "host:", "host:65536", "host:-1", "host:x", "::1:80", "[]:80", "[::1:80"}) {
    EXPECT_FALSE(ParseHostPort(wrong).ok()) << wrong;
  }
  EXPECT_EQ(JoinHostPort("::1", 80), "[::1]:80");
  EXPECT_EQ(ReachableAddress("127.0.0.1:80"), "127.0.0.1:80");
  EXPECT_EQ(ReachableAddress("0.0.0.0:80"), HostName() + ":80");
  EXPECT_EQ(ReachableAddress("[::]:80"), HostName() + ":80");
}

}  // namespace
}  // namespace c4::service
