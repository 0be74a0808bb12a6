#include "service/tls_server.h"

#include <filesystem>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <openssl/ssl.h>
#include <string>

#include "service/pki.h"
#include "tests/unit/service/temporary_directory.h"

namespace c4::service {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// A client that speaks through two strings.
class Client {
 public:
  // No `files`: it shows no certificate. No `protocol`: it asks for none.
  explicit Client(const TlsOptions* files, const std::string& protocol = "h2")
      : context_(SSL_CTX_new(TLS_client_method())) {
    if (files != nullptr) {
      EXPECT_EQ(SSL_CTX_use_certificate_chain_file(context_, files->cert.c_str()), 1);
      EXPECT_EQ(SSL_CTX_use_PrivateKey_file(context_, files->key.c_str(), SSL_FILETYPE_PEM), 1);
    }
    const std::string wire = std::string(1, static_cast<char>(protocol.size())) + protocol;
    if (!protocol.empty()) {
      SSL_CTX_set_alpn_protos(context_, reinterpret_cast<const unsigned char*>(wire.data()),
                              static_cast<unsigned>(wire.size()));
    }
    ssl_ = SSL_new(context_);
    in_ = BIO_new(BIO_s_mem());
    out_ = BIO_new(BIO_s_mem());
    SSL_set_bio(ssl_, in_, out_);
    SSL_set_connect_state(ssl_);
  }
  ~Client() {
    SSL_free(ssl_);
    SSL_CTX_free(context_);
  }
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  // Takes `wire`, goes on with the handshake, and gives what is to be sent.
  std::string Go(const std::string& wire) {
    BIO_write(in_, wire.data(), static_cast<int>(wire.size()));
    if (SSL_is_init_finished(ssl_) == 0) SSL_do_handshake(ssl_);
    return Sent();
  }
  std::string Say(const std::string& plain) {
    EXPECT_EQ(SSL_write(ssl_, plain.data(), static_cast<int>(plain.size())), static_cast<int>(plain.size()));
    return Sent();
  }
  std::string Hear(const std::string& wire) {
    BIO_write(in_, wire.data(), static_cast<int>(wire.size()));
    std::string plain(1 << 20, '\0');
    const int bytes = SSL_read(ssl_, plain.data(), static_cast<int>(plain.size()));
    plain.resize(bytes > 0 ? static_cast<size_t>(bytes) : 0);
    return plain;
  }

 private:
  std::string Sent() {
    std::string sent(BIO_ctrl_pending(out_), '\0');
    if (!sent.empty()) BIO_read(out_, sent.data(), static_cast<int>(sent.size()));
    return sent;
  }

  SSL_CTX* const context_;
  SSL* ssl_ = nullptr;
  BIO* in_ = nullptr;
  BIO* out_ = nullptr;
};

class TlsServerTest : public testing::Test {
 protected:
  void SetUp() override {
    master_ = Issue("ours", "master", Role::kJobMaster);
    agent_ = Issue("ours", "agent", Role::kAgent);
    Open();
  }

  TlsOptions Issue(const std::string& authority, const std::string& name, Role role) {
    const std::string folder = scratch_.File(authority);
    if (!std::filesystem::exists(folder)) {
      EXPECT_TRUE(InitAuthority(folder, authority, 30).ok());
    }
    const Identity identity =
        role == Role::kAgent ? Identity{.role = role, .host = "node7"} : Identity{.role = role, .job = "j"};
    const absl::StatusOr<IssuedFiles> files =
        IssueCertificate(folder, identity, {}, 30, scratch_.File(authority + "-" + name));
    EXPECT_TRUE(files.ok()) << files.status();
    return files.ok() ? TlsOptions{files->ca, files->certificate, files->key} : TlsOptions{};
  }
  void Open() {
    absl::StatusOr<std::unique_ptr<TlsServer>> server = TlsServer::Open(master_);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }
  // Until both have nothing to say. `cut`: in pieces of so many bytes.
  bool ShakeHands(Client* client, TlsSession* session, size_t cut = 100'000) {
    std::string to_client;
    for (int round = 0; round < 10; ++round) {
      const std::string to_server = client->Go(to_client);
      to_client.clear();
      if (to_server.empty()) break;
      for (size_t at = 0; at < to_server.size(); at += cut) {
        if (!session->Take(to_server.substr(at, cut), &plain_, &to_client)) return false;
      }
    }
    return session->established();
  }

  test::TemporaryDirectory scratch_;
  TlsOptions master_;
  TlsOptions agent_;
  std::unique_ptr<TlsServer> server_;
  std::string plain_;
};

TEST_F(TlsServerTest, WhatIsSaidArrivesWholeHoweverItIsCut) {
  for (const size_t cut : {size_t{1}, size_t{100}, size_t{100'000}}) {
    Client client(&agent_);
    const std::unique_ptr<TlsSession> session = server_->NewSession(0);
    ASSERT_TRUE(ShakeHands(&client, session.get(), cut)) << session->fault();
    EXPECT_THAT(session->uris(), ElementsAre(HasSubstr("node7")));
    const std::string said(100'000, 'q');
    std::string wire;
    const std::string sealed = client.Say(said);
    plain_.clear();
    for (size_t at = 0; at < sealed.size(); at += cut) {
      ASSERT_TRUE(session->Take(sealed.substr(at, cut), &plain_, &wire));
    }
    EXPECT_EQ(plain_, said);
    wire.clear();
    ASSERT_TRUE(session->Put("answer", &wire));
    EXPECT_EQ(client.Hear(wire), "answer");
  }
}

TEST_F(TlsServerTest, TheEndIsSaidAndHeard) {
  Client client(&agent_);
  const std::unique_ptr<TlsSession> session = server_->NewSession(0);
  ASSERT_TRUE(ShakeHands(&client, session.get()));
  std::string wire;
  session->End(&wire);
  EXPECT_FALSE(wire.empty());
}

TEST_F(TlsServerTest, WhoShowsNoCertificateOfTheAuthorityIsRefused) {
  const TlsOptions stranger = Issue("theirs", "agent", Role::kAgent);
  Client nobody(nullptr);
  Client mallory(&stranger);
  for (Client* const client : {&nobody, &mallory}) {
    const std::unique_ptr<TlsSession> session = server_->NewSession(0);
    EXPECT_FALSE(ShakeHands(client, session.get()));
    EXPECT_THAT(session->fault(), HasSubstr("certificate"));
    EXPECT_TRUE(session->uris().empty());
    EXPECT_TRUE(plain_.empty());
  }
}

TEST_F(TlsServerTest, OtherProtocolsAndOtherTonguesAreRefused) {
  for (const char* const protocol : {"", "http/1.1"}) {
    Client client(&agent_, protocol);
    const std::unique_ptr<TlsSession> session = server_->NewSession(0);
    EXPECT_FALSE(ShakeHands(&client, session.get())) << protocol;
    EXPECT_FALSE(session->fault().empty());
  }
  const std::unique_ptr<TlsSession> session = server_->NewSession(0);
  std::string wire;
  EXPECT_FALSE(session->Take("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", &plain_, &wire));
  EXPECT_FALSE(session->fault().empty());
}

// What is replaced holds for new connections within a second; what cannot be used changes nothing.
TEST_F(TlsServerTest, FilesAreTakenUpAsTheyChange) {
  const TlsOptions stranger = Issue("theirs", "agent", Role::kAgent);
  const auto admits = [&](const TlsOptions& files, int64_t now_ms) {
    Client client(&files);
    const std::unique_ptr<TlsSession> session = server_->NewSession(now_ms);
    return ShakeHands(&client, session.get());
  };
  EXPECT_TRUE(admits(agent_, 5'000));
  EXPECT_FALSE(admits(stranger, 5'000));
  scratch_.Write("garbage", "no certificate");
  std::filesystem::rename(scratch_.File("garbage"), master_.ca);
  EXPECT_TRUE(admits(agent_, 7'000));
  std::filesystem::copy_file(stranger.ca, scratch_.File("other.pem"));
  std::filesystem::rename(scratch_.File("other.pem"), master_.ca);
  EXPECT_TRUE(admits(stranger, 9'000));
  EXPECT_FALSE(admits(agent_, 9'000));
}

}  // namespace
}  // namespace c4::service
