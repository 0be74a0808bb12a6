#include "tests/rdma/transfer.h"

#include <algorithm>
#include <cstring>
#include <poll.h>

namespace c4::rdma_test {

char ByteOf(uint64_t seed, uint64_t number, uint64_t at) {
  return static_cast<char>((seed * 31 + number * 131 + at * 7 + (at >> 8)) & 0x7f);
}

Plan Plan::Random(uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto below = [&](uint64_t most) { return random() % most; };
  Plan plan;
  plan.seed = seed;
  plan.queue_pairs = 1 + below(3);
  plan.chunk_bytes = 1024u << below(3);
  plan.window = 1 + below(6);
  const uint64_t messages = 2 + below(10);
  for (uint64_t i = 0; i < messages; ++i) {
    Item item;
    item.room = below(5) == 0 ? 0 : below(5ull * plan.chunk_bytes);
    item.bytes = below(3) == 0 ? below(item.room + 1) : item.room;
    plan.messages.push_back(item);
  }
  const uint64_t faults = below(4);
  for (uint64_t i = 0; i < faults; ++i) {
    Fault fault;
    fault.at = below(messages);
    fault.queue_pair = below(plan.queue_pairs);
    fault.kind = static_cast<Fault::Kind>(below(3));
    fault.port = static_cast<uint16_t>(0xc000 + below(0x4000));
    plan.faults.push_back(fault);
  }
  return plan;
}

Plan Plan::Stream(uint64_t seed, size_t queue_pairs, uint32_t chunk_bytes, uint64_t messages,
                  uint64_t message_bytes) {
  Plan plan;
  plan.seed = seed;
  plan.queue_pairs = queue_pairs;
  plan.chunk_bytes = chunk_bytes;
  plan.messages.assign(messages, {message_bytes, message_bytes});
  return plan;
}

verbs::UsablePort PresentPort(const Context& context) {
  verbs::UsablePort port = context.port;
  verbs::RenewGid(context.settings.gid, &port);
  return port;
}

void ConnectOrBreak(verbs::FrameEnd* end, const verbs::End& peer) {
  const Result connected = end->queue_pair().Connect(peer);
  if (connected.ok()) return;
  if (connected.code() != ncclSystemError) Die(connected.message());
  poll(nullptr, 0, 20);  // not again and again at once
  DieUnless(end->Break());
}

std::string StateText(const verbs::FrameEnd& end) {
  return end.queue_pair().StateText() + ", " + std::to_string(end.queue_pair().sends_posted()) +
         " sends and " + std::to_string(end.queue_pair().receives_posted()) + " receives posted";
}

}  // namespace c4::rdma_test
