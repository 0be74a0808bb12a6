#include "service/token.h"

#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/rand.h>
#include <optional>
#include <sys/stat.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_split.h"
#include "service/file_handle.h"
#include "service/hmac.h"
#include "service/text.h"

namespace c4::service {
namespace {

constexpr std::string_view kKeyPrefix = "c4k1.";
constexpr std::string_view kTokenPrefix = "c4t1.";
constexpr size_t kSecretBytes = 32;
constexpr size_t kMacBytes = 32;
constexpr size_t kMaxTokenBytes = 4096;
constexpr size_t kMaxKeys = 16;

std::string KeyId(const std::string& secret) {
  return absl::BytesToHexString(HmacSha256(secret, "c4 key id").substr(0, 4));
}

absl::StatusOr<std::string> ReadSecret(const std::string& path, size_t max_bytes,
                                       std::optional<int64_t> owner) {
  // Not blocking: a fifo in the place of the file would hold the open.
  const int flags = O_RDONLY | O_CLOEXEC | O_NONBLOCK | (owner.has_value() ? O_NOFOLLOW : 0);
  const FileHandle file(open(path.c_str(), flags));
  if (file.get() < 0) return ErrnoStatus(errno, Concat("cannot open ", path));
  struct stat status {};
  if (fstat(file.get(), &status) != 0) return ErrnoStatus(errno, Concat("cannot stat ", path));
  if (!S_ISREG(status.st_mode)) return absl::InvalidArgumentError(Concat(path, " is not a regular file"));
  const bool ours = status.st_uid == geteuid() || status.st_uid == 0;
  if (owner.has_value() ? status.st_uid != *owner : !ours) {
    return absl::PermissionDeniedError(
        Concat(path, " belongs to uid ", status.st_uid, ", who can change it: it has to belong to uid ",
               owner.value_or(geteuid()), "; chown it, or make a file of one's own"));
  }
  if ((status.st_mode & 077) != 0) {
    return absl::PermissionDeniedError(
        Concat(path, " holds a secret and can be reached by others; run: chmod 600 ", path));
  }
  std::string content(max_bytes + 1, '\0');
  size_t size = 0;
  while (size < content.size()) {
    const ssize_t bytes = read(file.get(), content.data() + size, content.size() - size);
    if (bytes < 0 && errno == EINTR) continue;
    if (bytes < 0) return ErrnoStatus(errno, Concat("cannot read ", path));
    if (bytes == 0) break;
    size += static_cast<size_t>(bytes);
  }
  if (size > max_bytes)
    return absl::InvalidArgumentError(Concat(path, " is longer than ", max_bytes, " bytes"));
  content.resize(size);
  return content;
}

absl::StatusOr<TokenClaims> ParseClaims(std::string_view text) {
  const auto malformed = [] { return absl::UnauthenticatedError("the token's claims cannot be read"); };
  try {
    const nlohmann::json json = nlohmann::json::parse(text);
    TokenClaims claims;
    const std::optional<Role> role = RoleFromWord(json.at("role").get<std::string>());
    if (!role.has_value()) return absl::UnauthenticatedError("the token names a role that is not known here");
    claims.identity.role = *role;
    claims.identity.host = json.value("host", "");
    claims.identity.job = json.value("job", "");
    claims.identity.name = json.value("name", "");
    if (json.contains("uid")) claims.identity.uid = json.at("uid").get<int64_t>();
    claims.not_before_s = json.at("nbf").get<int64_t>();
    claims.expires_s = json.at("exp").get<int64_t>();
    claims.key_id = json.at("kid").get<std::string>();
    return claims;
  } catch (const nlohmann::json::exception&) {
    return malformed();
  }
}

// Only what WebSafeBase64Escape writes: one token has one text.
bool Decode(std::string_view text, std::string* bytes) {
  return absl::WebSafeBase64Unescape({text.data(), text.size()}, bytes) &&
         absl::WebSafeBase64Escape(*bytes) == absl::string_view(text.data(), text.size());
}

// The three parts of a token: what the MAC is over, the claims, the MAC.
struct Parts {
  std::string_view over;
  std::string claims;
  std::string mac;
};

absl::StatusOr<Parts> Split(std::string_view token) {
  const auto malformed = [] {
    return absl::UnauthenticatedError("this is no token of c4 pki token (\"c4t1.…\")");
  };
  if (token.size() > kMaxTokenBytes || !token.starts_with(kTokenPrefix)) return malformed();
  const size_t dot = token.find('.', kTokenPrefix.size());
  if (dot == std::string_view::npos) return malformed();
  Parts parts;
  parts.over = token.substr(0, dot);
  const std::string_view claims = parts.over.substr(kTokenPrefix.size());
  const std::string_view mac = token.substr(dot + 1);
  if (!Decode(claims, &parts.claims) || !Decode(mac, &parts.mac)) return malformed();
  return parts;
}

}  // namespace

absl::StatusOr<std::string> NewKeyLine() {
  std::string secret(kSecretBytes, '\0');
  if (RAND_bytes(reinterpret_cast<unsigned char*>(secret.data()), kSecretBytes) != 1) {
    return absl::InternalError("the system gives no random numbers for a key");
  }
  return Concat(kKeyPrefix, absl::BytesToHexString(secret));
}

absl::StatusOr<TokenKeys> ParseKeys(std::string_view text, const std::string& source) {
  TokenKeys keys;
  for (const absl::string_view part :
       absl::StrSplit(absl::string_view(text.data(), text.size()), '\n', absl::SkipWhitespace())) {
    const absl::string_view stripped = absl::StripAsciiWhitespace(part);
    const std::string_view line(stripped.data(), stripped.size());
    const bool shaped = line.starts_with(kKeyPrefix) && line.size() == kKeyPrefix.size() + 2 * kSecretBytes;
    if (!shaped || !std::all_of(line.begin() + kKeyPrefix.size(), line.end(),
                                [](char c) { return absl::ascii_isxdigit(static_cast<unsigned char>(c)); })) {
      return absl::InvalidArgumentError(
          Concat(source, " holds a line that is no key; c4 pki key makes one (\"", kKeyPrefix, "…\")"));
    }
    const std::string_view hex = line.substr(kKeyPrefix.size());
    TokenKey key;
    key.secret = absl::HexStringToBytes({hex.data(), hex.size()});
    key.id = KeyId(key.secret);
    keys.push_back(std::move(key));
  }
  if (keys.empty()) return absl::InvalidArgumentError(Concat(source, " holds no key; c4 pki key makes one"));
  if (keys.size() > kMaxKeys) {
    return absl::InvalidArgumentError(Concat(source, " holds more than ", kMaxKeys, " keys"));
  }
  return keys;
}

absl::StatusOr<std::string> ReadSecretFile(const std::string& path, size_t max_bytes) {
  return ReadSecret(path, max_bytes, std::nullopt);
}

absl::StatusOr<std::string> ReadSecretFileOf(const std::string& path, size_t max_bytes, int64_t owner) {
  return ReadSecret(path, max_bytes, owner);
}

absl::StatusOr<std::string> IssueToken(const TokenKey& key, const TokenClaims& claims) {
  if (claims.expires_s <= claims.not_before_s || claims.expires_s - claims.not_before_s > kLongestTokenS) {
    return absl::InvalidArgumentError(
        Concat("a token lives for between one second and ", kLongestTokenS / 86400, " days"));
  }
  const Identity& identity = claims.identity;
  nlohmann::json json = {{"kid", key.id},
                         {"role", std::string(RoleWord(identity.role))},
                         {"nbf", claims.not_before_s},
                         {"exp", claims.expires_s}};
  if (!identity.host.empty()) json["host"] = identity.host;
  if (!identity.job.empty()) json["job"] = identity.job;
  if (!identity.name.empty()) json["name"] = identity.name;
  if (identity.uid.has_value()) json["uid"] = *identity.uid;
  std::string text;
  try {
    text = json.dump();
  } catch (const nlohmann::json::exception&) {
    return absl::InvalidArgumentError("a host's, job's or person's name that is not UTF-8 fits no token");
  }
  const std::string over = Concat(kTokenPrefix, absl::WebSafeBase64Escape(text));
  std::string token = Concat(over, ".", absl::WebSafeBase64Escape(HmacSha256(key.secret, over)));
  if (token.size() > kMaxTokenBytes) return absl::InvalidArgumentError("the names are too long for a token");
  return token;
}

absl::StatusOr<TokenClaims> VerifyToken(const TokenKeys& keys, std::string_view token, int64_t now_s) {
  const absl::StatusOr<Parts> parts = Split(token);
  if (!parts.ok()) return parts.status();
  // Nothing of a token is looked at, not even the name of its key, before a key is known to have signed it.
  const TokenKey* signer = nullptr;
  for (const TokenKey& key : keys) {
    const std::string expected = HmacSha256(key.secret, parts->over);
    if (parts->mac.size() == kMacBytes && CRYPTO_memcmp(parts->mac.data(), expected.data(), kMacBytes) == 0) {
      signer = &key;
    }
  }
  if (signer == nullptr) {
    return absl::UnauthenticatedError(
        "no key that is known here has signed this token: compare the --key-file of both sides");
  }
  absl::StatusOr<TokenClaims> claims = ParseClaims(parts->claims);
  if (!claims.ok()) return claims.status();
  claims->key_id = signer->id;
  if (now_s + kClockSkewS < claims->not_before_s) {
    return absl::UnauthenticatedError("the token is not valid yet: compare the clocks of both nodes");
  }
  if (now_s - kClockSkewS >= claims->expires_s) {
    return absl::UnauthenticatedError("the token has expired; c4 pki token makes another");
  }
  claims->identity.known_by = KnownBy::kToken;
  return claims;
}

absl::StatusOr<TokenClaims> ReadTokenClaims(std::string_view token) {
  const absl::StatusOr<Parts> parts = Split(token);
  if (!parts.ok()) return parts.status();
  return ParseClaims(parts->claims);
}

}  // namespace c4::service
