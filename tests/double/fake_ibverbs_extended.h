// The double of libibverbs: queue pairs that are posted to by functions of their own (ibv_wr_*).
#pragma once

#include <vector>

#include "ccl/tap/extended_abi.h"

// As ExtendedQueuePair, with the queue pair as its base.
struct FakeExtendedPair : c4::verbs::abi::QueuePair {
  uint64_t mask = 0;
  uint64_t id = 0;
  unsigned flags = 0;
  c4::verbs::abi::SendCalls calls{};

  struct Started {
    c4::verbs::abi::SendRequest request;
    c4::verbs::abi::Piece piece;
  };
  std::vector<Started> started;  // not yet posted
};

FakeExtendedPair* FakeNewPair(c4::verbs::abi::Context* context, const c4::verbs::abi::QpCapacity& capacity,
                              c4::verbs::abi::CompletionQueue* sends,
                              c4::verbs::abi::CompletionQueue* receives);
int FakePostSend(c4::verbs::abi::QueuePair* queue_pair, c4::verbs::abi::SendRequest* request,
                 c4::verbs::abi::SendRequest** failed);
c4::verbs::abi::QueuePair* FakeCreateExtended(c4::verbs::abi::Context* context,
                                              c4::verbs::abi::QpInitExtended* init);
