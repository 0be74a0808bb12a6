// Who this process is: (boot id, pid, start time), host, job, rank labels. All from the environment and
// /proc, read when asked for. Any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <string>

#include "wire/segment.h"

namespace c4 {

// Of the calling process. Zeroed fields where /proc does not tell.
wire::ProcessIdentity CurrentProcess();
uint64_t CurrentPidNamespace();  // inode; 0 where /proc does not tell

const std::string& HostName();
std::string ProgramName();

struct JobIdentity {
  std::string name;  // empty when nothing names the job
  wire::JobSource source = wire::kJobUnknown;
  uint32_t incarnation = 0;
  int32_t rank = -1;
  int32_t local_rank = -1;
  int32_t world = -1;
};

// `environment` gives a variable's value, or nullptr. Order of the job's sources: C4_JOB_ID, Slurm's job
// and step, torchrun's run id, the pod label.
using Environment = std::function<const char*(const char*)>;
JobIdentity ReadJobIdentity(const Environment& environment);
JobIdentity ReadJobIdentity();  // from the process's own environment

// The job's name when nothing names it: from its first communicator.
std::string ProvisionalJobName(uint64_t communicator_id);

// 64-bit hash of bytes; equal on all ranks and releases: part of the formats (communicator ids).
uint64_t HashBytes(const void* data, size_t bytes, uint64_t seed = 0);

// The id of a communicator that was split off another: equal on all ranks, releases and engines, and part of
// the formats (docs/formats/bootstrap.md).
uint64_t ChildCommunicatorId(uint64_t parent_id, uint64_t split_number, int colour);

}  // namespace c4
