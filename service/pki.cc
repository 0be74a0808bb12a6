#include "service/pki.h"

#include <cerrno>
#include <fcntl.h>
#include <memory>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/x509v3.h>
#include <sys/stat.h>
#include <unistd.h>

#include "absl/strings/str_join.h"
#include "service/run_dir.h"
#include "service/text.h"
#include "service/token.h"

namespace c4::service {
namespace {

constexpr size_t kMaxPemBytes = 1024 * 1024;
constexpr int64_t kLongestDays = 3650;
// The clocks of the nodes may be behind ours.
constexpr long kBeforeS = -300;

using BioHandle = std::unique_ptr<BIO, decltype(&BIO_free)>;
using KeyHandle = std::unique_ptr<EVP_PKEY, decltype(&EVP_PKEY_free)>;
using CertificateHandle = std::unique_ptr<X509, decltype(&X509_free)>;

absl::Status OpenSslFault(const std::string& what) {
  char text[256] = "?";
  ERR_error_string_n(ERR_get_error(), text, sizeof text);
  return absl::InternalError(Concat(what, ": ", text));
}

template <typename Write>
std::string Pem(const Write& write) {
  const BioHandle bio(BIO_new(BIO_s_mem()), BIO_free);
  if (bio == nullptr || write(bio.get()) != 1) return {};
  char* data = nullptr;
  const long bytes = BIO_get_mem_data(bio.get(), &data);
  return {data, static_cast<size_t>(bytes)};
}

std::string PemOf(X509* certificate) {
  return Pem([&](BIO* bio) { return PEM_write_bio_X509(bio, certificate); });
}

std::string PemOf(EVP_PKEY* key) {
  return Pem(
      [&](BIO* bio) { return PEM_write_bio_PrivateKey(bio, key, nullptr, nullptr, 0, nullptr, nullptr); });
}

// An existing file is not written over: it may be the only copy of a key that is in use.
absl::Status WriteNew(const std::string& path, const std::string& text, mode_t mode) {
  if (access(path.c_str(), F_OK) == 0) {
    return absl::AlreadyExistsError(Concat(path, " is there already; move it away, or name another file"));
  }
  return WriteFileAtomically(path, text, mode);
}

struct Authority {
  CertificateHandle certificate{nullptr, X509_free};
  KeyHandle key{nullptr, EVP_PKEY_free};
};

absl::StatusOr<CertificateHandle> ReadCertificate(const std::string& path) {
  const absl::StatusOr<std::string> text = ReadSmallFile(path, kMaxPemBytes, Links::kFollow);
  if (!text.ok()) return text.status();
  const BioHandle bio(BIO_new_mem_buf(text->data(), static_cast<int>(text->size())), BIO_free);
  CertificateHandle certificate(PEM_read_bio_X509(bio.get(), nullptr, nullptr, nullptr), X509_free);
  if (certificate == nullptr) return absl::InvalidArgumentError(Concat(path, " holds no certificate"));
  return certificate;
}

absl::StatusOr<Authority> ReadAuthority(const std::string& directory) {
  absl::StatusOr<CertificateHandle> certificate = ReadCertificate(directory + "/ca.pem");
  if (!certificate.ok()) return Annotate(certificate.status(), "no authority here (c4 pki init makes one)");
  const absl::StatusOr<std::string> text = ReadSecretFile(directory + "/ca.key", kMaxPemBytes);
  if (!text.ok()) return text.status();
  const BioHandle bio(BIO_new_mem_buf(text->data(), static_cast<int>(text->size())), BIO_free);
  Authority authority;
  authority.certificate = *std::move(certificate);
  authority.key.reset(PEM_read_bio_PrivateKey(bio.get(), nullptr, nullptr, nullptr));
  if (authority.key == nullptr ||
      X509_check_private_key(authority.certificate.get(), authority.key.get()) != 1) {
    return absl::InvalidArgumentError(Concat(directory, "/ca.key is not the key of ca.pem beside it"));
  }
  return authority;
}

absl::Status CheckDays(int64_t days) {
  if (days >= 1 && days <= kLongestDays) return absl::OkStatus();
  return absl::InvalidArgumentError(Concat("a certificate is valid for 1 to ", kLongestDays, " days"));
}

bool SetSerialAndTimes(X509* certificate, int64_t days) {
  unsigned char bytes[16];
  if (RAND_bytes(bytes, sizeof bytes) != 1) return false;
  bytes[0] = static_cast<unsigned char>((bytes[0] & 0x7f) | 1);  // positive, and of full length
  const std::unique_ptr<BIGNUM, decltype(&BN_free)> serial(BN_bin2bn(bytes, sizeof bytes, nullptr), BN_free);
  return serial != nullptr && X509_set_version(certificate, 2) == 1 &&
         BN_to_ASN1_INTEGER(serial.get(), X509_get_serialNumber(certificate)) != nullptr &&
         X509_gmtime_adj(X509_getm_notBefore(certificate), kBeforeS) != nullptr &&
         X509_time_adj_ex(X509_getm_notAfter(certificate), static_cast<int>(days), 0, nullptr) != nullptr;
}

bool SetName(X509* certificate, const std::string& name) {
  return X509_NAME_add_entry_by_txt(X509_get_subject_name(certificate), "CN", MBSTRING_UTF8,
                                    reinterpret_cast<const unsigned char*>(name.c_str()), -1, -1, 0) == 1;
}

bool Extend(X509* certificate, X509* issuer, int nid, const std::string& value) {
  X509V3_CTX context;
  X509V3_set_ctx(&context, issuer, certificate, nullptr, nullptr, 0);
  const std::unique_ptr<X509_EXTENSION, decltype(&X509_EXTENSION_free)> extension(
      X509V3_EXT_conf_nid(nullptr, &context, nid, value.c_str()), X509_EXTENSION_free);
  return extension != nullptr && X509_add_ext(certificate, extension.get(), -1) == 1;
}

// A value of OpenSSL's configuration language ends at a comma, and may name a section or a file.
absl::Status CheckNames(const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    const bool kind = name.starts_with("DNS:") || name.starts_with("IP:");
    if (!kind || name.find_first_of(", \t\n;@") != std::string::npos) {
      return absl::InvalidArgumentError(
          Concat("\"", ToUtf8(name), "\" is no name for a certificate: give DNS:host or IP:address"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status InitAuthority(const std::string& directory, const std::string& name, int64_t days) {
  C4_RETURN_IF_NOT_OK(CheckDays(days));
  if (mkdir(directory.c_str(), 0700) != 0 && errno != EEXIST) {
    return ErrnoStatus(errno, Concat("cannot make ", directory));
  }
  const KeyHandle key(EVP_EC_gen("P-256"), EVP_PKEY_free);
  const CertificateHandle certificate(X509_new(), X509_free);
  X509* const x = certificate.get();
  const bool made =
      key != nullptr && x != nullptr && SetSerialAndTimes(x, days) && SetName(x, name) &&
      X509_set_issuer_name(x, X509_get_subject_name(x)) == 1 && X509_set_pubkey(x, key.get()) == 1 &&
      Extend(x, x, NID_basic_constraints, "critical,CA:TRUE,pathlen:0") &&
      Extend(x, x, NID_key_usage, "critical,keyCertSign,cRLSign") &&
      Extend(x, x, NID_subject_key_identifier, "hash") && X509_sign(x, key.get(), EVP_sha256()) != 0;
  if (!made) return OpenSslFault("the authority's certificate cannot be made");
  C4_RETURN_IF_NOT_OK(WriteNew(directory + "/ca.key", PemOf(key.get()), 0600));
  return WriteNew(directory + "/ca.pem", PemOf(x), 0644);
}

absl::StatusOr<IssuedFiles> IssueCertificate(const std::string& directory, const Identity& identity,
                                             const std::vector<std::string>& names, int64_t days,
                                             const std::string& prefix) {
  C4_RETURN_IF_NOT_OK(CheckDays(days));
  C4_RETURN_IF_NOT_OK(CheckNames(names));
  const std::string uri = IdentityUri(identity);
  // As a daemon will read it: an agent without a host is refused here rather than there.
  const auto read = IdentityFromUri(uri);
  if (!read.ok()) return read.status();
  absl::StatusOr<Authority> authority = ReadAuthority(directory);
  if (!authority.ok()) return authority.status();
  X509* const issuer = authority->certificate.get();
  const KeyHandle key(EVP_EC_gen("P-256"), EVP_PKEY_free);
  const CertificateHandle certificate(X509_new(), X509_free);
  X509* const x = certificate.get();
  std::vector<std::string> all = {"URI:" + uri};
  all.insert(all.end(), names.begin(), names.end());
  const std::string common_name = uri.substr(0, 64);  // more X.509 does not take
  const bool made = key != nullptr && x != nullptr && SetSerialAndTimes(x, days) && SetName(x, common_name) &&
                    X509_set_issuer_name(x, X509_get_subject_name(issuer)) == 1 &&
                    X509_set_pubkey(x, key.get()) == 1 &&
                    Extend(x, issuer, NID_basic_constraints, "critical,CA:FALSE") &&
                    Extend(x, issuer, NID_key_usage, "critical,digitalSignature") &&
                    Extend(x, issuer, NID_ext_key_usage, "clientAuth,serverAuth") &&
                    Extend(x, issuer, NID_subject_alt_name, absl::StrJoin(all, ",")) &&
                    Extend(x, issuer, NID_authority_key_identifier, "keyid") &&
                    X509_sign(x, authority->key.get(), EVP_sha256()) != 0;
  if (!made) return OpenSslFault("the certificate cannot be made");
  const IssuedFiles files = {prefix + ".pem", prefix + ".key", directory + "/ca.pem"};
  C4_RETURN_IF_NOT_OK(WriteNew(files.key, PemOf(key.get()), 0600));
  C4_RETURN_IF_NOT_OK(WriteNew(files.certificate, PemOf(x), 0644));
  return files;
}

absl::Status RenewCertificate(const std::string& directory, const std::string& path, int64_t days) {
  C4_RETURN_IF_NOT_OK(CheckDays(days));
  absl::StatusOr<Authority> authority = ReadAuthority(directory);
  if (!authority.ok()) return authority.status();
  absl::StatusOr<CertificateHandle> certificate = ReadCertificate(path);
  if (!certificate.ok()) return certificate.status();
  X509* const x = certificate->get();
  if (X509_verify(x, authority->key.get()) != 1) {
    return absl::PermissionDeniedError(
        Concat(path, " was not signed by the authority in ", directory, "; issue a new one there"));
  }
  if (!SetSerialAndTimes(x, days) || X509_sign(x, authority->key.get(), EVP_sha256()) == 0) {
    return OpenSslFault("the certificate cannot be renewed");
  }
  return WriteFileAtomically(path, PemOf(x), 0644);
}

}  // namespace c4::service
