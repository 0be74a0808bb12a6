#include "service/http2_meter.h"

#include <algorithm>

#include "service/limits.h"

namespace c4::service {
namespace {

constexpr std::string_view kPreface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
// Frame types of RFC 9113, section 6.
constexpr int kData = 0;
constexpr int kHeaders = 1;
constexpr int kReset = 3;
constexpr int kContinuation = 9;
// Smaller data frames than these cost as much as they carry.
constexpr size_t kTinyBytes = 5;

}  // namespace

bool TokenBucket::Take(int64_t now_ms) {
  if (at_ms_ == 0) at_ms_ = now_ms;
  tokens_ = std::min(
      burst_, tokens_ + static_cast<double>(std::max<int64_t>(0, now_ms - at_ms_)) * 1e-3 * per_second_);
  at_ms_ = now_ms;
  if (tokens_ < 1) return false;
  tokens_ -= 1;
  return true;
}

Http2Totals::Http2Totals()
    : opens(limits::kAllOpensPerSecond, limits::kAllOpensBurst),
      resets(limits::kAllResetsPerSecond, limits::kAllResetsBurst) {}

Http2Meter::Http2Meter(Http2Totals* totals)
    : totals_(totals),
      opens_(limits::kOpensPerSecond, limits::kOpensBurst),
      resets_(limits::kResetsPerSecond, limits::kResetsBurst),
      controls_(limits::kControlsPerSecond, limits::kControlsBurst) {}

bool Http2Meter::FrameMayPass(int64_t now_ms) {
  const size_t length =
      static_cast<size_t>(header_[0]) << 16 | static_cast<size_t>(header_[1]) << 8 | header_[2];
  const int type = header_[3];
  if (type == kContinuation) {
    if (++continuations_ > limits::kContinuations) fault_ = "sends headers without an end";
    return fault_ == nullptr;
  }
  continuations_ = 0;
  if (type == kHeaders) {
    if (!own_taken_ && !opens_.Take(now_ms)) return false;
    own_taken_ = true;
    if (!totals_->opens.Take(now_ms)) return false;
    own_taken_ = false;
    return true;
  }
  if (type == kReset) {
    if (!resets_.Take(now_ms) || !totals_->resets.Take(now_ms)) fault_ = "opens streams and resets them";
    return fault_ == nullptr;
  }
  return (type == kData && length > kTinyBytes) || controls_.Take(now_ms);
}

size_t Http2Meter::Pass(std::string_view bytes, int64_t now_ms) {
  size_t at = 0;  // of `bytes`; those before it were taken in
  size_t may_pass = 0;
  while (at < bytes.size() && fault_ == nullptr) {
    if (preface_ < kPreface.size()) {
      if (bytes[at] != kPreface[preface_]) {
        fault_ = "does not speak HTTP/2";
        break;
      }
      ++preface_;
      may_pass = ++at;
    } else if (payload_left_ > 0) {
      const size_t part = std::min(payload_left_, bytes.size() - at);
      payload_left_ -= part;
      may_pass = at += part;
    } else {
      // A header waits with its bytes until the frame may pass: what is cut off here is seen again.
      header_[header_bytes_] = static_cast<unsigned char>(bytes[at++]);
      if (++header_bytes_ < sizeof header_) {
        may_pass = at;
        continue;
      }
      if (!FrameMayPass(now_ms)) {
        --header_bytes_;  // its last byte is asked about again
        break;
      }
      greeted_ = true;
      header_bytes_ = 0;
      payload_left_ =
          static_cast<size_t>(header_[0]) << 16 | static_cast<size_t>(header_[1]) << 8 | header_[2];
      may_pass = at;
    }
  }
  return may_pass;
}

}  // namespace c4::service
