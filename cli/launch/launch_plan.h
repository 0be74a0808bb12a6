// The part of starting a job that is pure: what the options mean, which environment each rank gets, how the
// daemons are called, when a daemon is started again, and which rank is to blame when several ended at once.
//
// No I/O and no clock in here; the Launcher (launcher.h) does what this plans. Safe from any thread.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "cli/clients/job_certificates.h"
#include "cli/launch/job_log.h"
#include "service/status.h"

namespace c4::cli {

// Beside libnccl.so.2: the tap for programs that are linked to verbs (docs/tap.md).
inline constexpr char kTapLibrary[] = "libc4_verbs.so";

struct LaunchOptions {
  int ranks = 0;
  std::string job;         // empty: C4_JOB_ID, else a name made from the launcher's pid
  std::string base_dir;    // empty: C4_RUN_DIR, else /dev/shm/c4
  std::string master;      // host:port of a master that runs already; empty: start one
  std::string key_file;    // of the job's tokens; empty: a new key in the run directory
  bool monitor = true;     // start an agent (and a master)
  bool tls = false;        // these show certificates of an authority of the job's own
  bool paths = false;      // start a path master as well, unless one is published
  bool intervene = false;  // the job asks for experiments that move its queue pairs
  std::string topology;    // its topology file; empty: of an emulated fabric its own, else it learns
  bool keep_log = false;   // after the job's end: a directory of its own in log_dir
  std::string log_dir;     // of all jobs; empty: DefaultLogDir (job_log.h)
  LogRetention retention;  // of what is kept of ended jobs
  double timeout_s = 0;    // end the job after this long; 0: never
  double grace_s = 3;      // once a rank has failed, how long the others may take to end by themselves
  bool prefix = false;     // "[rank] " before each line of output
  std::string fabric;      // name or size of an emulated fabric to run in; empty: over loopback
  std::vector<int> ranks_per_host;  // in a fabric, the last goes on; empty spreads rank i to host i % hosts
  int restarts = 0;                 // how often a failed job is started again
  bool elastic = false;             // in a fabric with spare hosts: the master starts it again, on others
  int spares = -1;                  // with elastic: hosts that are kept free; -1: all that have no ranks
  std::string recovery;             // with elastic: the user's file of recovery; empty: automatic
  std::string checkpoint;           // with elastic: a file whose time is that of the last whole checkpoint
  double elastic_wait_s = 120;      // how long a failed job waits for the master's decision
  bool verdict_lines = false;       // report verdicts as they come
  bool tap = false;                 // what the ranks do through verbs is watched, whoever does it
  bool rank_logs = false;           // each rank's output to rank-N.log in the run directory instead
  std::vector<std::string> command;
};

// How many ranks each host is filled with: "8" or "8,1,1,4", each 1 to 4096. InvalidArgument with a sentence.
absl::StatusOr<std::vector<int>> ParseRanksPerHost(const std::string& text);

// InvalidArgument with a sentence for the user when a job cannot be started from these.
absl::Status CheckLaunchOptions(const LaunchOptions& options);

// What the launcher found out before it starts anything.
struct LaunchPlan {
  std::string job;
  std::string run_dir;           // of this job alone
  std::string log_dir;           // where daemons log; the run directory where nothing is kept
  bool recording = false;        // the last minutes are kept in log_dir
  std::string key_file;          // signs and checks the tokens of its daemons
  JobCertificates certificates;  // empty without TLS
  bool intervene = false;        // as LaunchOptions
  int64_t owner_uid = -1;        // of the job's processes; -1: what root starts may go on as another user
  std::string directory;         // of masters
  std::string library_dir;       // holds libnccl.so.2
  std::string binary_dir;        // holds c4a and c4d_master
  int master_port = 0;           // MASTER_PORT, for frameworks
  int communicator_port = 0;     // NCCL_COMM_ID
  bool agent = true;             // there is one that ranks can connect to
  int incarnation = 0;           // how often the job has been started again

  // In a fabric: its name, the hosts in use and each rank's; else one host, this machine.
  struct Host {
    std::string name;     // empty: this machine's own
    std::string run_dir;  // of its ranks and agent
  };
  std::string fabric;
  std::vector<Host> hosts;
  std::vector<int> host_of_rank;          // empty: all on hosts[0]
  std::string rendezvous = "127.0.0.1";   // where rank 0 is reached
  std::string interfaces = "lo";          // NCCL_SOCKET_IFNAME
  std::string topology;                   // file for a path master; empty: none
  std::string master_host = "127.0.0.1";  // where the master listens
  std::string recovery;                   // its file of recovery; empty: none
};

int HostIndexOf(const LaunchPlan& plan, int rank);

// `inherited` with the variables of rank `rank` set; what the user set of C4_ENGINE and
// C4_CONTROL is kept.
std::vector<std::string> RankEnvironment(const std::vector<std::string>& inherited,
                                         const LaunchOptions& options, const LaunchPlan& plan, int rank);
std::vector<std::string> MasterArguments(const LaunchPlan& plan);
std::vector<std::string> PathMasterArguments(const LaunchPlan& plan);
// Of the agent of the plan's host of that index.
std::vector<std::string> AgentArguments(const LaunchOptions& options, const LaunchPlan& plan, int host = 0);

// Sets NAME=value in `environment`, replacing all earlier settings of that name.
void SetVariable(std::vector<std::string>* environment, const std::string& name, const std::string& value);

// When to start a daemon again: at once after a long life, else after a pause that doubles.
class BackOff {
 public:
  static constexpr std::chrono::milliseconds kFirst{100};
  static constexpr std::chrono::milliseconds kLongest{10000};
  static constexpr std::chrono::milliseconds kLongLife{10000};
  static constexpr std::chrono::milliseconds kQuick{1000};
  static constexpr int kKeepsFailing = 3;

  // The daemon ended after `lifetime`; the pause before the next start.
  std::chrono::milliseconds Ended(std::chrono::milliseconds lifetime);
  // True once, when it has ended kKeepsFailing times in a row without a long life.
  bool ShouldReport();
  // The life that just ended was a short one.
  bool quick() const { return quick_; }

 private:
  int quick_ends_ = 0;
  bool quick_ = false;
  bool reported_ = false;
};

struct RankEnd {
  int rank = 0;
  int wait_status = 0;
};

// Of the ranks that were found to have ended at one look, the one that failed for its own reason: ranks
// that a signal ended come before those that exited with an error, because a peer's loss makes the others
// exit with an error a moment later. nullopt when none of them failed.
std::optional<RankEnd> FirstFailure(const std::vector<RankEnd>& ended);

// How all ranks ended, the one that failed first before the others: "rank 2 was ended by signal 9 (SIGKILL);
// ranks 0, 1, 3 exited with code 1". `ends` ascends by rank.
std::string DescribeEnds(const RankEnd& failed, const std::vector<RankEnd>& ends);

}  // namespace c4::cli
