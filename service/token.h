// Tokens between nodes: a key signs (HMAC-SHA-256) who the bearer is and until when.
//
//   c4t1.<base64url of the claims>.<base64url of the MAC over "c4t1.<claims>">
//   claims: {"kid":"1f00ba5e","role":"agent","host":"node7","job":"j","uid":1000,"name":"","nbf":…,"exp":…}
//
// A key file holds one key a line ("c4k1." and 32 bytes as hex), readable by its owner alone: the first one
// signs, all of them are believed, so that keys are changed without a gap. Who holds a key may sign for
// every role: a job's key rules that job and nothing else, a cluster's key belongs to the operator.
// Pure but for files and randomness; any thread. Nothing here logs a key or a token.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "service/identity.h"
#include "service/status.h"

namespace c4::service {

// Clocks of two nodes may differ by this much.
inline constexpr int64_t kClockSkewS = 30;
// Longer than this no token lives: who loses one has to wait for its end, or change the key.
inline constexpr int64_t kLongestTokenS = 366LL * 24 * 3600;

struct TokenKey {
  std::string id;      // 8 hexadecimal digits, made of the secret
  std::string secret;  // 32 bytes
};

using TokenKeys = std::vector<TokenKey>;  // never empty where they come from a file

struct TokenClaims {
  Identity identity;
  int64_t not_before_s = 0;  // Unix time
  int64_t expires_s = 0;
  std::string key_id;
};

absl::StatusOr<std::string> NewKeyLine();  // "c4k1.…"
absl::StatusOr<TokenKeys> ParseKeys(std::string_view text, const std::string& source);

// Only a regular file of ours, or of root, that nobody else can read: else a sentence that says chmod 600.
absl::StatusOr<std::string> ReadSecretFile(const std::string& path, size_t max_bytes);
// As ReadSecretFile, but the file has to belong to `owner` and is not opened through a link.
absl::StatusOr<std::string> ReadSecretFileOf(const std::string& path, size_t max_bytes, int64_t owner);

absl::StatusOr<std::string> IssueToken(const TokenKey& key, const TokenClaims& claims);
// Unauthenticated with the reason: no token of ours, signed by none of the keys, not yet valid, expired.
absl::StatusOr<TokenClaims> VerifyToken(const TokenKeys& keys, std::string_view token, int64_t now_s);
// What it says, without any check: for `c4 pki show` and for a client that looks when its own one ends.
absl::StatusOr<TokenClaims> ReadTokenClaims(std::string_view token);

}  // namespace c4::service
