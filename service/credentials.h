// TLS and token of a daemon or client, loaded once at start. Without options connections are plain; with
// the three PEM files (all or none) both sides prove who they are (mutual TLS). A token file (one line)
// works with and without TLS: clients add "authorization: Bearer …" to each call, servers check it in the
// skin of each handler, in constant time; a token that travels without TLS is warned about once, at load.
// Copies share the material; const calls from any thread. Certificates are read at start only.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "service/config.h"
#include "service/status.h"

namespace grpc {
class ChannelCredentials;
class ClientContext;
class ServerContextBase;
class ServerCredentials;
}  // namespace grpc

namespace c4::service {

class Credentials {
 public:
  Credentials();  // plain, no token

  // Fails with a sentence when a file is missing, unreadable or empty, or not all three are given.
  static absl::StatusOr<Credentials> Load(const TlsOptions& tls, const std::string& token_file);

  bool has_tls() const;
  bool has_token() const;

  std::shared_ptr<grpc::ServerCredentials> Server() const;
  std::shared_ptr<grpc::ChannelCredentials> Channel() const;

  // Client: to be called for each call's context; nothing without a token.
  void AddToken(grpc::ClientContext* context) const;
  // Server: OK without a token of our own; else Unauthenticated unless the call carries the same.
  absl::Status CheckToken(const grpc::ServerContextBase& context) const;
  // The pure part, also for HTTP: `authorization` is the header's value, empty where there is none.
  absl::Status CheckAuthorization(std::string_view authorization) const;
  // The header's value that a client sends; empty without a token.
  std::string Authorization() const;

 private:
  struct Material;
  explicit Credentials(std::shared_ptr<const Material> material);
  std::shared_ptr<const Material> material_;
};

}  // namespace c4::service
