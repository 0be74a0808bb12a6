#include "ccl/transport/verbs/epoch_stream.h"

#include <cerrno>
#include <cstring>

#include "ccl/transport/seal.h"
#include "ccl/transport/stream.h"
#include "ccl/transport/stream_info.h"

namespace c4::verbs {

void EpochStream::Say(EndHello hello, const Sha256Digest& key) {
  Seal(&hello, sizeof hello, key);
  out_.append(reinterpret_cast<const char*>(&hello), sizeof hello);
}

bool EpochStream::Write() {
  while (!out_.empty()) {
    const ssize_t sent = send(fd_.get(), out_.data(), out_.size(), kPrompt);
    if (sent < 0) {
      if (WouldBlock(errno)) return true;
      error_ = errno;
      over_ = true;
      return false;
    }
    out_.erase(0, static_cast<size_t>(sent));
  }
  return true;
}

void EpochStream::Read() {
  while (!over_ && fd_.valid()) {
    const bool of_answer = answers_ && in_bytes_ < sizeof in_;
    char* const to = of_answer ? in_ + in_bytes_ : frame_ + frame_bytes_;
    const size_t room = of_answer ? sizeof in_ - in_bytes_ : sizeof frame_ - frame_bytes_;
    const ssize_t got = recv(fd_.get(), to, room, 0);
    if (got <= 0) {
      if (got < 0 && WouldBlock(errno)) return;
      if (got < 0) error_ = errno;
      over_ = true;
      return;
    }
    (of_answer ? in_bytes_ : frame_bytes_) += static_cast<size_t>(got);
    if (frame_bytes_ < sizeof frame_) continue;
    c4::Frame frame;
    memcpy(&frame, frame_, sizeof frame);
    frame_bytes_ = 0;
    if (frame.mark == c4::kFrameMark && frame.kind == c4::kFrameGoodbye) {
      peer_left_ = true;
    } else {
      error_ = EPROTO;
      over_ = true;
    }
  }
}

EndHello EpochStream::answer() const {
  EndHello answer;
  memcpy(&answer, in_, sizeof answer);
  return answer;
}

void EpochStream::SayGoodbye() {
  if (fd_.valid() && !over_ && said()) c4::SendGoodbye(fd_.get());
}

void EpochStream::Drop() {
  Discard(&fd_);
}

}  // namespace c4::verbs
