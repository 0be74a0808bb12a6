#include "service/identity.h"

#include <array>
#include <utility>

#include "service/text.h"

namespace c4::service {
namespace {

constexpr std::array<std::pair<Role, std::string_view>, 6> kWords = {{{Role::kJob, "job"},
                                                                      {Role::kAgent, "agent"},
                                                                      {Role::kJobMaster, "job-master"},
                                                                      {Role::kPathMaster, "path-master"},
                                                                      {Role::kOperator, "operator"},
                                                                      {Role::kReader, "reader"}}};

constexpr std::string_view kScheme = "c4://";
constexpr std::string_view kPrefix = "c4://role/";
constexpr char kHex[] = "0123456789ABCDEF";

bool IsPlain(char c) {
  return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '.' || c == '_' ||
         c == '-';
}

std::string Escaped(std::string_view text) {
  std::string result;
  for (const char c : text) {
    if (IsPlain(c)) {
      result += c;
      continue;
    }
    const auto byte = static_cast<unsigned char>(c);
    result += {'%', kHex[byte >> 4], kHex[byte & 15]};
  }
  return result;
}

std::optional<std::string> Unescaped(std::string_view text) {
  std::string result;
  for (size_t i = 0; i < text.size(); ++i) {
    if (IsPlain(text[i])) {
      result += text[i];
      continue;
    }
    if (text[i] != '%' || text.size() - i < 3) return std::nullopt;
    const std::string_view digits = kHex;
    const size_t high = digits.find(text[i + 1]);
    const size_t low = digits.find(text[i + 2]);
    if (high >= 16 || low >= 16) return std::nullopt;
    result += static_cast<char>(high << 4 | low);
    i += 2;
  }
  return result;
}

// The field of an identity that the last part of its URI holds; nullptr: it has none.
template <typename AnyIdentity>
auto* NameField(AnyIdentity* identity) {
  switch (identity->role) {
    case Role::kAgent:
      return &identity->host;
    case Role::kJob:
    case Role::kJobMaster:
      return &identity->job;
    case Role::kPathMaster:
      return static_cast<decltype(&identity->name)>(nullptr);
    case Role::kOperator:
    case Role::kReader:
      return &identity->name;
  }
  return static_cast<decltype(&identity->name)>(nullptr);
}

}  // namespace

std::string_view RoleWord(Role role) {
  for (const auto& [known, word] : kWords) {
    if (known == role) return word;
  }
  return "?";
}

std::optional<Role> RoleFromWord(std::string_view word) {
  for (const auto& [role, known] : kWords) {
    if (known == word) return role;
  }
  return std::nullopt;
}

std::string Describe(const Identity& identity) {
  std::string text = identity.owner ? "owner" : std::string(RoleWord(identity.role));
  if (!identity.name.empty()) text += " " + ToUtf8(identity.name);
  if (!identity.host.empty()) text += " of host " + ToUtf8(identity.host);
  if (!identity.job.empty()) text += " of job " + ToUtf8(identity.job);
  if (identity.uid.has_value()) text += Concat(" (uid ", *identity.uid, ")");
  switch (identity.known_by) {
    case KnownBy::kToken:
      return text + " by token";
    case KnownBy::kCertificate:
      return text + " by certificate";
    case KnownBy::kKernel:
      return text + " by the kernel";
  }
  return text;
}

bool SpeaksForHost(const Identity& identity, std::string_view host) {
  return identity.host.empty() || identity.host == host;
}

bool SpeaksForJob(const Identity& identity, std::string_view job) {
  return identity.job.empty() || identity.job == job;
}

std::string IdentityUri(const Identity& identity) {
  std::string uri = Concat(kPrefix, RoleWord(identity.role));
  const std::string* const name = NameField(&identity);
  if (name != nullptr && !name->empty()) uri += "/" + Escaped(*name);
  return uri;
}

absl::StatusOr<std::optional<Identity>> IdentityFromUri(std::string_view uri) {
  if (!uri.starts_with(kScheme)) return std::nullopt;
  const auto malformed = [&](std::string_view why) {
    return absl::InvalidArgumentError(Concat("the certificate's URI \"", ToUtf8(std::string(uri)), "\" ", why,
                                             "; c4 pki issue makes certificates that name a role"));
  };
  if (!uri.starts_with(kPrefix)) return malformed("names no role");
  uri.remove_prefix(kPrefix.size());
  const size_t slash = uri.find('/');
  const std::optional<Role> role = RoleFromWord(uri.substr(0, slash));
  if (!role.has_value()) return malformed("names a role that is not known here");
  Identity identity{.role = *role, .known_by = KnownBy::kCertificate};
  std::string* const field = NameField(&identity);
  if (slash == std::string_view::npos) {
    // An agent or a job without a name would be any.
    if (*role == Role::kAgent || *role == Role::kJob || *role == Role::kJobMaster)
      return malformed("names no host or job");
    return identity;
  }
  std::optional<std::string> name = Unescaped(uri.substr(slash + 1));
  if (field == nullptr || !name.has_value() || name->empty()) return malformed("is malformed");
  *field = *std::move(name);
  return identity;
}

}  // namespace c4::service
