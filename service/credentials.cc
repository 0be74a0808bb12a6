#include "service/credentials.h"

#include <grpcpp/client_context.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/security/tls_certificate_provider.h>
#include <grpcpp/security/tls_credentials_options.h>
#include <mutex>
#include <pwd.h>
#include <set>
#include <unistd.h>

#include "absl/strings/ascii.h"
#include "service/address.h"
#include "service/certificate.h"
#include "service/clock.h"
#include "service/log.h"
#include "service/peer_uid.h"
#include "service/reloaded_file.h"
#include "service/server_verifier.h"
#include "service/text.h"

namespace c4::service {
namespace {

constexpr size_t kMaxSecretBytes = 16 * 1024;
constexpr unsigned kWatchIntervalS = 1;
constexpr int64_t kOwnTokenS = 300;
constexpr std::string_view kScheme = "Bearer ";
constexpr char kHeader[] = "authorization";

int64_t NowS() {
  return SystemClock().UnixNs() / 1'000'000'000;
}

absl::StatusOr<std::string> ReadToken(const std::string& path) {
  absl::StatusOr<std::string> text = ReadSecretFile(path, kMaxSecretBytes);
  if (!text.ok()) return Annotate(text.status(), "--token-file");
  const std::string token(absl::StripAsciiWhitespace(*text));
  if (const auto claims = ReadTokenClaims(token); !claims.ok()) {
    return absl::InvalidArgumentError(Concat("--token-file: ", path,
                                             " holds no token that c4 pki token has made; a shared secret of "
                                             "earlier versions is no token any more: "
                                             "see \"Going over\" in docs/configuration.md"));
  }
  return token;
}

absl::StatusOr<TokenKeys> ReadKeys(const std::string& path) {
  const absl::StatusOr<std::string> text = ReadSecretFile(path, kMaxSecretBytes);
  if (!text.ok()) return Annotate(text.status(), "--key-file");
  return ParseKeys(*text, path);
}

// The key of that id, or the first where none is asked for; nullptr: not there.
const TokenKey* KeyOf(const TokenKeys& keys, const std::string& id) {
  for (const TokenKey& key : keys) {
    if (id.empty() || key.id == id) return &key;
  }
  return nullptr;
}

}  // namespace

struct Credentials::Material {
  SecurityOptions options;
  Identity self;
  std::shared_ptr<ReloadedFile<std::string>> token;
  std::shared_ptr<ReloadedFile<TokenKeys>> keys;
  std::shared_ptr<grpc::experimental::FileWatcherCertificateProvider> certificates;
  std::mutex mutex;
  std::set<std::string> warned;  // of addresses

  std::string Sign(const TokenKey& key, const std::string& job) const {
    TokenClaims claims{.identity = self, .not_before_s = NowS(), .expires_s = NowS() + kOwnTokenS};
    if (claims.identity.job.empty()) claims.identity.job = job;
    absl::StatusOr<std::string> signed_token = IssueToken(key, claims);
    if (!signed_token.ok()) LogWarning(signed_token.status().message());
    return signed_token.ok() ? *std::move(signed_token) : std::string();
  }

  // Of the key that the entry's owner shares with his master.
  std::string FromEntry(const MasterAddress& master) const {
    if (master.key_file.empty() || !master.published_by.has_value()) return {};
    const absl::StatusOr<std::string> text =
        ReadSecretFileOf(master.key_file, kMaxSecretBytes, *master.published_by);
    if (!text.ok()) return {};
    const absl::StatusOr<TokenKeys> read = ParseKeys(*text, master.key_file);
    const TokenKey* const key = read.ok() ? KeyOf(*read, master.key_id) : nullptr;
    return key == nullptr ? std::string() : Sign(*key, master.job);
  }

  std::string Choose(const MasterAddress& master) const {
    std::string found = FromEntry(master);
    if (!found.empty()) return found;
    const std::optional<int64_t> by = master.published_by;
    if (by.has_value() && *by != 0 && *by != static_cast<int64_t>(geteuid())) return {};
    if (token != nullptr) return *token->Get();
    if (keys == nullptr) return {};
    return Sign(keys->Get()->front(), master.job);
  }

  bool MayTravelTo(const std::string& address) {
    if (certificates != nullptr || options.token_in_clear) return true;
    const absl::StatusOr<HostPort> parts = ParseHostPort(address);
    if (parts.ok() && IsThisMachine(parts->host)) return true;
    const std::scoped_lock lock(mutex);
    if (warned.insert(address).second) {
      LogWarning("no token is sent to ", address,
                 ": without TLS everybody on the way could use it; give --tls-ca, --tls-cert and --tls-key "
                 "(c4 pki), or --token-in-clear for a network that is to be trusted");
    }
    return false;
  }
};

Credentials::Credentials() : material_(std::make_shared<Material>()) {}
Credentials::Credentials(std::shared_ptr<Material> material) : material_(std::move(material)) {}

absl::StatusOr<Credentials> Credentials::Load(const SecurityOptions& options, const Identity& self) {
  auto material = std::make_shared<Material>();
  material->options = options;
  material->self = self;
  const TlsOptions& tls = options.tls;
  if (!tls.ca.empty() || !tls.cert.empty() || !tls.key.empty()) {
    if (tls.ca.empty() || tls.cert.empty() || tls.key.empty()) {
      return absl::InvalidArgumentError(
          "TLS is mutual here: give all three of --tls-ca, --tls-cert and --tls-key, or none of them");
    }
    C4_RETURN_IF_NOT_OK(CheckCertificateFiles(tls));
    material->certificates = std::make_shared<grpc::experimental::FileWatcherCertificateProvider>(
        tls.key, tls.cert, tls.ca, kWatchIntervalS);
  }
  if (!options.token_file.empty()) {
    auto token = ReloadedFile<std::string>::Open(options.token_file, ReadToken);
    if (!token.ok()) return token.status();
    material->token = *std::move(token);
  }
  if (!options.key_file.empty()) {
    auto keys = ReloadedFile<TokenKeys>::Open(options.key_file, ReadKeys);
    if (!keys.ok()) return keys.status();
    material->keys = *std::move(keys);
  }
  return Credentials(std::move(material));
}

bool Credentials::has_tls() const {
  return material_->certificates != nullptr;
}
bool Credentials::has_key() const {
  return material_->keys != nullptr;
}
bool Credentials::has_token() const {
  return material_->token != nullptr;
}

const TlsOptions& Credentials::tls_files() const {
  return material_->options.tls;
}

std::shared_ptr<grpc::ChannelCredentials> Credentials::Channel(Role role, const std::string& job) const {
  if (!has_tls()) return grpc::InsecureChannelCredentials();
  grpc::experimental::TlsChannelCredentialsOptions options;
  options.set_certificate_provider(material_->certificates);
  options.watch_root_certs();
  options.watch_identity_key_cert_pairs();
  options.set_certificate_verifier(MakeServerVerifier(role, job));
  options.set_check_call_host(false);  // the verifier has looked at the name
  return grpc::experimental::TlsCredentials(options);
}

void Credentials::AddToken(grpc::ClientContext* context, const MasterAddress& master) const {
  const std::string authorization = AuthorizationFor(master);
  if (!authorization.empty()) context->AddMetadata(kHeader, authorization);
}

std::string Credentials::AuthorizationFor(const MasterAddress& master) const {
  const std::string token = material_->Choose(master);
  if (token.empty() || !material_->MayTravelTo(master.address)) return {};
  return Concat(kScheme, token);
}

std::shared_ptr<const TokenKeys> Credentials::Keys() const {
  return has_key() ? material_->keys->Get() : std::make_shared<const TokenKeys>();
}

std::string Credentials::key_file() const {
  return material_->options.key_file;
}

std::string Credentials::key_id() const {
  return has_key() ? Keys()->front().id : std::string();
}

absl::Status Credentials::Explain(const absl::Status& status) const {
  if (!absl::IsUnavailable(status)) return status;
  const std::string text(status.message());
  for (const char* end : {"Socket closed", "Endpoint read failed", "Connection reset", "Broken pipe"}) {
    if (text.find(end) == std::string::npos) continue;
    if (!has_tls()) {
      return absl::UnavailableError(
          Concat("the server ended the connection as soon as it was made: most likely it asks for TLS, and "
                 "this side came without (--tls-ca, --tls-cert, --tls-key; c4 pki) (",
                 text, ")"));
    }
    return absl::UnavailableError(Concat(
        "the server ended the connection at the TLS handshake, so it has most likely refused this "
        "side's certificate, ",
        DescribeCertificateFile(material_->options.tls.cert), "; the server's log says why (", text, ")"));
  }
  return status;
}

std::string_view BearerToken(std::string_view authorization) {
  if (!authorization.starts_with(kScheme)) return {};
  return authorization.substr(kScheme.size());
}

Identity OwnOperator() {
  Identity self{.role = Role::kOperator, .uid = static_cast<int64_t>(geteuid())};
  passwd entry{};
  passwd* found = nullptr;
  char buffer[4096];
  if (getpwuid_r(geteuid(), &entry, buffer, sizeof buffer, &found) == 0 && found != nullptr)
    self.name = ToUtf8(entry.pw_name);
  return self;
}

}  // namespace c4::service
