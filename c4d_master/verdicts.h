// The life of verdicts: suspected, perhaps confirmed, cleared in the end (docs/verdicts.md).
//
// A verdict is known by its syndrome and its culprit: a process, a node, a NIC; sets of connections, and of
// candidates where it is ambiguous, are the same one while they overlap. As long as the finding comes again
// it is the same verdict. It is cleared when fresh data no longer shows it; silence of an agent clears
// nothing, and what cannot be judged for another reason, or was loaded after a restart, has settle_ns of
// fresh data to come back first. State, times and ids depend on the arguments alone.
//
// One thread; no errors.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "c4/v1/c4d.pb.h"
#include "c4d_master/finding.h"
#include "c4d_master/job_snapshot.h"

namespace c4::c4d {

inline constexpr size_t kMaxCleared = 1000;  // that are kept in memory; the store keeps more

// How long a verdict stays though its finding does not come again.
struct VerdictThresholds {
  int64_t settle_ns = 10 * kSecondNs;
  int64_t slow_settle_ns = 2 * kSecondNs;     // what is slow goes up and down
  int64_t end_settle_ns = 60 * kSecondNs;     // who is gone is forgotten by its agent, not by us
  int64_t silent_clear_ns = 300 * kSecondNs;  // a host that does not come back
  // What only its length makes certain has to have been seen for so long: where a long wait ends, the next in
  // line look for a moment as if it had been for them.
  int64_t by_length_ns = 2 * kSecondNs;
  // The same of a few slow ways that nobody knows a common cause of: flows that met on a link part again.
  int64_t scattered_ns = 15 * kSecondNs;
  // What is slow in each step of a job of long steps is gone between them: what has been suspected for the
  // recurring_times-th time within recurring_ns is certain. What comes again sooner than recurring_apart_ns
  // rests on the same seconds of telemetry and counts once.
  size_t recurring_times = 3;
  int64_t recurring_ns = 60 * kSecondNs;
  int64_t recurring_apart_ns = 4 * kSecondNs;
};

struct VerdictChange {
  enum class Kind { kSuspected, kConfirmed, kUpdated, kCleared };
  Kind kind = Kind::kSuspected;
  v1::Verdict verdict;
};

std::string_view VerdictChangeWord(VerdictChange::Kind kind);  // "suspected", "confirmed", …

class Verdicts {
 public:
  // Ids are made of the epoch and a number, so that they are unique even when the store was lost.
  Verdicts(std::string job, uint64_t master_epoch);

  // From now on. `version` of the whole policy, which verdicts carry that come into a state from now on.
  void SetPolicy(const VerdictThresholds& thresholds, std::string version);

  // What an earlier master left, oldest first.
  void Restore(const std::vector<v1::Verdict>& verdicts);

  // The findings of a snapshot; gives what has changed, in the order in which it did.
  std::vector<VerdictChange> Update(const std::vector<Finding>& findings, const JobSnapshot& snapshot,
                                    Now now);

  // That verdict is not cleared for want of a finding, until another one, or none (""), is held.
  void Hold(const std::string& id) { held_ = id; }
  // Of an experiment about the verdict, in the place of what was known of it: its own record is by id. None:
  // there is no such verdict any more.
  std::optional<VerdictChange> Note(const std::string& id, const v1::Intervention& intervention);
  // Of the open verdict that this finding is of; empty: there is none yet.
  std::string IdOf(const Finding& finding);

  // By onset, oldest first.
  std::vector<v1::Verdict> List(bool include_cleared) const;

  size_t CountOpen(v1::VerdictState state) const;
  size_t CountOpen() const { return open_.size(); }

 private:
  struct Open {
    v1::Verdict verdict;
    bool restored = false;               // not seen yet by this master
    int64_t settling_since_ns = kNever;  // first fresh data without it
    int64_t silent_since_ns = kNever;    // nothing tells whether it goes on
  };
  // After how long without the finding it is over: 0, a time, or silent_clear_ns where no data can tell.
  struct Absence {
    bool silent = false;
    int64_t settle_ns = 0;
  };

  Open* FindOpen(const Finding& finding);
  Absence Judge(const Open& open, const JobSnapshot& snapshot) const;
  bool IsOver(Open* open, const JobSnapshot& snapshot, int64_t now_ns) const;
  bool Recurs(const Finding& finding, int64_t now_unix_ns) const;
  void Clear(Open* open, Now now, std::vector<VerdictChange>* changes);

  const std::string job_;
  const uint64_t master_epoch_;
  VerdictThresholds thresholds_;
  std::string policy_version_;
  std::string held_;
  uint64_t next_number_ = 1;
  std::vector<Open> open_;
  std::deque<v1::Verdict> cleared_;
};

}  // namespace c4::c4d
