#include "ccl/transport/shm/lifeline.h"

#include <cerrno>
#include <cstring>

#include "ccl/transport/stream.h"

namespace c4::shm {

void Lifeline::Read(bool* moved) {
  while (!ended_) {
    const ssize_t got = recv(fd_.get(), in_ + in_bytes_, sizeof in_ - in_bytes_, 0);
    if (got < 0 && WouldBlock(errno)) return;
    *moved = true;
    if (got <= 0) {
      End(nullptr, got < 0 ? errno : 0);
      return;
    }
    in_bytes_ += static_cast<size_t>(got);
    if (in_bytes_ < sizeof in_) continue;
    in_bytes_ = 0;
    Frame frame;
    memcpy(&frame, in_, sizeof frame);
    if (frame.mark != kFrameMark || frame.kind != kFrameGoodbye || frame.bytes != 0) {
      End("sent what is no frame of ours", EPROTO);
      return;
    }
    peer_left_ = true;
  }
}

}  // namespace c4::shm
