// Who ended first, and how: of processes that all died within moments, because a launcher ends what is left
// of a broken job, only the order and the manner of their ends tell who broke it.
//
// Pure functions of the snapshot; any thread; no errors.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "c4d_master/job_snapshot.h"

namespace c4::c4d {

enum class Manner {
  kUnknown,  // nobody saw how
  kOwn,  // a fault of its own: a signal that programs give themselves, an exit status that is not 0, an error
         // of its device or system, more memory than there was
  kOutside,  // a signal by which launchers, kernels and people end others
  kInOrder,  // exit status 0
  kVictim,   // it gave up before: it had lost a peer, or waited in vain
};

struct End {
  uint32_t process = 0;  // index into the snapshot's
  Manner manner = Manner::kUnknown;
  int64_t at_ns = 0;     // when it ended; of one that failed by itself before, when it did
  int64_t error_ns = 0;  // how far off that may be, against other hosts
};

// Of one that is dead. `look_ns`: how far off a time may be that an agent did not see exactly. `wait_ns`: who
// waited in an operation for so long before it gave its communicators up gave up waiting.
End EndOf(const JobSnapshot& snapshot, uint32_t process, int64_t look_ns, int64_t wait_ns);

// Whether it is certain that `a` ended before `b`.
bool EndedBefore(const JobSnapshot& snapshot, const End& a, const End& b);

// Those that none of the others certainly ended before.
std::vector<End> FirstOf(const JobSnapshot& snapshot, const std::vector<End>& ends);

// Whether no host may yet tell of an end that came before this one or within `after_ns` of it, or of how this
// one came.
bool IsHeardWhole(const JobSnapshot& snapshot, const End& end, int64_t after_ns);

// "killed by SIGSEGV (signal 11)", "exited with status 1"; "gone" where nobody saw how.
std::string ExitText(const ProcessRef& ref);

// Whether its kernel says that it killed it for want of memory.
bool DiedForMemory(const ProcessRef& ref);

// What a person would look at, by the manner of its end; a sentence without its end.
std::string WhereToLook(const ProcessRef& ref);

// What it said before it ended: the communicator that it gave up first; nullptr: nothing.
const Membership* LastWords(const Process& process);

}  // namespace c4::c4d
