// A running job as an injector sees it: which process is which rank, on which host, in which fabric.
//
// The view comes from job.json, which `c4 run` writes into the job's directory. The file is believed only
// when it belongs to the user whose launcher runs. A view is a copy and becomes old when the job starts its
// next incarnation. Any thread; errors are sentences for users.
#pragma once

#include <string>
#include <sys/types.h>
#include <vector>

#include "absl/status/statusor.h"

namespace c4::fabric {

struct JobView {
  struct Rank {
    int rank = 0;
    pid_t pid = 0;  // leads a process group
    int host = 0;
  };
  std::string job;
  std::string fabric;  // empty: over loopback
  int incarnation = 0;
  pid_t launcher = 0;
  uid_t owner = 0;  // of the file, and of the launcher
  std::vector<Rank> ranks;
  std::vector<pid_t> agents;  // by host; 0: none
};

absl::StatusOr<JobView> ParseJobFile(const std::string& text);
// The job of that name below `base_dir` (empty: C4_RUN_DIR, else /dev/shm/c4) whose launcher lives; without a
// name the only one.
absl::StatusOr<JobView> FindJob(const std::string& base_dir, const std::string& job);
std::string DefaultBaseDir();

// The rank whose process group that process is in; -1.
int RankOfProcess(const JobView& job, pid_t pid);
// All processes of a rank: its process group.
std::vector<pid_t> ProcessesOfRank(const JobView::Rank& rank);
// Whether that process may be meant by a job of that user: it is his, or he is root. Whoever may write to the
// run directory can say that any process is a rank of his job, for root to end.
bool IsOwners(uid_t owner, pid_t pid);

}  // namespace c4::fabric
