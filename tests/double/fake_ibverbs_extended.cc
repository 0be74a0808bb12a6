#include "tests/double/fake_ibverbs_extended.h"

#include <utility>

namespace {

using namespace c4::verbs::abi;

FakeExtendedPair* PairOf(ExtendedQueuePair* pair) {
  return static_cast<FakeExtendedPair*>(&pair->pair);
}

// Requests are gathered, with one piece each; complete posts them.
void Begin(ExtendedQueuePair* pair, int opcode, uint32_t key, uint64_t address) {
  FakeExtendedPair::Started started{};
  started.request.id = pair->id;
  started.request.flags = pair->flags;
  started.request.opcode = opcode;
  started.request.remote_key = key;
  started.request.remote_address = address;
  PairOf(pair)->started.push_back(started);
}

int PostStarted(ExtendedQueuePair* pair) {
  std::vector<FakeExtendedPair::Started> started = std::exchange(PairOf(pair)->started, {});
  for (size_t i = 0; i < started.size(); ++i) {
    started[i].request.pieces = &started[i].piece;
    started[i].request.piece_count = 1;
    started[i].request.next = i + 1 < started.size() ? &started[i + 1].request : nullptr;
  }
  SendRequest* failed = nullptr;
  return started.empty() ? 0 : FakePostSend(&pair->pair, &started[0].request, &failed);
}

}  // namespace

QueuePair* FakeCreateExtended(Context* context, QpInitExtended* init) {
  FakeExtendedPair* const made = FakeNewPair(context, init->capacity, init->send_queue, init->receive_queue);
  SendCalls& calls = made->calls;
  calls.start = [](ExtendedQueuePair* pair) { PairOf(pair)->started.clear(); };
  calls.abort = calls.start;
  calls.complete = PostStarted;
  calls.write = [](ExtendedQueuePair* pair, uint32_t key, uint64_t address) {
    Begin(pair, kOpWrite, key, address);
  };
  calls.set_piece = [](ExtendedQueuePair* pair, uint32_t key, uint64_t address, uint32_t bytes) {
    PairOf(pair)->started.back().piece = {address, bytes, key};
  };
  return made;
}
