// Server, channel, TLS and token against each other, over the service that the daemons speak.
#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>

#include "c4/v1/c4d.grpc.pb.h"
#include "service/channel.h"
#include "service/credentials.h"
#include "service/grpc_server.h"
#include "tests/unit/service/certificates.h"
#include "tests/unit/service/temporary_directory.h"

namespace c4::service {
namespace {

using testing::HasSubstr;

// Checks the token as the skins of the daemons do.
class GuardedService final : public v1::C4d::Service {
 public:
  explicit GuardedService(Credentials credentials) : credentials_(std::move(credentials)) {}

  grpc::Status ListVerdicts(grpc::ServerContext* context, const v1::ListVerdictsRequest*,
                            v1::ListVerdictsReply* reply) override {
    if (absl::Status allowed = credentials_.CheckToken(*context); !allowed.ok()) return ToGrpcStatus(allowed);
    reply->set_job("job");
    return grpc::Status::OK;
  }

  grpc::Status WatchVerdicts(grpc::ServerContext* context, const v1::WatchVerdictsRequest*,
                             grpc::ServerWriter<v1::Verdict>*) override {
    while (!context->IsCancelled()) absl::SleepFor(absl::Milliseconds(5));
    return grpc::Status::CANCELLED;
  }

 private:
  const Credentials credentials_;
};

absl::Status Call(const std::string& address, const Credentials& credentials) {
  const auto stub = v1::C4d::NewStub(MakeChannel(address, credentials));
  grpc::ClientContext context;
  credentials.AddToken(&context);
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(5));
  v1::ListVerdictsReply reply;
  absl::Status status = FromGrpcStatus(stub->ListVerdicts(&context, {}, &reply));
  EXPECT_EQ(reply.job(), status.ok() ? "job" : "");
  return status;
}

class GrpcTest : public testing::Test {
 protected:
  std::unique_ptr<GrpcServer> Start(const Credentials& credentials) {
    service_ = std::make_unique<GuardedService>(credentials);
    grpc::Service* const services[] = {service_.get()};
    auto server = GrpcServer::Start("127.0.0.1:0", credentials, services);
    EXPECT_TRUE(server.ok()) << server.status();
    return *std::move(server);
  }

  Credentials Token(const std::string& token) {
    const auto credentials = Credentials::Load({}, directory_.Write("token-" + token, token + "\n"));
    EXPECT_TRUE(credentials.ok()) << credentials.status();
    return *credentials;
  }

  TlsOptions Tls(const std::string& name, const test::Certificate& authority) {
    const test::Certificate certificate(name, &authority);
    return {.ca = directory_.Write(name + ".ca", authority.CertificatePem()),
            .cert = directory_.Write(name + ".cert", certificate.CertificatePem()),
            .key = directory_.Write(name + ".key", certificate.KeyPem())};
  }

  test::TemporaryDirectory directory_;
  std::unique_ptr<GuardedService> service_;
};

TEST_F(GrpcTest, PlainRoundTrip) {
  const auto server = Start(Credentials());
  EXPECT_EQ(server->address(), "127.0.0.1:" + std::to_string(server->port()));
  EXPECT_TRUE(Call(server->address(), Credentials()).ok());
}

TEST_F(GrpcTest, ATakenPortIsAnErrorWithTheAddress) {
  const auto server = Start(Credentials());
  GuardedService other((Credentials()));
  grpc::Service* const services[] = {&other};
  const auto second = GrpcServer::Start(server->address(), Credentials(), services);
  EXPECT_THAT(std::string(second.status().message()),
              AllOf(HasSubstr(server->address()), HasSubstr("already in use")));
}

TEST_F(GrpcTest, TheTokenIsAskedForWithoutTlsToo) {
  const auto server = Start(Token("right"));
  EXPECT_TRUE(Call(server->address(), Token("right")).ok());
  EXPECT_TRUE(absl::IsUnauthenticated(Call(server->address(), Token("wrong"))));
  EXPECT_TRUE(absl::IsUnauthenticated(Call(server->address(), Token("right1"))));
  EXPECT_THAT(std::string(Call(server->address(), Credentials()).message()), HasSubstr("--token-file"));
}

TEST_F(GrpcTest, AServerWithoutTokenAsksForNone) {
  const auto server = Start(Credentials());
  EXPECT_TRUE(Call(server->address(), Token("any")).ok());
}

TEST_F(GrpcTest, MutualTls) {
  const test::Certificate authority("authority");
  const test::Certificate stranger("stranger");
  const auto ours = Credentials::Load(Tls("server", authority), directory_.Write("token", "t0ken"));
  ASSERT_TRUE(ours.ok()) << ours.status();
  const auto server = Start(*ours);
  const auto client = Credentials::Load(Tls("client", authority), directory_.Write("token", "t0ken"));
  EXPECT_TRUE(client->has_tls());
  EXPECT_TRUE(Call(server->address(), *client).ok());
  // All with the right token: it is the certificates that must stop them.
  const auto refused = [&](const TlsOptions& tls) {
    const auto credentials = Credentials::Load(tls, directory_.File("token"));
    return credentials.ok() && absl::IsUnavailable(Call(server->address(), *credentials));
  };
  TlsOptions foreign = Tls("foreign", stranger);
  EXPECT_TRUE(refused(foreign));  // does not trust our authority
  foreign.ca = directory_.Write("foreign.ca", authority.CertificatePem());
  EXPECT_TRUE(refused(foreign));  // trusts it, but was signed by another
  EXPECT_TRUE(refused({}));       // plain
}

TEST_F(GrpcTest, ShutdownEndsCallsThatDoNot) {
  const auto server = Start(Credentials());
  const auto stub = v1::C4d::NewStub(MakeChannel(server->address(), Credentials()));
  grpc::ClientContext context;
  const auto reader = stub->WatchVerdicts(&context, {});
  v1::Verdict verdict;
  const absl::Time start = absl::Now();
  std::thread stop([&] { server->Shutdown(absl::Milliseconds(50)); });
  EXPECT_FALSE(reader->Read(&verdict));
  stop.join();
  EXPECT_LT(absl::Now() - start, absl::Seconds(5));
}

TEST_F(GrpcTest, HalfGivenOrWrongMaterialIsRefused) {
  const test::Certificate authority("authority");
  TlsOptions options = Tls("x", authority);
  options.key.clear();
  EXPECT_THAT(std::string(Credentials::Load(options, "").status().message()), HasSubstr("all three"));
  options.key = "/nowhere/key";
  EXPECT_THAT(std::string(Credentials::Load(options, "").status().message()), HasSubstr("/nowhere/key"));
  options.key = directory_.Write("key", "no pem");
  EXPECT_THAT(std::string(Credentials::Load(options, "").status().message()), HasSubstr("PEM"));
  EXPECT_FALSE(Credentials::Load({}, directory_.Write("empty", "\n")).ok());
  EXPECT_FALSE(Credentials::Load({}, directory_.Write("lines", "a\nb\n")).ok());
  // A key of another certificate: the server says that it cannot start instead of failing each call.
  TlsOptions mixed = Tls("y", authority);
  mixed.key = directory_.Write("z.key", test::Certificate("z", &authority).KeyPem());
  const auto credentials = Credentials::Load(mixed, "");
  ASSERT_TRUE(credentials.ok());
  GuardedService service((Credentials()));
  grpc::Service* const services[] = {&service};
  EXPECT_FALSE(GrpcServer::Start("127.0.0.1:0", *credentials, services).ok());
}

TEST(Authorization, OnlyTheWholeHeaderCounts) {
  const test::TemporaryDirectory directory;
  const auto credentials = Credentials::Load({}, directory.Write("token", "  abc\n"));
  ASSERT_TRUE(credentials.ok());
  EXPECT_EQ(credentials->Authorization(), "Bearer abc");
  EXPECT_TRUE(credentials->CheckAuthorization("Bearer abc").ok());
  for (const char* wrong :
       {"", "Bearer", "Bearer ", "Bearer ab", "Bearer abcd", "Bearer abd", "abc", "bearer abc"}) {
    EXPECT_FALSE(credentials->CheckAuthorization(wrong).ok()) << wrong;
  }
}

}  // namespace
}  // namespace c4::service
