// How a program shows who it is, and what a server needs to find out who calls: certificates (three PEM
// files, all or none: mutual TLS), a token that was issued to it, and keys that sign and check tokens
// (token.h). All files are watched: what is put in their place counts within seconds, without a restart.
//
// As a client: with TLS a server has to show a certificate of the same authority that names the role asked
// for (c4://role/job-master/JOB, c4://role/path-master), or, without such a URI, the name that was dialled.
// The token that a call carries is the one of the key that the master's entry names, when its owner's key
// file can be read; else the issued one; else one of the own key, for five minutes. A token is not sent
// - to a master that somebody else than root or this program's user published, but for one of his own key,
// - without TLS to another machine, unless token_in_clear allows it (warned about once for each address).
// Copies share the material; const calls from any thread.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "service/config.h"
#include "service/identity.h"
#include "service/master_address.h"
#include "service/status.h"
#include "service/token.h"

namespace grpc {
class ChannelCredentials;
class ClientContext;
}  // namespace grpc

namespace c4::service {

class Credentials {
 public:
  Credentials();  // plain, no token, no key

  // `self`: what tokens of the own key say. Fails with a sentence when a file is missing, unreadable, empty
  // or open to others, when not all three PEM files are given, or the certificate is not the key's.
  static absl::StatusOr<Credentials> Load(const SecurityOptions& options, const Identity& self);

  bool has_tls() const;
  bool has_key() const;
  bool has_token() const;

  // Where the PEM files are; all empty without TLS.
  const TlsOptions& tls_files() const;
  // `role`: of the server, and `job` where it is a job's.
  std::shared_ptr<grpc::ChannelCredentials> Channel(Role role, const std::string& job) const;

  // Client: to be called for each call's context; adds nothing where no token may be sent.
  void AddToken(grpc::ClientContext* context, const MasterAddress& master) const;
  // The header's value that AddToken adds; empty: none.
  std::string AuthorizationFor(const MasterAddress& master) const;

  // Server: the keys in force; empty without a key file.
  std::shared_ptr<const TokenKeys> Keys() const;
  // Where the keys are and the id of the one that signs, for the entry in the directory of masters.
  std::string key_file() const;
  std::string key_id() const;

  // What a failed call means: a connection that ends at once is, most of the time, a certificate that was
  // refused, or one that was not shown.
  absl::Status Explain(const absl::Status& status) const;

 private:
  struct Material;
  explicit Credentials(std::shared_ptr<Material> material);
  std::shared_ptr<Material> material_;
};

// "Bearer TOKEN" without the scheme; empty where it is something else.
std::string_view BearerToken(std::string_view authorization);

// Of the user that runs this program: an operator by his name.
Identity OwnOperator();

}  // namespace c4::service
