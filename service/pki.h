// A small authority for those who have none: a folder with the authority's certificate (ca.pem) and its key
// (ca.key, 0600), and certificates for programs, whose URI names their role (identity.h). P-256 keys, 0600.
// Made for a cluster's operator on one machine; there is no revocation: certificates are short-lived and
// renewed, and who has lost one changes the authority. Errors are sentences. One thread at a time per folder.
#pragma once

#include <string>
#include <vector>

#include "service/identity.h"
#include "service/status.h"

namespace c4::service {

struct IssuedFiles {
  std::string certificate;
  std::string key;
  std::string ca;
};

// Fails where there is one already.
absl::Status InitAuthority(const std::string& directory, const std::string& name, int64_t days);

// Writes PREFIX.pem and PREFIX.key, both new. `names`: further "DNS:host" and "IP:address", for programs that
// check the name they dial; the certificate serves clients and servers.
absl::StatusOr<IssuedFiles> IssueCertificate(const std::string& directory, const Identity& identity,
                                             const std::vector<std::string>& names, int64_t days,
                                             const std::string& prefix);

// The same subject, names and key until later: replaces the file at once. Daemons take it up by themselves.
absl::Status RenewCertificate(const std::string& directory, const std::string& certificate, int64_t days);

}  // namespace c4::service
