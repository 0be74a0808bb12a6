// Where a server checks who calls: every gRPC handler and every HTTP route asks it once, before anything is
// done, and goes on with the identity that it gives. It finds out who the caller is (token, certificate, or
// the kernel's word for a connection of this machine), looks the call up in the table (authorize.h), writes
// actions to the audit, and logs refusals (each caller and reason once a minute).
//
//   server with a key        a token signed by it; on this machine the owner may read without one
//   server with TLS          the certificate's URI; with a key, a token may be given as well and counts
//   server with neither      loopback only; the server's own user and root may do everything, others nothing
//
// Copies share everything; const calls from any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "service/audit.h"
#include "service/credentials.h"
#include "service/identity.h"

namespace grpc {
class ServerContextBase;
}  // namespace grpc

namespace c4::service {

class PeerCertificates;

// What is known of a call before it is judged.
struct CallFacts {
  std::string call;           // the table's name of it
  std::string detail;         // what of, for the audit: "rule=hang seconds=3600"
  std::string authorization;  // the header's value; empty: none
  std::string certificate_uri;
  std::string peer;   // "ADDRESS:PORT" of the other end of the connection
  std::string local;  // "ADDRESS:PORT" of ours; empty: the kernel is asked by the peer's alone
};

class Gate {
 public:
  struct Options {
    Credentials credentials;
    std::string job;                  // of the server; empty: it serves all
    std::shared_ptr<AuditLog> audit;  // nullptr: actions are logged only
  };
  Gate();  // no key, no TLS: this user and root, over loopback
  explicit Gate(Options options);
  Gate(const Credentials& credentials);  // NOLINT(google-explicit-constructor): no audit, all jobs

  const Credentials& credentials() const;
  // Whether callers of other machines can show who they are.
  bool has_identity() const;

  // Of a gRPC handler: `method` as the table names it.
  absl::StatusOr<Identity> Admit(const grpc::ServerContextBase& context, std::string_view method,
                                 std::string_view detail = {}) const;
  // Unauthenticated: nobody that is known; PermissionDenied: known, but not for this.
  absl::StatusOr<Identity> Admit(const CallFacts& facts) const;

  // Told by GrpcServer::Start: where it listens, host:port, for the kernel's word on a connection.
  void ListensOn(const std::string& address) const;
  // Told by it as well: what callers' certificates say.
  void CertificatesFrom(std::shared_ptr<const PeerCertificates> certificates) const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace c4::service
