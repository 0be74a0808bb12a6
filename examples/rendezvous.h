// How the ranks of a job agree on a communicator's unique id before there is any communicator: rank 0 makes
// it and serves it at MASTER_ADDR:MASTER_PORT, the others fetch it, as a framework's store does.
//
// Blocks until all ranks have it or `timeout_s` is over. Prints what went wrong and returns false.
#pragma once

#include "ccl/include/nccl.h"

namespace c4::examples {

struct World {
  int rank = 0;
  int size = 1;
};

// RANK and WORLD_SIZE; false with a sentence on standard error when they are missing or wrong.
bool ReadWorld(World* world);

bool ShareUniqueId(const World& world, int timeout_s, ncclUniqueId* id);

}  // namespace c4::examples
