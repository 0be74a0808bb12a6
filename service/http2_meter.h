// Counts what a client sends on an HTTP/2 connection, frame by frame, before the library that serves it sees
// the frames. Frames that are cheap to send and dear to take have a rate: new streams, resets, pings,
// settings, continuations. Beyond the rate the bytes are held back. Beyond a rate that no honest client
// comes near, the connection is to be cut. The payload is passed over unread. Pure; one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace c4::service {

// So many a second, and so many at once.
class TokenBucket {
 public:
  TokenBucket(double per_second, double burst) : per_second_(per_second), burst_(burst), tokens_(burst) {}
  bool Take(int64_t now_ms);

 private:
  const double per_second_;
  const double burst_;
  double tokens_;
  int64_t at_ms_ = 0;
};

// Shared by the connections of a server.
struct Http2Totals {
  Http2Totals();
  TokenBucket opens;
  TokenBucket resets;
};

class Http2Meter {
 public:
  // `totals` must outlive the meter.
  explicit Http2Meter(Http2Totals* totals);

  // How many of the first bytes may pass now. Fewer than there are: ask again later, with the rest first.
  size_t Pass(std::string_view bytes, int64_t now_ms);

  bool greeted() const { return greeted_; }     // the preface is through, and a first frame's header
  const char* fault() const { return fault_; }  // why the connection is to be cut; nullptr: it is not

 private:
  // False: not now, or fault_ is set.
  bool FrameMayPass(int64_t now_ms);

  Http2Totals* const totals_;
  TokenBucket opens_;
  TokenBucket resets_;
  TokenBucket controls_;
  bool own_taken_ = false;  // the connection's token for the present frame, not yet the total's
  size_t preface_ = 0;      // bytes of it that were seen
  unsigned char header_[9] = {};
  size_t header_bytes_ = 0;
  size_t payload_left_ = 0;
  int continuations_ = 0;
  bool greeted_ = false;
  const char* fault_ = nullptr;
};

}  // namespace c4::service
