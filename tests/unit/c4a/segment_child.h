// A child process that holds the lock on a segment file, as a rank does; the test writes the file.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <string>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "c4a/proc_reader.h"
#include "tests/unit/c4a/segment_builder.h"

namespace c4::test {

class SegmentChild {
 public:
  // Fills the writer's identity of `builder` in and writes the file once the child has its lock.
  SegmentChild(const std::string& directory, const std::string& name, SegmentBuilder* builder,
               short lock_type = F_WRLCK)
      : path_(directory + "/" + name) {
    int ready[2];
    EXPECT_EQ(pipe(ready), 0);
    const std::string hidden = directory + "/." + name;
    pid_ = fork();
    if (pid_ == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      const int fd = open(hidden.c_str(), O_RDWR | O_CREAT, 0644);
      struct flock lock {};
      lock.l_type = lock_type;
      lock.l_whence = SEEK_SET;
      lock.l_len = 1;
      const char ok = fcntl(fd, F_SETLK, &lock) == 0 ? 'y' : 'n';
      if (write(ready[1], &ok, 1) != 1) _exit(1);
      for (;;) pause();
    }
    char ok = 'n';
    EXPECT_EQ(read(ready[0], &ok, 1), 1);
    EXPECT_EQ(ok, 'y');
    close(ready[0]);
    close(ready[1]);
    Signal(0, 'S');
    const auto stat = agent::ProcReader().ReadStat(static_cast<uint32_t>(pid_));
    EXPECT_TRUE(stat.ok());
    builder->header().header.writer.pid = static_cast<uint32_t>(pid_);
    builder->header().header.writer.start_time_ticks = stat->start_time_ticks;
    builder->ToFile(hidden);
    EXPECT_EQ(rename(hidden.c_str(), path_.c_str()), 0);
  }
  ~SegmentChild() { Kill(); }
  SegmentChild(const SegmentChild&) = delete;
  SegmentChild& operator=(const SegmentChild&) = delete;

  pid_t pid() const { return pid_; }
  const std::string& path() const { return path_; }

  // Returns once the process is in that state, as /proc tells.
  void Signal(int signal, char state) const {
    kill(pid_, signal);
    for (int i = 0; i < 2000; ++i) {
      const auto stat = agent::ProcReader().ReadStat(static_cast<uint32_t>(pid_));
      if (stat.ok() && stat->state == state) return;
      usleep(1000);
    }
    ADD_FAILURE() << "process " << pid_ << " does not get into state " << state;
  }
  void Kill() {
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }

 private:
  std::string path_;
  pid_t pid_ = -1;
};

}  // namespace c4::test
