// The job at one moment, put together across its hosts: communicators with all their members, who of
// them can be judged, and how long each has stood still. This is what the detectors look at.
//
// A snapshot points into the hosts that it was made from and lives no longer than they stay unchanged.
// Assemble is a pure function; one thread.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "c4d_master/job_state.h"

namespace c4::c4d {

// The end of a process is news for so long, though its rank runs again already.
inline constexpr int64_t kReplacedNs = 2 * kSecondNs;

struct ProcessRef {
  const Host* host = nullptr;
  const Process* process = nullptr;
  bool stale = false;       // its agent has been silent: nothing is known of it now
  bool superseded = false;  // its rank has been taken over, or its whole job has gone on without it
  // See QueuePairSums.
  int64_t outstanding_since_ns = INT64_MAX;
};

struct Member {
  uint32_t process = 0;               // index into JobSnapshot::processes
  const Membership* state = nullptr;  // without queue pairs where its steps are told from calls
  const Membership* own = nullptr;    // as its process has it
};

enum class Judgement {
  kCanBeJudged,
  kStale,       // a member's agent is silent
  kIncomplete,  // fewer members are seen than it has ranks
  kNotReady,    // still being set up, or over, on some member
};

struct Communicator {
  uint64_t id = 0;
  uint32_t rank_count = 0;
  std::string name;
  std::vector<Member> members;  // by rank in the communicator
  Judgement judgement = Judgement::kIncomplete;
  // The vendor's engine runs it on some member, and nobody sees there what its kernels do: what its members
  // wait for is told from their calls alone (Assemble).
  bool calls_only = false;
  bool calls_may_differ = true;      // false: of no operation two members have called something else
  bool waited_in = false;            // some member is inside an operation
  bool joining = false;              // some member that could go on has yet to become ready
  int64_t as_of_ns = 0;              // all of its members whose agents speak are known at least up to here
  int64_t last_step_at_ns = kNever;  // the newest step of any member's counters and queue pairs
  uint64_t progress_mark = 0;        // changes whenever anything moves
  uint64_t finished_by_all = 0;      // operations
  // Members who have finished all that they called, of each different last call one at least.
  std::vector<uint32_t> settled;
  int64_t longest_standstill_ns = 0;  // that is usual here (rhythm.h); 0 while nothing was learnt
  int64_t longest_in_job_ns = 0;      // in any communicator of the job, now or before
  int64_t pace_ns = 0;                // the longest between two of its steps of late (rhythm.h)
  // Calls that went well here (rhythm.h); valid until the next observation.
  const std::vector<OperationInfo>* usual_calls = nullptr;

  const Member* FindRank(uint32_t rank) const;  // nullptr: it is not seen
  int64_t StandstillNs() const {
    return last_step_at_ns == kNever || as_of_ns < last_step_at_ns ? 0 : as_of_ns - last_step_at_ns;
  }
};

struct JobQueuePairs;

struct JobSnapshot {
  std::vector<ProcessRef> processes;
  std::vector<Communicator> communicators;  // by id
  // As they ended, of ranks that were started again within kReplacedNs of their end: a launcher may be
  // quicker than anybody who looks. By id; incomplete while some of their ranks are not yet seen to run
  // again.
  std::vector<Communicator> former;
  int64_t silent_from_ns = kNever;  // of the host that was last heard again after it had been stale
  int64_t back_at_ns = kNever;
  // See QueuePairsOf (detectors/queue_pair_ends.h), which makes them; they point into this snapshot.
  mutable std::shared_ptr<const JobQueuePairs> queue_pairs;
  std::shared_ptr<const void> holds;        // what members point into, where nobody else keeps it
  std::map<std::string, bool> stale_hosts;  // every known host -> whether its agent is silent
  std::vector<std::string> conflicts;       // sentences: who claims the same rank, and who was believed
  // Changes with the processes, communicators and members that there are; 0: look at all of them.
  uint64_t structure = 0;
  std::vector<uint32_t>
      changed;  // communicators with new figures since the snapshot before of this structure

  const Communicator* Find(uint64_t communicator_id) const;  // nullptr when there is none
};

// Its process ended without having left in order, and not long ago.
bool EndedJustNow(const ProcessRef& ref);

// "Waits": it has started an operation that has not finished, and could go on by itself.
bool IsWaiting(const Process& process, const Membership& membership);

// The same for sends and receives.
bool IsWaitingForPeer(const Process& process, const Membership& membership);

// Where calls are all that is seen of a communicator, an operation that all members have called counts as
// finished by all, and one that some have called as begun by these: so who has not called it holds up the
// others, and a communicator that all have called the same of waits for nobody that could be told. Sends and
// receives count as finished with their call.
//
// `agent_stale_ns`: a host whose state is older than that is stale.
JobSnapshot Assemble(const std::map<std::string, Host>& hosts, int64_t now_ns, int64_t agent_stale_ns);

}  // namespace c4::c4d
