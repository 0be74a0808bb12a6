// A job's stay in an emulated fabric: which host each rank runs on, what a process needs to be there, and
// that nothing of the job is left in it.
//
// Enter opens the fabric (or makes one of its own) and starts a guard: a process that waits for the end of
// ours, however it comes, and then ends what the job left in its control groups and takes a fabric of its own
// down. The destructor does the same in order and dismisses the guard. One thread, and Enter before any other
// thread is made: the guard is a fork of this process.
#pragma once

#include <memory>
#include <string>
#include <sys/types.h>
#include <vector>

#include "cli/base/process.h"
#include "fabric/emulator/fabric.h"
#include "service/status.h"

namespace c4::cli {

class FabricJob {
 public:
  static constexpr int kAllOthers = -1;
  struct Request {
    std::string fabric;  // name of one that is up, or LEAVESxSPINESxHOSTS for one of its own
    int ranks = 0;
    // How many ranks host after host is filled with, each at least 1; the last goes on. Empty: rank i goes to
    // host i % hosts.
    std::vector<int> ranks_per_host;
    int spares = 0;   // so many more hosts are the job's, without ranks; kAllOthers: all that are left
    std::string run;  // a name for its control groups, of this job alone
  };

  // InvalidArgument: it does not fit. PermissionDenied: this user may not. NotFound: no such fabric.
  static absl::StatusOr<std::unique_ptr<FabricJob>> Enter(const Request& request);
  ~FabricJob();
  FabricJob(const FabricJob&) = delete;
  FabricJob& operator=(const FabricJob&) = delete;

  const fabric::Fabric& fabric() const { return fabric_; }
  int HostOfRank(int rank) const;
  // How many hosts have ranks or are spare ones: 0 to HostsInUse() - 1.
  int HostsInUse() const;
  // In the host's control group.
  absl::StatusOr<Place> RankPlace(int host) const;
  // On the same host, outside its quota.
  absl::StatusOr<Place> AgentPlace(int host) const;
  pid_t guard() const { return guard_; }
  // Ends every rank and helper that is left, and not the agents.
  void EndRanks() const;

 private:
  FabricJob(fabric::Fabric fabric, Request request, bool own)
      : fabric_(std::move(fabric)), request_(std::move(request)), own_(own) {}
  absl::Status StartGuard();
  absl::Status CheckFits() const;
  int HostsToSpreadOver() const;

  fabric::Fabric fabric_;
  const Request request_;
  const bool own_;  // made for this job
  pid_t guard_ = 0;
  int guard_fd_ = -1;  // while it is open the guard waits
};

// Which host a rank goes to. Pure.
int HostOfRank(int rank, const std::vector<int>& ranks_per_host, int hosts);

}  // namespace c4::cli
