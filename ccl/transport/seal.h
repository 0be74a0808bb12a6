// What a stream proves with its hello: that whoever connects knows the secret of the communicator, which its
// ranks share and nobody else learns (docs/formats/tcp.md). The communicator's id is no secret. Pure.
#pragma once

#include <cstring>

#include "ccl/base/sha256.h"
#include "ccl/transport/hello.h"

namespace c4 {

// Over the hello, its `mac` as zeros, and what follows it.
inline void MacOf(const void* hello, size_t bytes, const Sha256Digest& key, uint8_t (&mac)[kMacBytes]) {
  char plain[kMaxHelloBytes];
  memcpy(plain, hello, bytes);
  memset(plain + offsetof(Hello, mac), 0, kMacBytes);
  const Sha256Digest digest = HmacSha256(key.data(), key.size(), plain, bytes);
  memcpy(mac, digest.data(), sizeof mac);
}

// REQUIRES: `bytes` is at least a Hello and at most kMaxHelloBytes.
inline void Seal(void* hello, size_t bytes, const Sha256Digest& key) {
  uint8_t mac[kMacBytes];
  MacOf(hello, bytes, key, mac);
  memcpy(static_cast<char*>(hello) + offsetof(Hello, mac), mac, sizeof mac);
}
inline void Seal(Hello* hello, const Sha256Digest& key) {
  Seal(hello, sizeof *hello, key);
}

inline bool IsSealed(const void* hello, size_t bytes, const Sha256Digest& key) {
  uint8_t mac[kMacBytes];
  MacOf(hello, bytes, key, mac);
  return EqualInConstantTime(static_cast<const char*>(hello) + offsetof(Hello, mac), mac, sizeof mac);
}

}  // namespace c4
