// What a job's processes have sent each other, by the counters of their queue pairs: what S3 is decided by
// (placement_offer.h). Pure; any thread.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "c4d_master/job_state.h"

namespace c4::c4d {

// Host and process id, as plans name processes.
using HostPid = std::pair<std::string, uint32_t>;

template <typename Number>
using BytesByPair = std::map<std::pair<HostPid, HostPid>, Number>;  // sender, receiver

struct JobTraffic {
  std::map<HostPid, int32_t> ranks;       // the job's; -1: not known
  BytesByPair<uint64_t> completed_bytes;  // since the connections were made
};

// Of the processes that run. Where the vendor's engine or a plugin shows the same bytes as the queue pairs
// below it, they count once.
JobTraffic TrafficOf(const std::map<std::string, Host>& hosts);

// In each of `steps` steps between the two. Empty: a connection was made anew meanwhile, or nothing was sent.
BytesByPair<double> BytesPerStep(const JobTraffic& before, const JobTraffic& after, uint64_t steps);

}  // namespace c4::c4d
