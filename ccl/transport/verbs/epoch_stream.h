// The TCP stream that an epoch of a queue pair over verbs begins with: the hello with the sender's end of it,
// the answer with the receiver's, and then nothing but goodbyes. It lives as long as the epoch, and its end
// is a sign that the peer's process ended or gave the epoch up.
//
// One thread; nothing blocks. Owns the stream.
#pragma once

#include <string>

#include "ccl/base/sha256.h"
#include "ccl/base/socket.h"
#include "ccl/transport/frame.h"
#include "ccl/transport/hello.h"
#include "ccl/transport/verbs/end.h"

namespace c4::verbs {

// A hello or an answer, as it goes over the stream.
struct EndHello {
  Hello hello;
  End end;
};
static_assert(sizeof(EndHello) == kMaxHelloBytes);

class EpochStream {
 public:
  EpochStream() = default;
  // `answers`: the peer is to answer a hello before anything else.
  EpochStream(Fd fd, bool answers) : fd_(std::move(fd)), answers_(answers) {}

  // Seals it and puts it into the queue of what is to be written.
  void Say(EndHello hello, const Sha256Digest& key);
  // Writes what it can; false: the stream is lost.
  bool Write();
  // All that was said is with the kernel.
  bool said() const { return out_.empty(); }
  // Takes in what has come.
  void Read();
  bool answered() const { return answers_ && in_bytes_ >= sizeof(EndHello); }
  // REQUIRES: answered.
  EndHello answer() const;
  bool peer_left() const { return peer_left_; }
  // It has ended, or was lost; the errno, 0 for an end.
  bool over() const { return over_; }
  int error() const { return error_; }

  bool valid() const { return fd_.valid(); }
  int fd() const { return fd_.get(); }
  // Best effort; never into the middle of a hello.
  void SayGoodbye();
  void Drop();

 private:
  Fd fd_;
  bool answers_ = false;
  std::string out_;
  char in_[sizeof(EndHello)] = {};
  size_t in_bytes_ = 0;  // of the answer, which stays
  char frame_[sizeof(c4::Frame)] = {};
  size_t frame_bytes_ = 0;
  bool peer_left_ = false;
  bool over_ = false;
  int error_ = 0;
};

}  // namespace c4::verbs
