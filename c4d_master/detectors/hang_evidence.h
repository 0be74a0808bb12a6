// The sentences of a hang's finding: what speaks for it, in numbers, and what to do. Pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "c4d_master/detectors/hang.h"
#include "c4d_master/finding.h"
#include "c4d_master/job_snapshot.h"

namespace c4::c4d {

// One culprit, and where it is waited for.
struct HangCase {
  const ProcessRef* culprit = nullptr;
  const Communicator* communicator = nullptr;
  const Membership* membership = nullptr;  // the culprit's in that communicator
  uint64_t operation = 0;
  bool absent = false;                      // it has not called the operation
  bool point_to_point = false;              // the operation is a send or receive of the one who waits
  std::vector<const Member*> waiting;       // in this operation
  std::vector<uint32_t> waiting_ranks;      // of those, the job's ranks, ascending
  std::vector<uint32_t> waiting_elsewhere;  // who waits through other communicators
};

// The last operation that the process called in any communicator; empty when there was none.
std::string LastCallText(const Process& process);

// "all_reduce of 1024 x float32, sum".
std::string OperationText(const OperationInfo& info);

std::vector<Evidence> HangEvidence(const JobSnapshot& snapshot, const HangCase& hang,
                                   const HangThresholds& thresholds);

std::string HangAction(const HangCase& hang);

}  // namespace c4::c4d
