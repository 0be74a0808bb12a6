// Who calls: the role of the other side, what it speaks for, and how that is known. Pure values; the table
// that says which role may make which call is authorize.h, the place where calls are checked is gate.h.
//
// A certificate names an identity by one URI in its subject's alternative names:
//   c4://role/agent/HOST  c4://role/job/JOB  c4://role/job-master/JOB  c4://role/path-master
//   c4://role/operator/NAME  c4://role/reader/NAME
// with the characters outside [A-Za-z0-9._-] of the last part as %XX. Any thread; no errors but "none".
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "service/status.h"

namespace c4::service {

enum class Role : uint8_t { kJob, kAgent, kJobMaster, kPathMaster, kOperator, kReader };
inline constexpr Role kAllRoles[] = {Role::kJob,        Role::kAgent,    Role::kJobMaster,
                                     Role::kPathMaster, Role::kOperator, Role::kReader};

// "job", "agent", "job-master", "path-master", "operator", "reader".
std::string_view RoleWord(Role role);
std::optional<Role> RoleFromWord(std::string_view word);

enum class KnownBy : uint8_t {
  kToken,        // a signed token (token.h)
  kCertificate,  // the URI of its certificate
  kKernel,       // the uid that the kernel names for a connection of this machine
};

struct Identity {
  Role role = Role::kReader;
  std::string host;            // agents: whose telemetry it may bring; empty: any
  std::string job;             // empty: any job that the server serves
  std::optional<int64_t> uid;  // the user that it acts for; nullopt: not said
  std::string name;            // of an operator or reader, for the audit
  KnownBy known_by = KnownBy::kToken;
  // The server's own user, or root, on this machine, at a server that has no key: may take every role.
  bool owner = false;

  friend bool operator==(const Identity&, const Identity&) = default;
};

// "agent of host node7 by certificate", for logs and the audit.
std::string Describe(const Identity& identity);

// Whether it may speak for that host or job: its own is empty (any) or the same.
bool SpeaksForHost(const Identity& identity, std::string_view host);
bool SpeaksForJob(const Identity& identity, std::string_view job);

std::string IdentityUri(const Identity& identity);
// nullopt where the URI is none of C4's; InvalidArgument for a malformed one.
absl::StatusOr<std::optional<Identity>> IdentityFromUri(std::string_view uri);

}  // namespace c4::service
