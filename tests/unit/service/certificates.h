// Certificates for tests, made by OpenSSL's library at run time: nothing expires in the repository.
#pragma once

#include <gtest/gtest.h>
#include <memory>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <string>

namespace c4::test {

using KeyHandle = std::unique_ptr<EVP_PKEY, decltype(&EVP_PKEY_free)>;
using CertificateHandle = std::unique_ptr<X509, decltype(&X509_free)>;

struct CertificateFacts {
  std::string uri;  // of the subject's alternative names; several as "a,URI:b"
  std::string names = "IP:127.0.0.1,DNS:localhost";
  long from_s = -3600;  // validity, from now on
  long to_s = 3600;
};

// A key and its certificate; signed by `issuer`, or by itself (then it is an authority).
class Certificate {
 public:
  explicit Certificate(const std::string& name, const Certificate* issuer = nullptr,
                       const CertificateFacts& facts = {})
      : key_(EVP_EC_gen("P-256"), EVP_PKEY_free), certificate_(X509_new(), X509_free) {
    X509* x = certificate_.get();
    X509_set_version(x, 2);
    static int serial = 1;
    ASN1_INTEGER_set(X509_get_serialNumber(x), serial++);
    X509_gmtime_adj(X509_getm_notBefore(x), facts.from_s);
    X509_gmtime_adj(X509_getm_notAfter(x), facts.to_s);
    X509_NAME_add_entry_by_txt(X509_get_subject_name(x), "CN", MBSTRING_ASC,
                               reinterpret_cast<const unsigned char*>(name.c_str()), -1, -1, 0);
    X509* issuer_certificate = issuer == nullptr ? x : issuer->certificate_.get();
    X509_set_issuer_name(x, X509_get_subject_name(issuer_certificate));
    X509_set_pubkey(x, key_.get());
    Extend(issuer_certificate, NID_basic_constraints, issuer == nullptr ? "critical,CA:TRUE" : "CA:FALSE");
    const std::string names = facts.names + (facts.uri.empty() ? "" : ",URI:" + facts.uri);
    if (issuer != nullptr) Extend(issuer_certificate, NID_subject_alt_name, names.c_str());
    EXPECT_NE(X509_sign(x, issuer == nullptr ? key_.get() : issuer->key_.get(), EVP_sha256()), 0);
  }

  std::string CertificatePem() const {
    return Pem([&](BIO* bio) { PEM_write_bio_X509(bio, certificate_.get()); });
  }
  std::string KeyPem() const {
    return Pem(
        [&](BIO* bio) { PEM_write_bio_PrivateKey(bio, key_.get(), nullptr, nullptr, 0, nullptr, nullptr); });
  }

 private:
  void Extend(X509* issuer, int nid, const char* value) {
    X509V3_CTX context;
    X509V3_set_ctx(&context, issuer, certificate_.get(), nullptr, nullptr, 0);
    X509_EXTENSION* extension = X509V3_EXT_conf_nid(nullptr, &context, nid, value);
    ASSERT_NE(extension, nullptr);
    X509_add_ext(certificate_.get(), extension, -1);
    X509_EXTENSION_free(extension);
  }

  template <typename Write>
  static std::string Pem(const Write& write) {
    BIO* bio = BIO_new(BIO_s_mem());
    write(bio);
    char* data = nullptr;
    const long bytes = BIO_get_mem_data(bio, &data);
    std::string text(data, static_cast<size_t>(bytes));
    BIO_free(bio);
    return text;
  }

  KeyHandle key_;
  CertificateHandle certificate_;
};

}  // namespace c4::test
