// Real children end in several ways, and the watch tells when and how.
#include "c4a/exit_watch.h"

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <sys/resource.h>
#include <sys/wait.h>
#include <thread>
#include <time.h>
#include <unistd.h>
#include <vector>

#include "gtest/gtest.h"

namespace c4::agent {
namespace {

int64_t NowNs() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<int64_t>(now.tv_sec) * 1'000'000'000 + now.tv_nsec;
}

// A child that waits to be told to end, and ends as it is told: by a signal where `signal` is not 0.
class Child {
 public:
  explicit Child(int signal, int status = 0) {
    if (pipe(pipe_) != 0) abort();
    pid_ = fork();
    if (pid_ == 0) {
      char byte = 0;
      const ssize_t ignored = read(pipe_[0], &byte, 1);
      (void)ignored;
      const rlimit none{};
      setrlimit(RLIMIT_CORE, &none);
      if (signal != 0) {
        (void)std::signal(signal, SIG_DFL);
        raise(signal);
      }
      _exit(status);
    }
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  ~Child() {
    End();
    if (!taken_) Take();
    close(pipe_[0]);
    close(pipe_[1]);
  }
  void End() const {
    const ssize_t ignored = write(pipe_[1], "x", 1);
    (void)ignored;
  }
  // As its parent does.
  int Take() {
    int status = 0;
    waitpid(pid_, &status, 0);
    taken_ = true;
    return status;
  }
  uint32_t pid() const { return static_cast<uint32_t>(pid_); }

 private:
  int pipe_[2] = {-1, -1};
  pid_t pid_ = -1;
  bool taken_ = false;
};

std::optional<ProcessExit> Await(const ExitWatch& watch, uint32_t pid) {
  for (int i = 0; i < 5000; ++i) {
    if (std::optional<ProcessExit> exit = watch.ExitOf(pid)) return exit;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return std::nullopt;
}

TEST(ExitWatch, TellsHowAChildEnded) {
  ExitWatch watch;
  struct {
    int signal;
    int status;
  } const cases[] = {{0, 0}, {0, 1}, {0, 143}, {SIGKILL, 0}, {SIGSEGV, 0}, {SIGTERM, 0}};
  for (const auto& [signal, status] : cases) {
    SCOPED_TRACE(signal * 1000 + status);
    Child child(signal, status);
    ASSERT_TRUE(watch.Watch(child.pid()));
    EXPECT_TRUE(watch.Watch(child.pid())) << "once more changes nothing";
    EXPECT_FALSE(watch.ExitOf(child.pid()).has_value()) << "it runs";
    const int64_t before_ns = NowNs();
    child.End();
    const std::optional<ProcessExit> exit = Await(watch, child.pid());
    ASSERT_TRUE(exit.has_value());
    EXPECT_GE(exit->at_ns, before_ns);
    EXPECT_LE(exit->at_ns, NowNs());
    EXPECT_EQ(exit->status, std::optional<int32_t>(child.Take()));
    watch.Forget(child.pid());
    EXPECT_FALSE(watch.ExitOf(child.pid()).has_value());
  }
}

// Agents look a few times a second; the order of ends within that is what matters.
TEST(ExitWatch, TellsTheOrder) {
  ExitWatch watch;
  Child first(0, 1);
  Child second(SIGTERM);
  Child third(SIGTERM);
  for (const Child* child : {&first, &second, &third}) ASSERT_TRUE(watch.Watch(child->pid()));
  for (const Child* child : {&first, &second, &third}) {
    child->End();
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  const std::optional<ProcessExit> a = Await(watch, first.pid());
  const std::optional<ProcessExit> b = Await(watch, second.pid());
  const std::optional<ProcessExit> c = Await(watch, third.pid());
  ASSERT_TRUE(a.has_value() && b.has_value() && c.has_value());
  EXPECT_LT(a->at_ns, b->at_ns);
  EXPECT_LT(b->at_ns, c->at_ns);
}

// As of a process that its parent takes between the opening and the reading of its stat.
TEST(ExitWatch, OutlivesAFileThatCannotBeRead) {
  std::string root = "/tmp/c4-proc-XXXXXX";
  ASSERT_NE(mkdtemp(root.data()), nullptr);
  {
    ExitWatch watch(root);
    Child child(0, 3);
    std::filesystem::create_directories(root + "/" + std::to_string(child.pid()) + "/stat");
    ASSERT_TRUE(watch.Watch(child.pid()));
    child.End();
    EXPECT_TRUE(Await(watch, child.pid()).has_value());
    child.Take();
  }
  std::filesystem::remove_all(root);
}

TEST(ExitWatch, WatchesNobodyWhoIsNot) {
  ExitWatch watch;
  Child child(0);
  const uint32_t pid = child.pid();
  child.End();
  child.Take();
  EXPECT_FALSE(watch.Watch(pid));
  EXPECT_FALSE(watch.Watch(0));
  EXPECT_FALSE(watch.Watch(UINT32_MAX));
  EXPECT_FALSE(watch.ExitOf(pid).has_value());
}

TEST(ExitCodeOfStat, IsReadFromTheLastField) {
  std::string rest;
  for (int field = 4; field < 52; ++field) rest += " 7";
  const auto text = [&](const std::string& state, const std::string& code) {
    return "12 (a ) Z 1 b) " + state + rest + " " + code + "\n";
  };
  EXPECT_EQ(ExitCodeOfStat(text("Z", "256")), std::optional<int32_t>(256));
  EXPECT_EQ(ExitCodeOfStat(text("X", "11")), std::optional<int32_t>(11));
  EXPECT_FALSE(ExitCodeOfStat(text("S", "256")).has_value()) << "it has not ended";
  EXPECT_FALSE(ExitCodeOfStat(text("Z", "x")).has_value());
  for (const std::string bad : {"", "12", "12 (a)", "12 (a) ", "12 (a) Z", "12 (a) Z 1 2 3"}) {
    EXPECT_FALSE(ExitCodeOfStat(bad).has_value()) << bad;
  }
  const std::optional<int32_t> told = geteuid() == 0 ? std::optional<int32_t>(0) : std::nullopt;
  EXPECT_EQ(ExitCodeOfStat(text("Z", "0")), told) << "others are told 0 whatever it was";
}

}  // namespace
}  // namespace c4::agent
