// Parses messages of peers within bounds. A few bytes on the wire can become hundreds in memory: an empty
// message within another takes two bytes. Nobody counts that while a message is parsed. So a walk over the
// bytes estimates from above what the message would take, before it is parsed. All messages of a server that
// are parsed and not given back yet share one budget.
#pragma once

#include <atomic>
#include <cstddef>
#include <google/protobuf/message.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/slice.h>
#include <utility>

#include "service/status.h"

namespace c4::service {

// The bytes of memory that `wire` would take when it is parsed as a message of type `prototype`: at least.
// ResourceExhausted: more than `most`; InvalidArgument: it is no such message.
absl::StatusOr<size_t> ParsedBytes(const grpc::Slice& wire, const google::protobuf::Message& prototype,
                                   size_t most);

class ParseBudget;

// Of a budget, given back at its end. Movable.
class ParseShare {
 public:
  ParseShare() = default;
  ~ParseShare() { Free(); }
  ParseShare(ParseShare&& other) noexcept { *this = std::move(other); }
  ParseShare& operator=(ParseShare&& other) noexcept {
    Free();
    budget_ = std::exchange(other.budget_, nullptr);
    bytes_ = std::exchange(other.bytes_, 0);
    return *this;
  }
  void Free();

 private:
  friend class ParseBudget;
  ParseBudget* budget_ = nullptr;
  size_t bytes_ = 0;
};

// Any thread. Outlives its shares.
class ParseBudget {
 public:
  explicit ParseBudget(size_t most) : most_(most) {}
  ParseBudget(const ParseBudget&) = delete;
  ParseBudget& operator=(const ParseBudget&) = delete;

  // Fills `message`, which takes at most `most` bytes. ResourceExhausted: it would take more, or others take
  // so much that there is no room now; InvalidArgument: it is no such message. `share` is for as long as the
  // message lives.
  absl::Status Parse(const grpc::ByteBuffer& wire, size_t most, google::protobuf::Message* message,
                     ParseShare* share);
  size_t taken() const { return taken_; }

 private:
  friend class ParseShare;
  const size_t most_;
  std::atomic<size_t> taken_ = 0;
};

// Of all that the peers of this process have sent (limits::kParsedBytes).
ParseBudget& PeersMessages();

// The wire's form of a message.
grpc::ByteBuffer Serialized(const google::protobuf::Message& message);

}  // namespace c4::service
