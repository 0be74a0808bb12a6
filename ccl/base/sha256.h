// SHA-256 (FIPS 180-4) and HMAC with it (RFC 2104), for what ranks prove to each other when they connect
// (ccl/transport/seal.h). Written here since the library links nothing but libc, and HMAC-SHA-256 rather
// than a quicker keyed hash since it also derives keys, is what reviewers know, and its cost, a microsecond a
// connection, does not matter. Pure; any thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace c4 {

using Sha256Digest = std::array<uint8_t, 32>;

class Sha256 {
 public:
  void Add(const void* data, size_t bytes);
  // Once, at the end.
  Sha256Digest Finish();

 private:
  void Block(const uint8_t* block);

  std::array<uint32_t, 8> state_ = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                    0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  uint8_t pending_[64] = {};
  size_t pending_bytes_ = 0;
  uint64_t total_bytes_ = 0;
};

Sha256Digest HmacSha256(const void* key, size_t key_bytes, const void* data, size_t bytes);

// Whether they are equal, in a time that does not tell where they differ.
bool EqualInConstantTime(const void* a, const void* b, size_t bytes);

}  // namespace c4
