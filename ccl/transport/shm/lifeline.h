// The TCP stream beside a ring: as long as it is open the other end lives, and over it goes the goodbye. A
// look at it is a system call, so that it is taken only once a millisecond, and after each wait in poll,
// which may have ended because of it.
//
// Owns the stream. One thread; nothing blocks. What comes over it is checked here.
#pragma once

#include <cstdint>
#include <poll.h>

#include "ccl/base/socket.h"
#include "ccl/transport/frame.h"

namespace c4::shm {

class Lifeline {
 public:
  Lifeline(Fd fd, uint64_t ticks_per_second) : fd_(std::move(fd)), every_ticks_(ticks_per_second / 1000) {}

  // Reads what has come, when it is time to.
  void Look(uint64_t now_ticks, bool* moved) {
    if (ended_ || (now_ticks - last_look_ticks_ < every_ticks_ && !polled_)) return;
    last_look_ticks_ = now_ticks;
    polled_ = false;
    Read(moved);
  }

  int fd() const { return fd_.get(); }
  bool peer_left() const { return peer_left_; }
  // Nothing more will come: the other end has closed it, or it broke, or what came is none of ours (fault).
  bool ended() const { return ended_; }
  int error() const { return error_; }
  const char* fault() const { return fault_; }

  pollfd Poll(short events) const {
    polled_ = true;
    return {fd_.get(), events, 0};
  }

 private:
  void Read(bool* moved);
  void End(const char* fault, int error) {
    ended_ = true;
    fault_ = fault;
    error_ = error;
  }

  Fd fd_;
  const uint64_t every_ticks_;
  uint64_t last_look_ticks_ = 0;
  mutable bool polled_ = true;
  char in_[sizeof(Frame)];
  size_t in_bytes_ = 0;
  bool peer_left_ = false;
  bool ended_ = false;
  int error_ = 0;
  const char* fault_ = nullptr;
};

}  // namespace c4::shm
