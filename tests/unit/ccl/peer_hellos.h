// What a test says as the peer of a rank's port: hellos that are in order until the test changes them.
#pragma once

#include "ccl/transport/seal.h"
#include "tests/unit/ccl/transport_ends.h"

namespace c4::tcp {

inline constexpr uint32_t kChunkBytes = 1024;

inline Hello GoodHello(uint16_t index = 0, uint16_t count = 1) {
  Hello hello{};
  hello.header = {.magic = kHelloMagic,
                  .major = kHelloMajor,
                  .minor = kHelloMinor,
                  .endian = wire::kEndianMark,
                  .header_bytes = sizeof hello,
                  .record_bytes = 0,
                  .total_bytes = sizeof hello,
                  .writer = {}};
  hello.communicator_id = kCommunicator;
  hello.from_rank = 0;
  hello.to_rank = 1;
  hello.queue_pair_index = index;
  hello.queue_pair_count = count;
  hello.transport = wire::kTransportTcp;
  hello.queue_pair_number = 5;
  hello.chunk_bytes = kChunkBytes;
  return hello;
}

// As a rank that knows the secret, which in these tests is zeros.
inline void Say(const Fd& fd, Hello hello) {
  Seal(&hello, Sha256Digest{});
  EXPECT_TRUE(SendAll(fd.get(), &hello, sizeof hello, AfterSeconds(2)).ok());
}

template <typename T>
void Say(const Fd& fd, const T& what) {
  EXPECT_TRUE(SendAll(fd.get(), &what, sizeof what, AfterSeconds(2)).ok());
}

inline Fd Dial(const SocketAddress& address) {
  Fd fd;
  EXPECT_TRUE(Connect(address, AfterSeconds(2), false, &fd).ok());
  return fd;
}

// True once the other side has closed the stream, whatever it said before.
inline bool Closed(const Fd& fd) {
  char byte = 0;
  for (int i = 0; i < 1000; ++i) {
    if (!ReceiveAll(fd.get(), &byte, 1, AfterSeconds(2)).ok()) return recv(fd.get(), &byte, 1, 0) <= 0;
  }
  return false;
}

}  // namespace c4::tcp
