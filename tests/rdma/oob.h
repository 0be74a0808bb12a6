// What two programs of tests/rdma tell each other over TCP, apart from the network that they test: fixed
// messages, read when they are there. One thread. Errors end the program with a line: there is nobody to mend
// them.
#pragma once

#include <cstdint>
#include <string>

#include "ccl/base/socket.h"
#include "ccl/transport/verbs/end.h"

namespace c4::rdma_test {

enum class Word : uint32_t {
  kEnd = 1,     // the end of a queue pair's next epoch
  kLost = 2,    // receiver: its end of the queue pair is broken
  kFence = 3,   // sender: close the queue pair
  kFenced = 4,  // receiver: it is closed, `number` chunks had come
  kDone = 5,    // all is sent, or all has come and is right
  kGo = 6,      // begin with history `number`
};

struct Message {
  Word word = Word::kDone;
  uint32_t queue_pair = 0;
  uint64_t number = 0;
  verbs::End end{};
};
static_assert(sizeof(Message) == 48);

[[noreturn]] void Die(const std::string& what);
void DieUnless(const Result& result);

class Oob {
 public:
  // Waits for the peer for a minute.
  static Oob Listen(uint16_t port);
  static Oob Connect(const std::string& host, uint16_t port);

  void Say(const Message& message);
  // The other program has ended.
  bool lost() const;
  bool Hear(Message* message);  // one that is there
  Message Wait(Word word);      // the next one, which has to be this word
  int fd() const { return fd_.get(); }

 private:
  explicit Oob(Fd fd) : fd_(std::move(fd)) {}
  Fd fd_;
  char in_[sizeof(Message)];
  size_t in_bytes_ = 0;
};

}  // namespace c4::rdma_test
