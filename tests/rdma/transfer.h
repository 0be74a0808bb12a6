// One history: a connection of several queue pairs over which messages go while queue pairs break, at either
// end, and are made anew. Both programs make the same plan from the seed. The receiver uses each buffer again
// at once, with another pattern, so that a late byte would be seen.
#pragma once

#include <deque>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "ccl/transport/verbs/ends.h"
#include "tests/rdma/oob.h"

namespace c4::rdma_test {

struct Plan {
  uint64_t seed = 0;
  size_t queue_pairs = 1;
  uint32_t chunk_bytes = 4096;
  uint64_t window = 4;  // messages that are open
  struct Item {
    uint64_t room = 0;   // of the receive
    uint64_t bytes = 0;  // of the message
  };
  std::vector<Item> messages;
  // Before message `at` (sender) or once it has come (receiver).
  struct Fault {
    uint64_t at = 0;
    size_t queue_pair = 0;
    enum Kind { kSenderBreaks, kReceiverBreaks, kSteer, kCommand } kind = kSenderBreaks;
    uint16_t port = 0;    // kSteer
    std::string command;  // kCommand, on the sender's side
  };
  std::vector<Fault> faults;

  static Plan Random(uint64_t seed);
  static Plan Stream(uint64_t seed, size_t queue_pairs, uint32_t chunk_bytes, uint64_t messages,
                     uint64_t message_bytes);
};

struct Tally {
  uint64_t chunks = 0;
  uint64_t bytes = 0;
  uint64_t epochs = 0;          // beyond the first ones
  uint64_t resent = 0;          // chunks
  uint64_t spared = 0;          // chunks of a failed queue pair that the fence found delivered
  uint64_t longest_gap_ns = 0;  // without a chunk that completed
  std::set<int> statuses;       // of queue pairs that failed
};

struct Context {
  verbs::UsablePort port;
  verbs::Settings settings;
  Oob* oob = nullptr;
};

// The port with the GID that it has now.
verbs::UsablePort PresentPort(const Context& context);
// An end without a path (the port is down, its address is gone) has failed like any other: it is fenced, and
// the next epoch tries again. Any other fault ends the program.
void ConnectOrBreak(verbs::FrameEnd* end, const verbs::End& peer);

// What the device says of its queue pair, and what is posted there.
std::string StateText(const verbs::FrameEnd& end);

void RunSender(const Context& context, const Plan& plan, Tally* tally);
void RunReceiver(const Context& context, const Plan& plan, Tally* tally);

// Byte `at` of message `number`.
char ByteOf(uint64_t seed, uint64_t number, uint64_t at);

}  // namespace c4::rdma_test
