// What recovery wants to know of the job: which incarnation it is in, whether that runs, and where its ranks
// are. Pure; a look at what the agents told.
#pragma once

#include <map>
#include <set>
#include <string>

#include "c4/v1/c4d.pb.h"
#include "c4d_master/job_state.h"

namespace c4::c4d::recovery {

struct JobProgress {
  bool seen = false;  // there are ranks
  uint32_t incarnation = 0;
  // All ranks of that incarnation are there, and each has finished an operation in every communicator that it
  // is in, or kManyOperations of them altogether (some communicators are rarely used).
  bool running = false;
  std::set<std::string> hosts;                 // of its ranks
  std::map<std::string, int64_t> heard_at_ns;  // hosts with processes that have not ended: when last

  static constexpr uint64_t kManyOperations = 50;
};

JobProgress ProgressOf(const std::map<std::string, Host>& hosts);

// The incarnation of the process that a verdict names; of a node the latest of its ranks; else `fallback`.
uint32_t IncarnationOf(const v1::Verdict& verdict, const std::map<std::string, Host>& hosts,
                       uint32_t fallback);

}  // namespace c4::c4d::recovery
