// Files that fail under a running job: what happens is told, metered, and ends by itself when the files work
// again.
#include <cerrno>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sqlite3.h>
#include <sys/mount.h>
#include <unistd.h>

#include "tests/security/attack.h"
#include "wire/segment.h"

namespace c4::service_test {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;

constexpr Seconds kRecovers(15);

// A file system of its own: small, and not shared with other programs of this machine.
class Tmpfs {
 public:
  Tmpfs() = default;
  ~Tmpfs() {
    if (path_.empty()) return;
    umount2(path_.c_str(), MNT_DETACH);
    rmdir(path_.c_str());
  }
  Tmpfs(const Tmpfs&) = delete;
  Tmpfs& operator=(const Tmpfs&) = delete;

  void Mount(const std::string& path) {
    fs::create_directories(path);
    ASSERT_EQ(mount("c4-test", path.c_str(), "tmpfs", MS_NOSUID | MS_NODEV, "size=128m,mode=0700"), 0)
        << std::generic_category().message(errno);
    path_ = path;
  }
  void Writable(bool writable) const {
    ASSERT_EQ(mount(nullptr, path_.c_str(), nullptr, MS_REMOUNT | (writable ? 0 : MS_RDONLY), nullptr), 0);
  }
  void Fill() const {
    const int fd = open((path_ + "/filler").c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    ASSERT_GE(fd, 0);
    const std::string block(1 << 20, 'x');
    for (size_t bytes = block.size(); bytes > 0;) {
      if (write(fd, block.data(), bytes) < 0) bytes /= 2;
    }
    close(fd);
  }
  const std::string& path() const { return path_; }
  void Empty() const { fs::remove(path_ + "/filler"); }

 private:
  std::string path_;
};

class StorageTest : public testing::Test {
 protected:
  void SetUp() override {
    if (geteuid() != 0) GTEST_SKIP() << "only root can mount a file system";
  }
};

bool InMemory(const std::string& http_address, bool wanted) {
  const std::string line = wanted ? "\nc4d_store_in_memory 1" : "\nc4d_store_in_memory 0";
  return Eventually(kRecovers, [&] {
    return HttpAsk(http_address, "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n").find(line) !=
           std::string::npos;
  });
}

std::string FileThatEndsWith(const std::string& directory, const std::string& end,
                             const std::string& start = "") {
  for (const auto& entry : fs::recursive_directory_iterator(directory)) {
    const std::string name = entry.path().filename();
    if (name.ends_with(end) && name.starts_with(start)) return entry.path();
  }
  ADD_FAILURE() << "no " << start << "*" << end << " below " << directory;
  return "";
}

void Wait() {
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
}

TEST_F(StorageTest, AFullDiskCostsNoVerdict) {
  C4_ATTACK("storage: the run directory and the logs are on a disk that is full");
  Tmpfs disk;
  AttackedJob attacked({}, [&](const std::string& base) { disk.Mount(base); });
  disk.Fill();
  attacked.StoppedRankIsNamedDuring(Wait);
  EXPECT_TRUE(InMemory(attacked.http_address(), true));
  disk.Empty();
  EXPECT_TRUE(InMemory(attacked.http_address(), false));
  EXPECT_THAT(attacked.Log("c4d_master"), HasSubstr("works again"));
}

TEST_F(StorageTest, AStoreThatIsLockedForSecondsCostsNoVerdict) {
  C4_ATTACK("storage: somebody holds the store's lock");
  AttackedJob attacked;
  sqlite3* store = nullptr;
  ASSERT_EQ(sqlite3_open(FileThatEndsWith(attacked.job().LogDir(), ".db").c_str(), &store), SQLITE_OK);
  ASSERT_EQ(sqlite3_exec(store, "BEGIN IMMEDIATE", nullptr, nullptr, nullptr), SQLITE_OK);
  attacked.StoppedRankIsNamedDuring(Wait);
  EXPECT_TRUE(InMemory(attacked.http_address(), true));
  EXPECT_THAT(attacked.Log("c4d_master"), HasSubstr("another program holds it"));
  ASSERT_EQ(sqlite3_exec(store, "ROLLBACK", nullptr, nullptr, nullptr), SQLITE_OK);
  sqlite3_close(store);
  EXPECT_TRUE(InMemory(attacked.http_address(), false));
}

// A master without ranks whose store alone is on `disk`, from before it starts until `mend`: it says `told`.
void StoreFailsUntilMended(const Tmpfs& disk, const std::string& scratch, const std::string& told,
                           const std::function<void()>& mend) {
  Process master({Binary("c4d_master"), "--job", "j", "--listen", "127.0.0.1:0", "--http-address",
                  "127.0.0.1:0", "--c4p", "off", "--directory", scratch + "/masters", "--store",
                  disk.path() + "/j.db", "--audit", scratch + "/audit"},
                 {}, scratch + "/log");
  const std::string entry = scratch + "/masters/j.json";
  ASSERT_TRUE(Eventually(Seconds(10), [&] { return fs::exists(entry); })) << master.Errors();
  const Json json = Json::parse(std::ifstream(entry));
  EXPECT_TRUE(InMemory(json["http_address"], true));
  EXPECT_THAT(master.Errors(), HasSubstr(told));
  mend();
  EXPECT_TRUE(InMemory(json["http_address"], false)) << master.Errors();
  EXPECT_THAT(master.Errors(), HasSubstr("works again"));
  master.Signal(SIGTERM);
  EXPECT_TRUE(master.Wait(Seconds(10)));
}

TEST_F(StorageTest, AReadOnlyDiskIsToldAndRecoveredFrom) {
  C4_ATTACK("storage: a store on a disk that is read-only");
  const ScratchDir scratch;
  Tmpfs disk;
  disk.Mount(scratch.path() + "/disk");
  disk.Writable(false);
  StoreFailsUntilMended(disk, scratch.path(), "is writable", [&] { disk.Writable(true); });
}

TEST_F(StorageTest, AFullDiskIsToldAndRecoveredFrom) {
  C4_ATTACK("storage: a store on a disk that is full from the start");
  const ScratchDir scratch;
  Tmpfs disk;
  disk.Mount(scratch.path() + "/disk");
  disk.Fill();
  StoreFailsUntilMended(disk, scratch.path(), "make room on that disk", [&] { disk.Empty(); });
}

fs::path SegmentOf(AttackedJob& attacked, int rank) {
  const std::string start = std::to_string(attacked.job().Counters(rank).pid) + "-";
  return FileThatEndsWith(attacked.run_dir(), wire::kSegmentSuffix, start);
}

// As a library writes it that is newer than the agent.
fs::path CopyOfAnotherMajor(const fs::path& segment, const fs::path& directory) {
  fs::path other = directory / ("1-00000000000000aa" + std::string(wire::kSegmentSuffix));
  fs::copy_file(segment, other);
  std::fstream file(other, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(offsetof(wire::Header, major));
  const uint16_t major = wire::kSegmentMajor + 1;
  file.write(reinterpret_cast<const char*>(&major), sizeof major);
  return other;
}

TEST_F(StorageTest, ATruncatedSegmentBlindsNobody) {
  C4_ATTACK("storage: a rank's segment is cut short");
  AttackedJob attacked;
  const fs::path segment = SegmentOf(attacked, 0);
  attacked.StoppedRankIsNamedDuring([&] {
    EXPECT_EQ(truncate(segment.c_str(), 4096), 0);
    Wait();
  });
  EXPECT_THAT(attacked.Log("c4a"), HasSubstr(segment.filename().string()));
}

// The library of one process is newer than the agent: whoever asks for the job's status hears it.
TEST_F(StorageTest, ASegmentOfAnotherMajorVersionIsToldInTheStatus) {
  C4_ATTACK("storage: a segment of another major version");
  AttackedJob attacked;
  const fs::path other = CopyOfAnotherMajor(SegmentOf(attacked, 1), attacked.run_dir());
  const auto status = [&] { return RunC4({"status", "--run-dir", attacked.job().base_dir()}).output; };
  EXPECT_TRUE(Eventually(Seconds(5), [&] { return status().find("1 process on") != std::string::npos; }))
      << status();
  EXPECT_THAT(status(), HasSubstr("cannot be watched:"));
  EXPECT_THAT(status(), HasSubstr("segment format 2."));
  fs::remove(other);
  EXPECT_TRUE(
      Eventually(Seconds(5), [&] { return status().find("cannot be watched") == std::string::npos; }));
}

// No process of the job can be read, so that the agent does not know of which job they are: their user's
// masters are told.
TEST_F(StorageTest, AJobWhoseSegmentsAreAllOfAnotherMajorVersionIsTold) {
  C4_ATTACK("storage: all segments of a job are of another major version");
  AttackedJob attacked;
  RunningJob newer(1, {"--job", "newer"}, {"sleep", "100"});
  const auto verdicts = [&] { return RunC4({"verdicts", "--run-dir", newer.base_dir(), "--job", "newer"}); };
  ASSERT_TRUE(Eventually(Seconds(10), [&] {
    return verdicts().output.find("knows nothing") != std::string::npos;
  })) << verdicts().errors;
  const std::string key = newer.MasterEntry()["key_file"];
  CopyOfAnotherMajor(SegmentOf(attacked, 1), fs::path(key).parent_path());
  EXPECT_TRUE(Eventually(Seconds(15), [&] {
    return verdicts().output.find("1 process cannot be watched, and nothing here is about it: on ") !=
           std::string::npos;
  })) << verdicts().output;
  EXPECT_THAT(verdicts().output, AllOf(HasSubstr("knows nothing"), HasSubstr("segment format 2.")));
  EXPECT_EQ(verdicts().exit_code, 3);
  EXPECT_THAT(RunC4({"status", "--run-dir", newer.base_dir(), "--job", "newer"}).output,
              HasSubstr("cannot be watched:"));
  attacked.StoppedRankIsNamedDuring(Wait);
}

TEST_F(StorageTest, ARemovedDirectoryOfMastersComesBack) {
  C4_ATTACK("storage: the directory of masters is removed");
  AttackedJob attacked;
  const std::string masters = attacked.job().base_dir() + "/masters";
  fs::remove_all(masters);
  EXPECT_TRUE(Eventually(Seconds(5), [&] { return !attacked.job().MasterEntry().empty(); }));
  EXPECT_THAT(attacked.Log("c4d_master"), HasSubstr("it is back"));
  attacked.StoppedRankIsNamedDuring(Wait);
}

}  // namespace
}  // namespace c4::service_test
