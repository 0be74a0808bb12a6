// NCCL on host memory in thirty lines; docs/quickstart-c.md builds and runs it.
#include <stdio.h>
#include <stdlib.h>

#include "c4/stream.h"
#include "nccl.h"

static void check(ncclResult_t result) {
  if (result == ncclSuccess) return;
  fprintf(stderr, "%s: %s\n", ncclGetErrorString(result), ncclGetLastError(NULL));
  exit(1);
}

int main(void) {
  const char* const rank_text = getenv("RANK");
  const char* const size_text = getenv("WORLD_SIZE");
  const int rank = rank_text ? atoi(rank_text) : 0, size = size_text ? atoi(size_text) : 1;
  ncclUniqueId id;  // with NCCL_COMM_ID set, as `c4 run` does, the same on every rank
  ncclComm_t comm;
  check(ncclGetUniqueId(&id));
  check(ncclCommInitRank(&comm, size, id, rank));

  float value = (float)(rank + 1);
  check(ncclAllReduce(&value, &value, 1, ncclFloat, ncclSum, comm, NULL));  // enqueued
  check(c4StreamSynchronize(NULL));                                         // done, or failed
  printf("rank %d of %d: the sum is %.0f\n", rank, size, value);

  check(ncclCommDestroy(comm));
  return 0;
}
