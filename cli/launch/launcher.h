// Starts the ranks of one job on this machine together with their agent and master, keeps the daemons
// alive, and ends everything that it started.
//
// Start plans (launch_plan.h) and starts; Poll deals with what happens (signals, ended processes, deadlines,
// output) until the job is over; the destructor ends whatever is left. Children get a signal from the
// kernel when the launcher's thread ends, helpers that they left behind come to the launcher, and the job's
// directory and its entry in the masters' directory are removed. The monitor never fails the job: what goes
// wrong with it is reported once, as a warning.
//
// When a rank failed, the job's own master is asked for its verdicts before it is ended. A rank that was
// killed is waited for as long as kVerdictPatience in launcher_events.cc: only the master knows that nobody
// died first.
//
// One launcher at a time a process, used from the main thread; make it before any other thread, so that all
// threads inherit the blocked signals. It reaps every child of the process.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <sys/types.h>
#include <vector>

#include "cli/launch/daemon.h"
#include "cli/launch/elastic.h"
#include "cli/launch/fabric_job.h"
#include "cli/launch/job_dir.h"
#include "cli/launch/launch_plan.h"
#include "cli/launch/line_prefixer.h"
#include "cli/launch/verdict_feed.h"
#include "service/status.h"

namespace c4::cli {

class Launcher {
 public:
  using Clock = std::chrono::steady_clock;
  // A sentence for the user: warnings, and which rank failed.
  using Report = std::function<void(const std::string& text)>;

  struct Outcome {
    int exit_code = 0;  // 0, the failed rank's, kExitTimeout, or kExitSignalBase + the signal that ended us
    std::optional<RankEnd> failed;
  };

  // InvalidArgument: the options are wrong. NotFound, PermissionDenied: the program cannot be run.
  // AlreadyExists: a master of that job lives. Nothing is left running after an error.
  static absl::StatusOr<std::unique_ptr<Launcher>> Start(LaunchOptions options, Report report);
  ~Launcher();
  Launcher(const Launcher&) = delete;
  Launcher& operator=(const Launcher&) = delete;

  // Waits up to `wait` for something to happen and deals with it. False once the job is over: all ranks
  // and daemons have ended and `outcome` is final.
  bool Poll(std::chrono::milliseconds wait);
  const Outcome& outcome() const { return outcome_; }
  // A signal asked for the end.
  bool interrupted() const { return interrupted_; }

  const LaunchPlan& plan() const { return plan_; }
  bool monitored() const { return !daemons_.empty(); }
  // 0 once it has ended.
  pid_t RankPid(int rank) const;
  absl::Status SignalRank(int rank, int signal) const;
  // Where rank_logs puts a rank's output.
  std::string RankLogPath(int rank) const;
  // Ends all ranks, then the daemons, and cleans up. Takes up to the times in launcher.cc.
  void End();

 private:
  struct Rank {
    pid_t pid = 0;  // 0 once it has ended
    int wait_status = 0;
  };
  struct OutputPipe {
    int fd = -1;
    int rank = 0;
    FILE* to = nullptr;
    LinePrefixer lines{""};
  };

  Launcher(LaunchOptions options, Report report);

  absl::Status Prepare();
  // The directory that outlives the job; without one the job runs all the same.
  void OpenLog();
  absl::Status EnterFabric();
  // Places on free ports where rank 0 gathers the others.
  absl::Status ChoosePorts();
  absl::Status MakeKey();
  absl::Status MakeCertificates();
  // For whoever injects faults (docs/inject.md): who runs where.
  void WriteJobFile() const;
  // True when a failed job is started again.
  bool Restarts();
  // The ranks anew, as that incarnation.
  absl::Status StartAgain(int incarnation);
  // With --elastic: where the master asks, and what its file of recovery says.
  absl::Status PrepareElastic();
  void ServeMaster();
  absl::StatusOr<double> RestartOn(const ElasticJob::Restart& restart);
  // The job has failed, and the master is to say what comes next: `why`, for the user.
  void AwaitMaster(const std::string& why);
  bool AwaitsMaster() const;
  bool IsServed(const std::string& name) const;
  absl::Status CheckJobIsFree() const;
  void StartMonitor();
  void AwaitMonitor();
  bool MonitorIsUp() const;
  absl::Status StartRanks();
  absl::Status StartRank(int rank, const std::vector<std::string>& environment);

  void WaitForEvents(std::chrono::milliseconds wait);
  void ReadSignals();
  void ReadOutput(OutputPipe* pipe);
  static void CloseOutput(OutputPipe* pipe);
  void Reap();
  void ReapInto(std::vector<RankEnd>* ended);
  void TickDaemons();
  void ReportDaemon(Daemon* daemon, const std::string& text);
  void RankFailed(const RankEnd& end);
  void ApplyDeadlines();
  Clock::time_point NextDeadline(Clock::time_point latest) const;
  bool RanksRunning() const;
  void SignalRanks(int signal);
  // Verdicts as they come, a line each.
  void TellNews();
  // Why the job ended: the verdict first, then how the ranks did. Of a rank that was killed the master's
  // verdict is waited for.
  void TellEnd();
  std::vector<v1::Verdict> VerdictsAtEnd();
  std::string EndsText() const;
  // From when on what happens to the job is its end, and no longer what was wrong with it.
  void EndBegins(std::string why);
  void KeepRecord();
  void EndDaemon(const Daemon& daemon);
  // Helpers that ranks left behind; the daemons too where they are still children.
  void EndStragglers() const;
  void CleanUp();

  LaunchOptions options_;
  Report report_;
  LaunchPlan plan_;
  int signal_fd_ = -1;
  std::unique_ptr<JobDirectory> job_dir_;
  std::unique_ptr<JobLog> log_;            // null: nothing is kept
  std::unique_ptr<VerdictFeed> feed_;      // null without a master
  std::unique_ptr<FabricJob> fabric_job_;  // null: over loopback
  std::optional<ElasticJob> elastic_;
  std::optional<ElasticSocket> elastic_socket_;
  std::optional<Clock::time_point> elastic_until_;  // the job has failed, and the master is waited for
  std::vector<std::unique_ptr<Daemon>> daemons_;    // in the order in which they are ended
  std::vector<Rank> ranks_;
  std::vector<OutputPipe> pipes_;
  Outcome outcome_;
  bool ending_daemons_ = false;
  bool monitor_failed_ = false;  // a daemon kept failing, and the user was told
  bool interrupted_ = false;
  bool over_ = false;
  std::optional<Clock::time_point> timeout_at_;    // the job's time limit
  std::optional<Clock::time_point> terminate_at_;  // SIGTERM to all ranks
  std::optional<Clock::time_point> kill_at_;       // SIGKILL to all ranks
  Clock::time_point failed_at_;                    // of outcome_.failed
  std::string why_;                                // the job ends: "rank 2 was ended by signal 9 (SIGKILL)"
  std::vector<v1::Verdict> open_then_;             // what was wrong with the job when its end began
  std::string verdict_;                            // who was to blame, for the record
};

}  // namespace c4::cli
