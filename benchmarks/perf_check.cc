#include "benchmarks/perf_check.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <vector>

namespace c4::perf {
namespace {

// What nothing has written: of a floating-point number tiny, of a whole one not what sums give.
constexpr char kUntouched = '\xa5';

// Part of a buffer, in elements from its beginning.
struct Range {
  size_t begin = 0;
  size_t end = 0;
};

Range Common(Range a, Range b) {
  const size_t begin = std::max(a.begin, b.begin);
  return {begin, std::max(begin, std::min(a.end, b.end))};
}

// What the call's own data covers of the receive buffer before the call.
Range SentInPlace(const CheckedCall& call) {
  if (!call.in_place) return {};
  return {call.shape.in_place_send_offset, call.shape.in_place_send_offset + call.shape.send_elements};
}

class Comparison {
 public:
  Comparison(const CheckedCall& call, std::string* first)
      : call_(call), bytes_(call.data->type().bytes), first_(first) {}

  int64_t wrong() const { return wrong_; }

  void Received(const Piece& piece) {
    const size_t at = call_.in_place ? call_.shape.in_place_recv_offset + piece.first : piece.first;
    const char* const begin = call_.recv + at * bytes_;
    const Data& data = *call_.data;
    Note(piece.reduced ? data.CompareReduced(begin, piece.count, piece.source, call_.round)
                       : data.CompareSent(begin, piece.count, piece.rank, piece.source, call_.round),
         piece.first);
  }

  // Elements of the receive buffer that the call had no business with.
  void Kept(Range range) {
    const Range sent = Common(range, SentInPlace(call_));
    if (sent.begin == sent.end) return Untouched(call_.recv, range);
    Untouched(call_.recv, {range.begin, sent.begin});
    Sent(call_.recv, sent, sent.begin - call_.shape.in_place_send_offset);
    Untouched(call_.recv, {sent.end, range.end});
  }

  void Sent(const char* buffer, Range range, size_t source) {
    const size_t count = range.end - range.begin;
    Note(call_.data->CompareSent(buffer + range.begin * bytes_, count, call_.place.rank, source, call_.round),
         range.begin);
  }

  void Guards(const char* buffer, size_t elements) {
    Bytes(buffer - kGuardBytes, kGuardBytes, "before");
    Bytes(buffer + elements * bytes_, kGuardBytes, "behind");
  }

 private:
  void Untouched(const char* buffer, Range range) {
    Bytes(buffer + range.begin * bytes_, (range.end - range.begin) * bytes_, "within");
  }

  void Bytes(const char* at, size_t bytes, const char* where) {
    int64_t elements = 0;
    size_t last = bytes;  // of the element last counted
    for (size_t i = 0; i < bytes; ++i) {
      if (at[i] == kUntouched) continue;
      if (elements == 0 || i / bytes_ != last) ++elements;
      last = i / bytes_;
    }
    if (elements > 0 && wrong_ == 0)
      *first_ = std::string("wrote what was not its own ") + where + " a buffer";
    wrong_ += elements;
  }

  void Note(const Mistakes& mistakes, size_t offset) {
    if (mistakes.count > 0 && wrong_ == 0) {
      char text[128];
      snprintf(text, sizeof text, "gave %.17g instead of %.17g at element %zu", mistakes.got,
               mistakes.expected, offset + mistakes.first);
      *first_ = text;
    }
    wrong_ += mistakes.count;
  }

  const CheckedCall& call_;
  const size_t bytes_;
  std::string* const first_;
  int64_t wrong_ = 0;
};

}  // namespace

size_t SendCapacity(const Shape& shape) {
  return shape.send_elements;
}

size_t RecvCapacity(const Shape& shape) {
  return std::max(shape.in_place_send_offset + shape.send_elements,
                  shape.in_place_recv_offset + shape.recv_elements);
}

void Prepare(const CheckedCall& call) {
  const size_t bytes = call.data->type().bytes;
  memset(call.recv - kGuardBytes, kUntouched, RecvCapacity(call.shape) * bytes + 2 * kGuardBytes);
  char* send = call.recv + call.shape.in_place_send_offset * bytes;
  if (!call.in_place) {
    memset(call.send - kGuardBytes, kUntouched, SendCapacity(call.shape) * bytes + 2 * kGuardBytes);
    send = call.send;
  }
  call.data->Fill(send, call.shape.send_elements, call.round);
}

int64_t CountWrong(const CheckedCall& call, std::string* first) {
  Comparison comparison(call, first);
  const size_t offset = call.in_place ? call.shape.in_place_recv_offset : 0;
  size_t at = 0;
  for (const Piece& piece : ReceivedPieces(call.kind, call.shape, call.place, call.root)) {
    comparison.Kept({at, offset + piece.first});
    comparison.Received(piece);
    at = offset + piece.first + piece.count;
  }
  const size_t end = RecvCapacity(call.shape);
  comparison.Kept({at, end});
  comparison.Guards(call.recv, end);
  if (!call.in_place) {
    comparison.Sent(call.send, {0, call.shape.send_elements}, 0);
    comparison.Guards(call.send, call.shape.send_elements);
  }
  return comparison.wrong();
}

}  // namespace c4::perf
