#include "cli/base/thread_stacks.h"

#include <csignal>
#include <cstdlib>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "cli/base/process.h"

namespace c4::cli {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

std::string Source(const std::string& name) {
  // NOLINTNEXTLINE(concurrency-mt-unsafe): nobody writes the environment
  const char* source = getenv("C4_SOURCE_DIR");
  return absl::StrCat(source == nullptr ? "." : source, "/", name);
}

// A Python that offers its stacks, or does not, and waits in two functions.
class Python {
 public:
  explicit Python(bool offers) {
    const std::string program = absl::StrCat(
        "import sys, time\nsys.path.insert(0, '", Source("python"), "')\n",
        offers ? "from c4_train import stacks\nassert stacks.offer() and stacks.offer()\n" : "",
        "def outer():\n  inner()\ndef inner():\n  print('waits', flush=True)\n  time.sleep(600)\nouter()\n");
    int pipes[2];
    EXPECT_EQ(pipe(pipes), 0);
    pid_ = fork();
    if (pid_ == 0) {
      dup2(pipes[1], 1);
      execlp("python3", "python3", "-c", program.c_str(), nullptr);
      _exit(127);
    }
    close(pipes[1]);
    // Python may write a line in two parts.
    std::string line;
    char letter = 0;
    while (read(pipes[0], &letter, 1) == 1 && letter != '\n') line += letter;
    EXPECT_EQ(line, "waits") << "python3 did not come as far as to wait";
    close(pipes[0]);
  }
  ~Python() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  Python(const Python&) = delete;
  Python& operator=(const Python&) = delete;
  uint32_t pid() const { return static_cast<uint32_t>(pid_); }

 private:
  pid_t pid_ = -1;
};

TEST(ThreadStacksTest, ThreadsAreTold) {
  std::atomic<bool> ends = false;
  std::thread other([&] {
    while (!ends) usleep(1000);
  });
  const std::vector<ThreadPlace> threads = ThreadsOf(static_cast<uint32_t>(getpid()));
  ends = true;
  other.join();
  ASSERT_GE(threads.size(), 2u);  // libraries of the test have some
  EXPECT_EQ(threads[0].tid, static_cast<uint32_t>(getpid()));
  EXPECT_EQ(threads[0].state, 'R');
  EXPECT_THAT(ThreadsOf(4'000'000), IsEmpty());  // nobody has that number
}

TEST(ThreadStacksTest, PythonIsToldByWhoOffersIt) {
  const Python python(true);
  for (int again = 0; again < 3; ++again) {  // each answer is of its own
    const PythonPlace place = PythonStacksOf(python.pid(), absl::Seconds(30));
    EXPECT_EQ(place.why, "");
    ASSERT_THAT(place.lines, SizeIs(4)) << again;
    EXPECT_THAT(place.lines[1], HasSubstr("in inner"));
    EXPECT_THAT(place.lines[2], HasSubstr("in outer"));
  }
  kill(static_cast<pid_t>(python.pid()), SIGSTOP);
  const PythonPlace place = PythonStacksOf(python.pid(), absl::Milliseconds(300));
  EXPECT_THAT(place.lines, IsEmpty());
  EXPECT_THAT(place.why, HasSubstr("is it stopped"));
}

// The signal would end it.
TEST(ThreadStacksTest, WhoDoesNotOfferItIsLeftAlone) {
  const Python python(false);
  const PythonPlace place = PythonStacksOf(python.pid(), absl::Seconds(5));
  EXPECT_THAT(place.lines, IsEmpty());
  EXPECT_THAT(place.why, HasSubstr("C4_PYTHON_STACKS=1"));
  usleep(100'000);
  EXPECT_EQ(kill(static_cast<pid_t>(python.pid()), 0), 0);
  EXPECT_EQ(waitpid(static_cast<pid_t>(python.pid()), nullptr, WNOHANG), 0);
}

TEST(ThreadStacksTest, AProcessIsKnownByBootAndStart) {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  const auto pid = static_cast<uint32_t>(getpid());
  const std::optional<ProcessStat> stat = ReadProcessStat(getpid());
  ASSERT_TRUE(stat.has_value());
  EXPECT_TRUE(IsHere(boot, pid, stat->start_time_ticks));
  std::erase(boot, '-');
  EXPECT_TRUE(IsHere(boot, pid, stat->start_time_ticks));
  EXPECT_FALSE(IsHere(boot, pid, stat->start_time_ticks + 1));
  EXPECT_FALSE(IsHere("ras", pid, stat->start_time_ticks));
  EXPECT_FALSE(IsHere(boot, 4'000'000, 0));
}

}  // namespace
}  // namespace c4::cli
