#include "service/credentials.h"

#include <grpcpp/client_context.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server_context.h>

#include "absl/strings/ascii.h"
#include "service/log.h"
#include "service/run_dir.h"
#include "service/text.h"

namespace c4::service {
namespace {

constexpr size_t kMaxPemBytes = 1024 * 1024;
constexpr size_t kMaxTokenBytes = 4096;
constexpr char kScheme[] = "Bearer ";
constexpr char kHeader[] = "authorization";

absl::StatusOr<std::string> ReadPem(const std::string& path, const char* flag) {
  absl::StatusOr<std::string> text = ReadSmallFile(path, kMaxPemBytes, Links::kFollow);
  if (!text.ok()) return Annotate(text.status(), flag);
  if (text->find("-----BEGIN ") == std::string::npos) {
    return absl::InvalidArgumentError(Concat(flag, ": ", path, " is no PEM file"));
  }
  return text;
}

absl::StatusOr<std::string> ReadToken(const std::string& path) {
  absl::StatusOr<std::string> text = ReadSmallFile(path, kMaxTokenBytes, Links::kFollow);
  if (!text.ok()) return Annotate(text.status(), "--token-file");
  const std::string token(absl::StripAsciiWhitespace(*text));
  if (token.empty()) return absl::InvalidArgumentError(Concat("--token-file: ", path, " holds no token"));
  for (const char c : token) {
    // What a header may carry; a second line would be a second token.
    if (c < 0x21 || c > 0x7e) {
      return absl::InvalidArgumentError(
          Concat("--token-file: ", path, " must hold one line of printable characters without spaces"));
    }
  }
  return token;
}

// Takes the same time whatever differs, so that a token cannot be guessed byte by byte.
bool EqualInConstantTime(std::string_view given, std::string_view expected) {
  unsigned char difference = given.size() == expected.size() ? 0 : 1;
  for (size_t i = 0; i < expected.size(); ++i) {
    const char c = i < given.size() ? given[i] : '\0';
    difference = static_cast<unsigned char>(difference | (c ^ expected[i]));
  }
  volatile unsigned char result = difference;  // keeps the compiler from leaving the loop early
  return result == 0;
}

}  // namespace

struct Credentials::Material {
  std::string ca;
  std::string cert;
  std::string key;
  std::string token;
};

Credentials::Credentials() : material_(std::make_shared<const Material>()) {}
Credentials::Credentials(std::shared_ptr<const Material> material) : material_(std::move(material)) {}

absl::StatusOr<Credentials> Credentials::Load(const TlsOptions& tls, const std::string& token_file) {
  auto material = std::make_shared<Material>();
  const bool any = !tls.ca.empty() || !tls.cert.empty() || !tls.key.empty();
  if (any) {
    if (tls.ca.empty() || tls.cert.empty() || tls.key.empty()) {
      return absl::InvalidArgumentError(
          "TLS is mutual here: give all three of --tls-ca, --tls-cert and --tls-key, or none of them");
    }
    absl::StatusOr<std::string> ca = ReadPem(tls.ca, "--tls-ca");
    if (!ca.ok()) return ca.status();
    absl::StatusOr<std::string> cert = ReadPem(tls.cert, "--tls-cert");
    if (!cert.ok()) return cert.status();
    absl::StatusOr<std::string> key = ReadPem(tls.key, "--tls-key");
    if (!key.ok()) return key.status();
    material->ca = *std::move(ca);
    material->cert = *std::move(cert);
    material->key = *std::move(key);
  }
  if (!token_file.empty()) {
    absl::StatusOr<std::string> token = ReadToken(token_file);
    if (!token.ok()) return token.status();
    material->token = *std::move(token);
    if (!any) {
      LogWarning("the token of ", token_file,
                 " travels in the clear: whoever sees the traffic can use it; add --tls-ca, --tls-cert and "
                 "--tls-key");
    }
  }
  return Credentials(std::move(material));
}

bool Credentials::has_tls() const {
  return !material_->ca.empty();
}
bool Credentials::has_token() const {
  return !material_->token.empty();
}

std::shared_ptr<grpc::ServerCredentials> Credentials::Server() const {
  if (!has_tls()) return grpc::InsecureServerCredentials();
  grpc::SslServerCredentialsOptions options(GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
  options.pem_root_certs = material_->ca;
  options.pem_key_cert_pairs.push_back({material_->key, material_->cert});
  return grpc::SslServerCredentials(options);
}

std::shared_ptr<grpc::ChannelCredentials> Credentials::Channel() const {
  if (!has_tls()) return grpc::InsecureChannelCredentials();
  grpc::SslCredentialsOptions options;
  options.pem_root_certs = material_->ca;
  options.pem_private_key = material_->key;
  options.pem_cert_chain = material_->cert;
  return grpc::SslCredentials(options);
}

void Credentials::AddToken(grpc::ClientContext* context) const {
  if (has_token()) context->AddMetadata(kHeader, Authorization());
}

absl::Status Credentials::CheckToken(const grpc::ServerContextBase& context) const {
  if (!has_token()) return absl::OkStatus();
  const auto& metadata = context.client_metadata();
  const auto found = metadata.find(kHeader);
  if (found == metadata.end()) return CheckAuthorization({});
  return CheckAuthorization(std::string_view(found->second.data(), found->second.size()));
}

absl::Status Credentials::CheckAuthorization(std::string_view authorization) const {
  if (!has_token()) return absl::OkStatus();
  if (authorization.empty()) {
    return absl::UnauthenticatedError("a token is required here: give the same --token-file as the server's");
  }
  if (!EqualInConstantTime(authorization, Authorization())) {
    return absl::UnauthenticatedError(
        "the token is not the one expected here: compare the --token-file of both sides");
  }
  return absl::OkStatus();
}

std::string Credentials::Authorization() const {
  return has_token() ? Concat(kScheme, material_->token) : std::string();
}

}  // namespace c4::service
