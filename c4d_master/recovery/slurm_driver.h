// Slurm as a driver: nodes are drained with a reason, the job is requeued at once without them, or its step
// is started again on the allocation's spare nodes (docs/recovery.md). It talks to scontrol, squeue, sinfo
// and scancel, each a child process without a shell and with a time limit, as the user that the master is:
// one that Slurm lets do these things (an operator).
//
// It is stateless: what was asked for before is found in Slurm, by the reason of the node, the count of the
// job's requeues, and its comment. A node whose reason is not this master's is never touched.
#pragma once

#include <memory>
#include <string>

#include "c4d_master/recovery/driver.h"

namespace c4::c4d::recovery {

std::unique_ptr<Driver> MakeSlurmDriver(const SlurmConfig& config, const std::string& job);

}  // namespace c4::c4d::recovery
