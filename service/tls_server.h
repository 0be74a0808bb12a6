// The server's side of mutual TLS over bytes that somebody else carries: the door of a gRPC server
// (ingress.h) ends TLS itself, so that it can count what comes in before the library takes it.
//
// TlsServer holds what the three PEM files say, and looks at them again at most once a second; what cannot be
// used is warned about once, and the former content stays in force. Clients have to show a certificate of the
// authority and to ask for HTTP/2 by ALPN; TLS 1.2 at least, no resumption (it would outlive a change of the
// authority), no renegotiation. One thread for a TlsServer and its sessions.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "service/config.h"
#include "service/status.h"

using BIO = struct bio_st;
using SSL = struct ssl_st;
using SSL_CTX = struct ssl_ctx_st;

namespace c4::service {

// One connection.
class TlsSession {
 public:
  explicit TlsSession(SSL_CTX* context);  // holds a reference of its own
  ~TlsSession();
  TlsSession(const TlsSession&) = delete;
  TlsSession& operator=(const TlsSession&) = delete;

  // Takes what came from the peer, appends what it says to `plain` and what is to be sent to it to `wire`.
  // False: the connection is over, or fault() says why it has to be; `wire` may still hold an alert.
  bool Take(std::string_view bytes, std::string* plain, std::string* wire);
  // Appends `plain`, sealed, to `wire`; not before it is established.
  bool Put(std::string_view plain, std::string* wire);

  // Appends to `wire` that nothing follows.
  void End(std::string* wire);

  bool established() const { return established_; }
  const std::string& fault() const { return fault_; }  // a sentence's end; empty: none
  // The URIs of the peer's certificate, once established.
  const std::vector<std::string>& uris() const { return uris_; }

 private:
  bool Establish();
  void Drain(std::string* wire);

  SSL* ssl_ = nullptr;
  BIO* in_ = nullptr;  // both belong to ssl_
  BIO* out_ = nullptr;
  bool established_ = false;
  std::string fault_;
  std::vector<std::string> uris_;
};

class TlsServer {
 public:
  // Fails with a sentence that names the option and the file.
  static absl::StatusOr<std::unique_ptr<TlsServer>> Open(const TlsOptions& files);
  ~TlsServer();
  TlsServer(const TlsServer&) = delete;
  TlsServer& operator=(const TlsServer&) = delete;

  // nullptr: no memory. Of what the files say now.
  std::unique_ptr<TlsSession> NewSession(int64_t now_ms);

 private:
  explicit TlsServer(TlsOptions files) : files_(std::move(files)) {}
  std::string State() const;  // of the files; changes with them
  absl::Status Read();

  const TlsOptions files_;
  SSL_CTX* context_ = nullptr;
  std::string read_state_;  // as they were when context_ was made
  std::string told_;        // the last warning
  int64_t looked_ms_ = 0;
};

}  // namespace c4::service
