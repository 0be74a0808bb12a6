// Whom a worker's tensor or context group waits for. One rank of each group stands for it in the analysis,
// and what another one does late makes that rank's computations long: they contain the group's collectives.
// So the members' calls of these are compared, one by one: who calls last, and how long after the usual of
// the others. Part of JoinProfile.
//
// Plain values once made; points to nothing. One thread.
#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "c4d_master/smon/communicator_roles.h"
#include "c4d_master/smon/profile.h"

namespace c4::c4d {

class GroupWaits {
 public:
  // `processes` are of one worker, `worker` among them stands for the group. Collectives that not all members
  // of a communicator have equally often in a step (records were lost) are passed over.
  GroupWaits(const Profile& profile, const std::map<uint64_t, RoledCommunicator>& roles,
             const std::vector<const ProfiledProcess*>& processes, const ProfiledProcess& worker);

  // The member that most of the waiting is for; -1: nobody waits, or there is no group.
  int32_t lagging() const { return lagging_; }
  // How long the group waited for it in collectives that `worker` called from `began_ns` up to `ended_ns`, on
  // the clock of its node; less what it waited for the next one in all, as a share: that much is chance.
  int64_t Waited_ns(int64_t began_ns, int64_t ended_ns) const;

 private:
  struct Wait {
    int64_t called_ns = 0;  // by the worker
    int64_t lag_ns = 0;     // the last call after the usual other one
    int32_t rank = -1;      // who called last
  };
  struct Member;

  void Compare(const std::vector<Member>& members, uint64_t communicator);

  std::vector<Wait> waits_;  // for lagging_, by call
  int32_t lagging_ = -1;
  double beyond_chance_ = 1;
};

}  // namespace c4::c4d
