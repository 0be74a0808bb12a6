// Whose queue pairs the plugin's are. ncclNet names no ranks, so they are recorded under one identity of the
// process: the launcher's rank and number of ranks, or those of the first communicator that the front door
// saw (the world, in practice), in a communicator of its own that is called "net".
//
// Any thread. An identity stays valid until it is given back; the last one that is given back ends its
// communicator's record.
#pragma once

#include "ccl/monitor/monitor.h"

namespace c4::net {

struct Identity {
  Monitor* monitor = nullptr;
  const CommunicatorRecorder* communicator = nullptr;
  int rank = 0;
  int rank_count = 1;
};

Identity TakeIdentity();
void GiveIdentityBack();

}  // namespace c4::net
