// The newer state of a host's processes put in the place of what was held of them, so that who points at a
// process, a membership or a queue pair need not look for it again with every batch.
//
// Pure functions; one thread; no errors.
#pragma once

#include <vector>

#include "c4d_master/job_state.h"

namespace c4::c4d {

enum class HostUpdate {
  kInPlace,    // everything stays where it was; memberships that changed have another revision
  kEndpoints,  // so, but a queue pair's address is another one
  kMoved,      // other processes, communicators or queue pairs than before, or these are others
};

// `held` becomes what `next` is, which is used up.
HostUpdate Replace(std::vector<Process>* held, std::vector<Process>* next);
HostUpdate Replace(Process* held, Process* next);

}  // namespace c4::c4d
