// Looking at certificates and keys in PEM files, by OpenSSL's library. Any thread.
#pragma once

#include <string>
#include <vector>

#include "service/config.h"
#include "service/status.h"

using X509 = struct x509_st;

namespace c4::service {

// All three are there and PEM, the key is the certificate's and nobody else can read it, and the certificate
// is valid now. Fails with a sentence that names the option and the file.
absl::Status CheckCertificateFiles(const TlsOptions& tls);

// "/etc/c4/node7.pem (c4://role/agent/node7, signed by C4 authority, valid until 2026-11-24 08:00 UTC)".
std::string DescribeCertificateFile(const std::string& path);

// Of its subject's alternative names, in their order.
std::vector<std::string> UrisOf(const X509* certificate);

}  // namespace c4::service
