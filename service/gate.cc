#include "service/gate.h"

#include <grpcpp/server_context.h>
#include <map>
#include <mutex>
#include <optional>
#include <unistd.h>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "service/address.h"
#include "service/authorize.h"
#include "service/clock.h"
#include "service/ingress.h"
#include "service/log.h"
#include "service/peer_uid.h"
#include "service/text.h"

namespace c4::service {
namespace {

constexpr int64_t kMinuteNs = 60'000'000'000;
// Refusals that are logged, and written to the audit, in a minute; what is more is counted.
constexpr size_t kMaxRefusals = 60;
constexpr char kHeader[] = "authorization";

std::string LoopbackOf(const std::string& address) {
  return address.starts_with("[") ? "::1" : "127.0.0.1";
}

std::string HostOf(const std::string& address) {
  const absl::StatusOr<HostPort> parts = ParseHostPort(address);
  return parts.ok() ? parts->host : std::string();
}

}  // namespace

struct Gate::State {
  explicit State(Options given) : options(std::move(given)) {}

  const Options options;
  mutable absl::Mutex mutex;
  std::string grpc_address ABSL_GUARDED_BY(mutex);
  std::shared_ptr<const PeerCertificates> certificates ABSL_GUARDED_BY(mutex);
  int64_t minute_ns ABSL_GUARDED_BY(mutex) = 0;
  std::map<std::string, uint64_t> refusals ABSL_GUARDED_BY(mutex);  // of this minute, by caller and reason
  uint64_t untold ABSL_GUARDED_BY(mutex) = 0;

  // The uid at the other end of a connection of this machine; nullopt: of another one.
  std::optional<int64_t> KernelUid(const CallFacts& facts) const {
    std::string local = facts.local;
    if (local.empty()) {
      const absl::MutexLock lock(&mutex);
      local = grpc_address;
    }
    const absl::StatusOr<HostPort> parts = ParseHostPort(local);
    if (!parts.ok()) return std::nullopt;
    // Who connects to an address of this machine does so from the same one, or over loopback.
    for (const std::string& host : {parts->host, HostOf(facts.peer), LoopbackOf(facts.peer)}) {
      const absl::StatusOr<int64_t> uid = UidOfPeer(facts.peer, JoinHostPort(host, parts->port));
      if (uid.ok()) return *uid;
    }
    return std::nullopt;
  }

  absl::StatusOr<Identity> FromToken(const CallFacts& facts) const {
    const std::string_view token = BearerToken(facts.authorization);
    if (token.empty()) return absl::UnauthenticatedError("the authorization is no \"Bearer TOKEN\"");
    if (!options.credentials.has_key()) {
      return absl::UnauthenticatedError(
          "a token came, and this server has no --key-file to check it with; give the server the key, or "
          "leave the token out");
    }
    const absl::StatusOr<TokenClaims> claims =
        VerifyToken(*options.credentials.Keys(), token, SystemClock().UnixNs() / 1'000'000'000);
    if (!claims.ok()) return claims.status();
    return claims->identity;
  }

  absl::StatusOr<Identity> Identify(const CallFacts& facts) const {
    std::optional<Identity> certificate;
    if (!facts.certificate_uri.empty()) {
      absl::StatusOr<std::optional<Identity>> read = IdentityFromUri(facts.certificate_uri);
      if (!read.ok()) return absl::UnauthenticatedError(read.status().message());
      certificate = *std::move(read);
    }
    if (!facts.authorization.empty()) {
      // Without a key nothing can be said of a token; the certificate or the kernel may still do.
      if (options.credentials.has_key()) {
        absl::StatusOr<Identity> token = FromToken(facts);
        if (!token.ok()) return token.status();
        // A node's token that turns up with another node's certificate was stolen.
        if (certificate.has_value() &&
            (!(certificate->host.empty() || token->host.empty() || certificate->host == token->host) ||
             !(certificate->job.empty() || token->job.empty() || certificate->job == token->job))) {
          return absl::UnauthenticatedError(Concat("the token is that of ", Describe(*token),
                                                   ", and the certificate that of ", Describe(*certificate)));
        }
        return token;
      }
      if (!certificate.has_value() && options.credentials.has_tls()) return FromToken(facts).status();
    }
    if (certificate.has_value()) return *std::move(certificate);
    if (options.credentials.has_tls()) {
      return absl::UnauthenticatedError(
          "the certificate names no role, and there is no token: make certificates with c4 pki issue, or "
          "give "
          "a token");
    }
    const std::optional<int64_t> uid = KernelUid(facts);
    if (uid.has_value() && (*uid == 0 || *uid == static_cast<int64_t>(geteuid()))) {
      Identity identity{.role = Role::kReader, .uid = uid, .known_by = KnownBy::kKernel};
      identity.owner = !options.credentials.has_key();
      return identity;
    }
    if (options.credentials.has_key()) {
      return absl::UnauthenticatedError(
          "a token is required here: give --token-file with one that c4 pki token has made, or --key-file");
    }
    return absl::UnauthenticatedError(
        Concat("this server knows nobody but its own user (uid ", geteuid(), ") and root on this machine",
               uid.has_value() ? Concat(", and this is uid ", *uid) : std::string(),
               "; start it with --key-file or TLS to let others in"));
  }

  // False: said often enough in this minute.
  bool ShouldTell(const std::string& what) {
    const int64_t now_ns = SystemClock().MonotonicNs();
    uint64_t missed = 0;
    bool tell = false;
    {
      const absl::MutexLock lock(&mutex);
      if (now_ns - minute_ns >= kMinuteNs) {
        missed = std::exchange(untold, 0);
        minute_ns = now_ns;
        refusals.clear();
      }
      tell = refusals.contains(what) ? false : refusals.size() < kMaxRefusals;
      if (tell) refusals[what] = 1;
      if (!tell) ++untold;
    }
    if (missed > 0) LogWarning(missed, " more calls were refused in the last minute");
    return tell;
  }

  absl::StatusOr<Identity> Judge(const CallRow& row, const CallFacts& facts) const {
    absl::StatusOr<Identity> identity = Identify(facts);
    if (!identity.ok()) return identity;
    C4_RETURN_IF_NOT_OK(Authorize(row, *identity));
    if (!options.job.empty() && !SpeaksForJob(*identity, options.job)) {
      return absl::PermissionDeniedError(Concat("this is the master of job ", options.job,
                                                ", and the call comes from ", Describe(*identity)));
    }
    return identity;
  }

  absl::Status WriteAudit(const CallRow& row, const CallFacts& facts,
                          const absl::StatusOr<Identity>& judged) {
    AuditEntry entry{.who = judged.ok() ? Describe(*judged) : std::string("?"),
                     .call = std::string(row.call),
                     .detail = facts.detail,
                     .from = facts.peer,
                     .allowed = judged.ok(),
                     .why = std::string(judged.status().message())};
    if (judged.ok()) entry.why.clear();
    if (judged.ok()) LogInfo(entry.who, " at ", facts.peer, " calls ", row.call, " ", facts.detail);
    if (options.audit == nullptr) return absl::OkStatus();
    return options.audit->Append(entry, SystemClock().UnixNs());
  }
};

Gate::Gate() : Gate(Options{}) {}
Gate::Gate(Options options) : state_(std::make_shared<State>(std::move(options))) {}
Gate::Gate(const Credentials& credentials) : Gate(Options{.credentials = credentials}) {}

const Credentials& Gate::credentials() const {
  return state_->options.credentials;
}

bool Gate::has_identity() const {
  return credentials().has_key() || credentials().has_tls();
}

void Gate::ListensOn(const std::string& address) const {
  const absl::MutexLock lock(&state_->mutex);
  state_->grpc_address = address;
}

void Gate::CertificatesFrom(std::shared_ptr<const PeerCertificates> certificates) const {
  const absl::MutexLock lock(&state_->mutex);
  state_->certificates = std::move(certificates);
}

absl::StatusOr<Identity> Gate::Admit(const grpc::ServerContextBase& context, std::string_view method,
                                     std::string_view detail) const {
  CallFacts facts{.call = std::string(method), .detail = std::string(detail)};
  const auto& metadata = context.client_metadata();
  if (const auto found = metadata.find(kHeader); found != metadata.end()) {
    facts.authorization.assign(found->second.data(), found->second.size());
  }
  facts.peer = AddressBehindIngress(context.peer());
  if (facts.peer.empty()) facts.peer = AddressOfGrpcPeer(context.peer());
  std::shared_ptr<const PeerCertificates> certificates;
  {
    const absl::MutexLock lock(&state_->mutex);
    certificates = state_->certificates;
  }
  if (certificates != nullptr) {
    for (const std::string& uri : certificates->UrisOf(context.peer())) {
      if (!uri.starts_with("c4://")) continue;
      // With two roles in one certificate nobody could say which one calls.
      facts.certificate_uri = facts.certificate_uri.empty() ? uri : "c4://two";
    }
  }
  return Admit(facts);
}

absl::StatusOr<Identity> Gate::Admit(const CallFacts& facts) const {
  const CallRow* const row = FindCall(facts.call);
  if (row == nullptr) {
    return absl::PermissionDeniedError(Concat(facts.call, " has no row in the table of calls"));
  }
  if (row->roles == 0) return Identity();
  absl::StatusOr<Identity> judged = state_->Judge(*row, facts);
  if (!judged.ok()) {
    const std::string what = Concat(HostOf(facts.peer), " ", row->call, ": ", judged.status().message());
    if (state_->ShouldTell(what)) {
      LogWarning("a call of ", facts.peer, " is refused: ", row->call, ": ", judged.status().message());
      if (row->action) {
        const absl::Status written = state_->WriteAudit(*row, facts, judged);
        if (!written.ok()) LogWarning(written.message());
      }
    }
    return judged;
  }
  if (row->action) C4_RETURN_IF_NOT_OK(state_->WriteAudit(*row, facts, judged));
  return judged;
}

}  // namespace c4::service
