#include "service/certificate.h"

#include <ctime>
#include <memory>
#include <openssl/bio.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

#include "service/run_dir.h"
#include "service/text.h"
#include "service/token.h"

namespace c4::service {
namespace {

constexpr size_t kMaxPemBytes = 1024 * 1024;

using BioHandle = std::unique_ptr<BIO, decltype(&BIO_free)>;
using KeyHandle = std::unique_ptr<EVP_PKEY, decltype(&EVP_PKEY_free)>;
using CertificateHandle = std::unique_ptr<X509, decltype(&X509_free)>;

BioHandle Reading(const std::string& text) {
  return {BIO_new_mem_buf(text.data(), static_cast<int>(text.size())), BIO_free};
}

absl::StatusOr<std::string> ReadPem(const std::string& path, const char* flag, bool secret) {
  absl::StatusOr<std::string> text =
      secret ? ReadSecretFile(path, kMaxPemBytes) : ReadSmallFile(path, kMaxPemBytes, Links::kFollow);
  if (!text.ok()) return Annotate(text.status(), flag);
  if (text->find("-----BEGIN ") == std::string::npos) {
    return absl::InvalidArgumentError(Concat(flag, ": ", path, " is no PEM file"));
  }
  return text;
}

std::string TimeText(const ASN1_TIME* time) {
  tm parts{};
  char text[32] = "?";
  if (ASN1_TIME_to_tm(time, &parts) == 1) (void)strftime(text, sizeof text, "%Y-%m-%d %H:%M UTC", &parts);
  return text;
}

std::string CommonName(const X509_NAME* name) {
  char text[256] = "";
  X509_NAME_get_text_by_NID(const_cast<X509_NAME*>(name), NID_commonName, text, sizeof text);
  return ToUtf8(text);
}

}  // namespace

std::vector<std::string> UrisOf(const X509* certificate) {
  std::vector<std::string> uris;
  auto* const names =
      static_cast<GENERAL_NAMES*>(X509_get_ext_d2i(certificate, NID_subject_alt_name, nullptr, nullptr));
  if (names == nullptr) return uris;
  for (int i = 0; i < sk_GENERAL_NAME_num(names); ++i) {
    const GENERAL_NAME* const name = sk_GENERAL_NAME_value(names, i);
    if (name->type != GEN_URI) continue;
    const ASN1_IA5STRING* const text = name->d.uniformResourceIdentifier;
    uris.emplace_back(reinterpret_cast<const char*>(ASN1_STRING_get0_data(text)),
                      static_cast<size_t>(ASN1_STRING_length(text)));
  }
  GENERAL_NAMES_free(names);
  return uris;
}

absl::Status CheckCertificateFiles(const TlsOptions& tls) {
  const absl::StatusOr<std::string> ca = ReadPem(tls.ca, "--tls-ca", false);
  if (!ca.ok()) return ca.status();
  const absl::StatusOr<std::string> cert = ReadPem(tls.cert, "--tls-cert", false);
  if (!cert.ok()) return cert.status();
  const absl::StatusOr<std::string> key = ReadPem(tls.key, "--tls-key", true);
  if (!key.ok()) return key.status();
  const CertificateHandle certificate(PEM_read_bio_X509(Reading(*cert).get(), nullptr, nullptr, nullptr),
                                      X509_free);
  if (certificate == nullptr) {
    return absl::InvalidArgumentError(Concat("--tls-cert: ", tls.cert, " holds no certificate"));
  }
  const KeyHandle private_key(PEM_read_bio_PrivateKey(Reading(*key).get(), nullptr, nullptr, nullptr),
                              EVP_PKEY_free);
  if (private_key == nullptr) {
    return absl::InvalidArgumentError(
        Concat("--tls-key: ", tls.key, " holds no private key without a passphrase"));
  }
  if (X509_check_private_key(certificate.get(), private_key.get()) != 1) {
    return absl::InvalidArgumentError(
        Concat("--tls-key: ", tls.key, " is not the key of the certificate in ", tls.cert));
  }
  if (X509_cmp_current_time(X509_get0_notAfter(certificate.get())) < 0) {
    return absl::FailedPreconditionError(Concat("--tls-cert: the certificate in ", tls.cert, " expired at ",
                                                TimeText(X509_get0_notAfter(certificate.get())),
                                                "; c4 pki renew makes another"));
  }
  if (X509_cmp_current_time(X509_get0_notBefore(certificate.get())) > 0) {
    return absl::FailedPreconditionError(Concat("--tls-cert: the certificate in ", tls.cert,
                                                " is not valid before ",
                                                TimeText(X509_get0_notBefore(certificate.get()))));
  }
  return absl::OkStatus();
}

std::string DescribeCertificateFile(const std::string& path) {
  const absl::StatusOr<std::string> text = ReadSmallFile(path, kMaxPemBytes, Links::kFollow);
  if (!text.ok()) return path;
  const CertificateHandle certificate(PEM_read_bio_X509(Reading(*text).get(), nullptr, nullptr, nullptr),
                                      X509_free);
  if (certificate == nullptr) return path;
  const std::vector<std::string> uris = UrisOf(certificate.get());
  return Concat(path, " (",
                uris.empty() ? CommonName(X509_get_subject_name(certificate.get())) : ToUtf8(uris.front()),
                ", signed by ", CommonName(X509_get_issuer_name(certificate.get())), ", valid until ",
                TimeText(X509_get0_notAfter(certificate.get())), ")");
}

}  // namespace c4::service
