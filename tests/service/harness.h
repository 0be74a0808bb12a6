// What the tests over real processes share: a job started by the real `c4 run` in a run directory of its
// own, the real `c4` verbs asked about it, and a look into the ranks' shared memory.
//
// One thread. Everything that a RunningJob started is ended when it goes, also when the test failed; its
// output is then printed. Binaries come from ${C4_BUILD_DIR}/bin.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <sys/types.h>
#include <vector>

#include <nlohmann/json.hpp>

namespace c4::service_test {

using Clock = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;
using Json = nlohmann::json;

// The path of a program of this build.
std::string Binary(const std::string& name);

// A new directory on the tmpfs, removed with all that is in it.
class ScratchDir {
 public:
  ScratchDir();
  ~ScratchDir();
  ScratchDir(const ScratchDir&) = delete;
  ScratchDir& operator=(const ScratchDir&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// A process whose output goes to files. Killed with its group when the object goes.
class Process {
 public:
  Process(const std::vector<std::string>& command, const std::vector<std::string>& environment,
          const std::string& output_prefix);
  ~Process();
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  pid_t pid() const { return pid_; }
  // False when it still runs after `limit`.
  bool Wait(Seconds limit);
  // After Wait: as a shell gives it.
  int exit_code() const { return exit_code_; }
  std::string Output() const;
  std::string Errors() const;
  void Signal(int signal) const;

 private:
  std::string prefix_;
  pid_t pid_ = -1;
  int exit_code_ = -1;
  bool ended_ = false;
};

struct CommandResult {
  int exit_code = -1;
  std::string output;
  std::string errors;
};

// Runs `c4 ARGUMENTS` to its end. A command that does not end within `limit` fails the test.
CommandResult RunC4(const std::vector<std::string>& arguments,
                    const std::vector<std::string>& more_environment = {}, Seconds limit = Seconds(30));

struct RankCounters {
  pid_t pid = 0;
  uint64_t called = 0;
  uint64_t finished = 0;
};

class RunningJob {
 public:
  // `c4 run -n RANKS --run-dir SCRATCH OPTIONS -- COMMAND`.
  RunningJob(int ranks, const std::vector<std::string>& options, const std::vector<std::string>& command,
             const std::vector<std::string>& more_environment = {},
             const std::function<void(const std::string& base_dir)>& prepare = {});
  // Ends the job by SIGINT and checks that nothing is left.
  ~RunningJob();

  Process& launcher() { return *launcher_; }
  const std::string& base_dir() const { return scratch_.path(); }
  // Where the logs of jobs are kept, below base_dir(), and this job's own directory in it ("" until it is
  // made).
  std::string log_root() const { return base_dir() + "/logs"; }
  std::string LogDir() const;

  // Of `c4 verdicts --all --json` and `c4 status --json`; an empty object when no master answers.
  Json Verdicts() const;
  Json Status() const;
  // The verdicts of a list that are not cleared.
  static std::vector<Json> Open(const Json& verdicts);
  // All ranks are known to the master and have finished `operations`.
  bool AwaitAtWork(uint64_t operations, Seconds limit) const;

  // From the ranks' segments; ranks that have none yet are missing.
  std::vector<RankCounters> Counters() const;
  RankCounters Counters(int rank) const;
  uint64_t LeastFinished() const;

  // 0 when it does not run.
  pid_t DaemonPid(const std::string& name) const;
  // Of the entry in the directory of masters; empty when there is none.
  Json MasterEntry() const;
  // Everything that runs below the launcher.
  std::vector<pid_t> Processes() const;
  // Nothing of the job is left in the run directory.
  bool RunDirIsClean() const;

 private:
  const int ranks_;
  ScratchDir scratch_;
  std::unique_ptr<Process> launcher_;
};

// Asks every 50 ms until `holds` does; false when it did not within `limit`.
bool Eventually(Seconds limit, const std::function<bool()>& holds);

}  // namespace c4::service_test
