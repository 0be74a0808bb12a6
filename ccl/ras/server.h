// The process's server of NCCL's RAS protocol, for communicators of the host engine (docs/sources.md): a
// thread, `c4-ras`, that answers who connects to NCCL_RAS_ADDR, asks the other processes of the job for it,
// and answers them. It runs while the process has communicators. Every process of a host listens on the same
// port, as NCCL's do; the kernel picks one. Any thread.
#pragma once

#include <memory>

#include "ccl/ras/member.h"

namespace c4::ras {

// False: NCCL_RAS_ENABLE says no; then nothing here is to be called.
bool IsWanted();

// From now on the communicator is in reports. Where no thread or no socket can be had, it is not, and the log
// says so: nothing else depends on it.
void Register(std::shared_ptr<const Member> member);
// Waits until nobody calls member->state() any more. No effect for one that was not registered.
void Unregister(const std::shared_ptr<const Member>& member);
// NVIDIA's engine is in this process, too, and answers on that port: this one answers the other processes
// only.
void LeavePortToVendor();

}  // namespace c4::ras
