// One segment file of the run directory and the process that writes it: opened once, read at every scan,
// watched for the end of its writer. The writer lives as long as it holds its fcntl lock for writing on byte
// 0; the lock's holder gives the process id in the agent's own namespace.
// Owns the descriptor. One thread. Faults are kept as sentences and told once by the scanner.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <sys/types.h>
#include <vector>

#include "c4a/clock_relation.h"
#include "c4a/exit_watch.h"
#include "c4a/health.h"
#include "c4a/iteration_tracker.h"
#include "c4a/operation_tally.h"
#include "c4a/proc_reader.h"
#include "c4a/profile_log.h"
#include "c4a/segment_reader.h"
#include "service/status.h"

namespace c4::agent {

// Where reading a ring begins: with the oldest record, or behind the newest one (an agent that was started
// anew must not report again what its predecessor has).
enum class RingStart { kOldest, kNewest };

class SegmentFile {
 public:
  // Takes over `fd`, a regular file opened for reading.
  SegmentFile(std::string name, int fd, dev_t device, ino_t inode);
  ~SegmentFile();
  SegmentFile(const SegmentFile&) = delete;
  SegmentFile& operator=(const SegmentFile&) = delete;

  // Reads the segment for the first time and says whether it can be read at all.
  absl::Status Start(RingStart start);

  // Reads everything anew, and has `exits` watch for the process's end. `tsc`: nothing where this node has no
  // invariant counter.
  void Update(const ProcReader& proc, const std::optional<ClockRelation>& tsc, int64_t now_ns,
              ExitWatch* exits);

  // To be called before it is let go.
  void StopWatching(ExitWatch* exits);

  const std::string& name() const { return name_; }
  bool IsFile(dev_t device, ino_t inode) const { return device == device_ && inode == inode_; }
  const SegmentSnapshot& snapshot() const { return snapshot_; }
  const wire::SegmentHeader& header() const { return snapshot_.header; }
  const ProcessHealth& health() const { return health_.health(); }
  const ClockRelation& clock() const { return clock_; }
  uint32_t pid() const { return pid_; }             // as the agent sees it, else as the process itself does
  int64_t owner_uid() const { return owner_uid_; }  // of the file; -1: not known
  bool alive() const { return alive_; }
  bool ended() const { return snapshot_.header.ended != 0; }
  // Why the content is no longer believed; empty while it is. The snapshot is then the last good one.
  const std::string& suspicion() const { return suspicion_; }
  uint64_t records_read() const { return records_read_; }
  uint64_t records_lost() const { return records_lost_; }
  std::vector<OperationTotals> TakeOperations() { return tally_.Take(); }
  const OperationTally& tally() const { return tally_; }
  ProfileLog& profile() { return profile_; }
  IterationTracker& iterations() { return iterations_; }

  bool reported_after_end = false;  // the last report has gone out: the file may go

 private:
  // The writer's process id as the agent sees it: nothing when nobody holds the lock, 0 when the holder is
  // outside the agent's namespace.
  std::optional<uint32_t> LockHolder() const;
  void UpdateHealth(const ProcReader& proc, int64_t now_ns, ExitWatch* exits);
  void Gone(int64_t now_ns);
  void TakeExit(int64_t now_ns, ExitWatch* exits);
  void ReadContent(const std::optional<ClockRelation>& tsc, int64_t now_ns);
  void ReadRings(int64_t now_ns);
  void Suspect(const std::string& why);

  const std::string name_;
  const int fd_;
  const dev_t device_;
  const ino_t inode_;
  const int64_t owner_uid_;
  FileSource source_;
  SegmentSnapshot snapshot_;
  std::vector<RingCursor> cursors_;
  OperationTally tally_;
  ProfileLog profile_;
  IterationTracker iterations_;
  HealthTracker health_;
  ClockRelation clock_;
  uint32_t pid_ = 0;
  bool alive_ = true;
  bool exit_watched_ = false;  // its end is watched, and not told yet
  bool read_after_end_ = false;
  std::string suspicion_;
  uint64_t records_read_ = 0;
  uint64_t records_lost_ = 0;
};

}  // namespace c4::agent
