#include "service/tls_server.h"

#include <algorithm>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <sys/stat.h>

#include "service/certificate.h"
#include "service/log.h"
#include "service/text.h"

namespace c4::service {
namespace {

constexpr int64_t kLookMs = 1000;
constexpr size_t kPieceBytes = 16 << 10;  // of a record
constexpr std::string_view kHttp2 = "h2";
constexpr unsigned char kProtocols[] = {2, 'h', '2'};

// The first of OpenSSL's errors of this thread in words, all of them forgotten.
std::string Reason() {
  const unsigned long code = ERR_get_error();
  const char* const text = code == 0 ? nullptr : ERR_reason_error_string(code);
  ERR_clear_error();
  return text == nullptr ? "OpenSSL gives no reason" : text;
}

int ChooseProtocol(SSL* /*ssl*/, const unsigned char** out, unsigned char* out_bytes, const unsigned char* in,
                   unsigned int in_bytes, void* /*unused*/) {
  unsigned char* chosen = nullptr;
  if (SSL_select_next_proto(&chosen, out_bytes, kProtocols, sizeof kProtocols, in, in_bytes) !=
      OPENSSL_NPN_NEGOTIATED) {
    return SSL_TLSEXT_ERR_ALERT_FATAL;
  }
  *out = chosen;
  return SSL_TLSEXT_ERR_OK;
}

}  // namespace

TlsSession::TlsSession(SSL_CTX* context) : ssl_(SSL_new(context)) {
  in_ = BIO_new(BIO_s_mem());
  out_ = BIO_new(BIO_s_mem());
  if (ssl_ == nullptr || in_ == nullptr || out_ == nullptr) {
    BIO_free(in_);
    BIO_free(out_);
    SSL_free(ssl_);
    ssl_ = nullptr;
    fault_ = "there is no memory for TLS";
    return;
  }
  SSL_set_bio(ssl_, in_, out_);
  SSL_set_accept_state(ssl_);
}

TlsSession::~TlsSession() {
  SSL_free(ssl_);
}

void TlsSession::Drain(std::string* wire) {
  const size_t bytes = BIO_ctrl_pending(out_);
  if (bytes == 0) return;
  const size_t before = wire->size();
  wire->resize(before + bytes);
  const int read = BIO_read(out_, wire->data() + before, static_cast<int>(bytes));
  wire->resize(before + static_cast<size_t>(std::max(0, read)));
}

bool TlsSession::Establish() {
  const int done = SSL_do_handshake(ssl_);
  if (done != 1) {
    const int error = SSL_get_error(ssl_, done);
    if (error == SSL_ERROR_WANT_READ || error == SSL_ERROR_WANT_WRITE) return true;
    const long verified = SSL_get_verify_result(ssl_);
    fault_ = Concat("no TLS with it: ", Reason());
    if (verified != X509_V_OK) fault_ += Concat(": ", X509_verify_cert_error_string(verified));
    return false;
  }
  const unsigned char* protocol = nullptr;
  unsigned bytes = 0;
  SSL_get0_alpn_selected(ssl_, &protocol, &bytes);
  if (bytes == 0 || std::string_view(reinterpret_cast<const char*>(protocol), bytes) != kHttp2) {
    fault_ = "does not ask for HTTP/2 over TLS";
    return false;
  }
  if (const X509* const peer = SSL_get0_peer_certificate(ssl_); peer != nullptr) uris_ = UrisOf(peer);
  established_ = true;
  return true;
}

bool TlsSession::Take(std::string_view bytes, std::string* plain, std::string* wire) {
  if (ssl_ == nullptr) return false;
  ERR_clear_error();
  if (!bytes.empty() && BIO_write(in_, bytes.data(), static_cast<int>(bytes.size())) <= 0) {
    fault_ = "there is no memory for TLS";
    return false;
  }
  bool goes_on = established_ || Establish();
  while (goes_on && established_) {
    const size_t before = plain->size();
    plain->resize(before + kPieceBytes);
    const int read = SSL_read(ssl_, plain->data() + before, kPieceBytes);
    plain->resize(before + static_cast<size_t>(std::max(0, read)));
    if (read > 0) continue;
    const int error = SSL_get_error(ssl_, read);
    if (error == SSL_ERROR_WANT_READ) break;
    if (error != SSL_ERROR_ZERO_RETURN) fault_ = Concat("no TLS with it any more: ", Reason());
    goes_on = false;
  }
  Drain(wire);
  return goes_on;
}

bool TlsSession::Put(std::string_view plain, std::string* wire) {
  if (plain.empty()) return true;
  ERR_clear_error();
  const int written = SSL_write(ssl_, plain.data(), static_cast<int>(plain.size()));
  Drain(wire);
  // A memory BIO takes all or has no memory.
  return written == static_cast<int>(plain.size());
}

void TlsSession::End(std::string* wire) {
  if (!established_) return;
  ERR_clear_error();
  (void)SSL_shutdown(ssl_);
  Drain(wire);
}

absl::StatusOr<std::unique_ptr<TlsServer>> TlsServer::Open(const TlsOptions& files) {
  std::unique_ptr<TlsServer> server(new TlsServer(files));
  C4_RETURN_IF_NOT_OK(server->Read());
  return server;
}

TlsServer::~TlsServer() {
  SSL_CTX_free(context_);
}

std::string TlsServer::State() const {
  std::string state;
  for (const std::string& path : {files_.ca, files_.cert, files_.key}) {
    struct stat status {};
    if (stat(path.c_str(), &status) != 0) return {};
    state += Concat(status.st_ino, ":", status.st_size, ":", status.st_ctim.tv_sec, ".",
                    status.st_ctim.tv_nsec, " ");
  }
  return state;
}

absl::Status TlsServer::Read() {
  const std::string state = State();
  C4_RETURN_IF_NOT_OK(CheckCertificateFiles(files_));
  ERR_clear_error();
  const std::unique_ptr<SSL_CTX, decltype(&SSL_CTX_free)> made(SSL_CTX_new(TLS_server_method()),
                                                               SSL_CTX_free);
  SSL_CTX* const context = made.get();
  if (context == nullptr) return absl::InternalError(Concat("TLS cannot be set up: ", Reason()));
  SSL_CTX_set_verify(context, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, nullptr);
  SSL_CTX_set_options(context, SSL_OP_NO_TICKET | SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION);
  SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
  SSL_CTX_set_mode(context, SSL_MODE_RELEASE_BUFFERS);
  SSL_CTX_set_alpn_select_cb(context, ChooseProtocol, nullptr);
  if (SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION) != 1 || SSL_CTX_set_num_tickets(context, 0) != 1)
    return absl::InternalError(Concat("TLS cannot be set up: ", Reason()));
  if (SSL_CTX_load_verify_locations(context, files_.ca.c_str(), nullptr) != 1)
    return absl::InvalidArgumentError(Concat("--tls-ca: ", files_.ca, " cannot be used: ", Reason()));
  if (SSL_CTX_use_certificate_chain_file(context, files_.cert.c_str()) != 1)
    return absl::InvalidArgumentError(Concat("--tls-cert: ", files_.cert, " cannot be used: ", Reason()));
  if (SSL_CTX_use_PrivateKey_file(context, files_.key.c_str(), SSL_FILETYPE_PEM) != 1 ||
      SSL_CTX_check_private_key(context) != 1) {
    return absl::InvalidArgumentError(Concat("--tls-key: ", files_.key, " cannot be used: ", Reason()));
  }
  SSL_CTX_free(context_);
  SSL_CTX_up_ref(context);
  context_ = context;
  read_state_ = state;
  return absl::OkStatus();
}

std::unique_ptr<TlsSession> TlsServer::NewSession(int64_t now_ms) {
  if (now_ms - looked_ms_ >= kLookMs) {
    looked_ms_ = now_ms;
    if (State() != read_state_) {
      // Three files are not changed at once: while they do not fit they are looked at again.
      const absl::Status read = Read();
      const std::string text(read.message());
      if (read.ok()) {
        LogInfo(files_.cert, ", its key or ", files_.ca, " has changed and was read again");
      } else if (text != told_) {
        LogWarning(text, "; what was read before stays in force");
      }
      told_ = text;
    }
  }
  auto session = std::make_unique<TlsSession>(context_);
  return session->fault().empty() ? std::move(session) : nullptr;
}

}  // namespace c4::service
