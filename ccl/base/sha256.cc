#include "ccl/base/sha256.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace c4 {
namespace {

// The first 32 bits of the fractional parts of the cube roots of the first 64 primes.
constexpr uint32_t kRound[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

uint32_t BigEndian(const uint8_t* at) {
  return uint32_t{at[0]} << 24 | uint32_t{at[1]} << 16 | uint32_t{at[2]} << 8 | at[3];
}

}  // namespace

void Sha256::Block(const uint8_t* block) {
  uint32_t w[64];
  for (size_t i = 0; i < 16; ++i) w[i] = BigEndian(block + 4 * i);
  for (size_t i = 16; i < 64; ++i) {
    const uint32_t s0 = std::rotr(w[i - 15], 7) ^ std::rotr(w[i - 15], 18) ^ (w[i - 15] >> 3);
    const uint32_t s1 = std::rotr(w[i - 2], 17) ^ std::rotr(w[i - 2], 19) ^ (w[i - 2] >> 10);
    w[i] = w[i - 16] + s0 + w[i - 7] + s1;
  }
  auto [a, b, c, d, e, f, g, h] = state_;
  for (size_t i = 0; i < 64; ++i) {
    const uint32_t s1 = std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25);
    const uint32_t t1 = h + s1 + ((e & f) ^ (~e & g)) + kRound[i] + w[i];
    const uint32_t s0 = std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22);
    const uint32_t t2 = s0 + ((a & b) ^ (a & c) ^ (b & c));
    h = g;
    g = f;
    f = e;
    e = d + t1;
    d = c;
    c = b;
    b = a;
    a = t1 + t2;
  }
  const uint32_t sums[8] = {a, b, c, d, e, f, g, h};
  for (size_t i = 0; i < 8; ++i) state_[i] += sums[i];
}

void Sha256::Add(const void* data, size_t bytes) {
  const auto* at = static_cast<const uint8_t*>(data);
  total_bytes_ += bytes;
  while (bytes > 0) {
    const size_t part = std::min(bytes, sizeof pending_ - pending_bytes_);
    memcpy(pending_ + pending_bytes_, at, part);
    pending_bytes_ += part;
    at += part;
    bytes -= part;
    if (pending_bytes_ < sizeof pending_) return;
    Block(pending_);
    pending_bytes_ = 0;
  }
}

Sha256Digest Sha256::Finish() {
  const uint64_t bits = total_bytes_ * 8;
  constexpr uint8_t kOne = 0x80;
  constexpr uint8_t kZero = 0;
  Add(&kOne, 1);
  while (pending_bytes_ != sizeof pending_ - sizeof bits) Add(&kZero, 1);
  uint8_t length[sizeof bits];
  for (size_t i = 0; i < sizeof length; ++i) length[i] = static_cast<uint8_t>(bits >> (56 - 8 * i));
  Add(length, sizeof length);
  Sha256Digest digest;
  for (size_t i = 0; i < digest.size(); ++i)
    digest[i] = static_cast<uint8_t>(state_[i / 4] >> (24 - i % 4 * 8));
  return digest;
}

Sha256Digest HmacSha256(const void* key, size_t key_bytes, const void* data, size_t bytes) {
  uint8_t block[64] = {};
  if (key_bytes > sizeof block) {
    Sha256 shorter;
    shorter.Add(key, key_bytes);
    const Sha256Digest digest = shorter.Finish();
    memcpy(block, digest.data(), digest.size());
  } else {
    memcpy(block, key, key_bytes);
  }
  for (uint8_t& byte : block) byte ^= 0x36;
  Sha256 inner;
  inner.Add(block, sizeof block);
  inner.Add(data, bytes);
  const Sha256Digest digest = inner.Finish();
  for (uint8_t& byte : block) byte ^= 0x36 ^ 0x5c;
  Sha256 outer;
  outer.Add(block, sizeof block);
  outer.Add(digest.data(), digest.size());
  return outer.Finish();
}

bool EqualInConstantTime(const void* a, const void* b, size_t bytes) {
  const auto* const x = static_cast<const uint8_t*>(a);
  const auto* const y = static_cast<const uint8_t*>(b);
  uint8_t different = 0;
  for (size_t i = 0; i < bytes; ++i) different = static_cast<uint8_t>(different | (x[i] ^ y[i]));
  return different == 0;
}

}  // namespace c4
