// Server, channel, TLS and token against each other, over the service that the daemons speak.
#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <sys/wait.h>
#include <unistd.h>

#include "c4/v1/c4d.grpc.pb.h"
#include "service/channel.h"
#include "service/credentials.h"
#include "service/gate.h"
#include "service/grpc_server.h"
#include "tests/unit/service/certificates.h"
#include "tests/unit/service/key_files.h"
#include "tests/unit/service/temporary_directory.h"

namespace c4::service {
namespace {

using testing::HasSubstr;

// Asks the gate as the skins of the daemons do.
class GuardedService final : public v1::C4d::Service {
 public:
  explicit GuardedService(Gate gate) : gate_(std::move(gate)) {}

  grpc::Status ListVerdicts(grpc::ServerContext* context, const v1::ListVerdictsRequest*,
                            v1::ListVerdictsReply* reply) override {
    const absl::StatusOr<Identity> caller = gate_.Admit(*context, "c4.v1.C4d/ListVerdicts");
    if (!caller.ok()) return ToGrpcStatus(caller.status());
    reply->set_job(Describe(*caller));
    return grpc::Status::OK;
  }

  grpc::Status WatchVerdicts(grpc::ServerContext* context, const v1::WatchVerdictsRequest*,
                             grpc::ServerWriter<v1::Verdict>*) override {
    while (!context->IsCancelled()) absl::SleepFor(absl::Milliseconds(5));
    return grpc::Status::CANCELLED;
  }

 private:
  const Gate gate_;
};

// Who the server says that we are.
absl::StatusOr<std::string> WhoAmI(const std::string& address, const Credentials& credentials,
                                   const std::string& job = {}) {
  const auto stub = v1::C4d::NewStub(MakeChannel(address, credentials, Role::kJobMaster, job));
  grpc::ClientContext context;
  credentials.AddToken(&context, MasterAddress(address));
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(5));
  v1::ListVerdictsReply reply;
  absl::Status status = credentials.Explain(FromGrpcStatus(stub->ListVerdicts(&context, {}, &reply)));
  if (!status.ok()) return status;
  return reply.job();
}

absl::Status Call(const std::string& address, const Credentials& credentials) {
  return WhoAmI(address, credentials).status();
}

const Identity kAnn = {.role = Role::kOperator, .name = "ann"};

class GrpcTest : public testing::Test {
 protected:
  std::unique_ptr<GrpcServer> Start(const Gate& gate) {
    service_ = std::make_unique<GuardedService>(gate);
    grpc::Service* const services[] = {service_.get()};
    auto server = GrpcServer::Start("127.0.0.1:0", gate, services);
    EXPECT_TRUE(server.ok()) << server.status();
    return *std::move(server);
  }

  // Of a certificate that `authority` has signed; in the files `name`.ca, .cert and .key.
  TlsOptions Tls(const std::string& name, const test::Certificate& authority,
                 const test::CertificateFacts& facts = {}) {
    const test::Certificate certificate(name, &authority, facts);
    return {.ca = directory_.Write(name + ".ca", authority.CertificatePem()),
            .cert = directory_.Write(name + ".cert", certificate.CertificatePem()),
            .key = test::WriteSecret(directory_, name + ".key", certificate.KeyPem())};
  }
  Credentials With(const TlsOptions& tls, const std::string& key_file = {}) {
    return test::WithKey(key_file, kAnn, tls);
  }
  std::string Why(const absl::StatusOr<std::string>& who) { return std::string(who.status().message()); }

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
  GuardedService other((Gate()));
  grpc::Service* const services[] = {&other};
  const auto second = GrpcServer::Start(server->address(), Gate(), services);
  EXPECT_THAT(std::string(second.status().message()),
              AllOf(HasSubstr(server->address()), HasSubstr("already in use")));
}

TEST_F(GrpcTest, WithoutIdentityItIsLoopbackAndTheOwnUserOnly) {
  GuardedService open((Gate()));
  grpc::Service* const services[] = {&open};
  for (const char* address : {"0.0.0.0:0", "[::]:0"}) {
    EXPECT_THAT(std::string(GrpcServer::Start(address, Gate(), services).status().message()),
                AllOf(HasSubstr("--key-file"), HasSubstr(address)));
  }
  const auto server = Start(Gate());
  EXPECT_EQ(*WhoAmI(server->address(), Credentials()),
            "owner (uid " + std::to_string(geteuid()) + ") by the kernel");
  if (geteuid() != 0) return;
  // Another user of this machine: a process of its own, as users belong to processes.
  const pid_t child = fork();
  if (child == 0) {
    if (setresuid(12345, 12345, 12345) != 0) _exit(3);
    execl("/proc/self/exe", "grpc_test", "--gtest_filter=Stranger.DISABLED_Calls",
          "--gtest_also_run_disabled_tests", ("--address=" + server->address()).c_str(), nullptr);
    _exit(4);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0) << "the other user was let in";
}

TEST_F(GrpcTest, ATokenOfItsKeyAndNoOther) {
  const std::string key = test::WriteKey(directory_, "right");
  const std::string other = test::WriteKey(directory_, "wrong");
  const auto server = Start(test::WithKey(key, {.role = Role::kJobMaster, .job = "job"}));
  EXPECT_EQ(*WhoAmI(server->address(), test::WithKey(key, kAnn)), "operator ann by token");
  EXPECT_TRUE(absl::IsUnauthenticated(Call(server->address(), test::WithKey(other, kAnn))));
  EXPECT_TRUE(absl::IsPermissionDenied(
      Call(server->address(), test::WithKey(key, {.role = Role::kAgent, .host = "node"}))));
}

// A token that was issued to a program, in place of the key.
TEST_F(GrpcTest, AnIssuedTokenIsShownAndReadAgain) {
  const std::string key_file = test::WriteKey(directory_);
  const auto server = Start(test::WithKey(key_file, {}));
  const TokenKeys keys = *ParseKeys(test::ReadWhole(key_file), "key");
  const auto issue = [&](const std::string& name, int64_t from_s, int64_t to_s) {
    const int64_t now_s = time(nullptr);
    return *IssueToken(keys[0], {.identity = {.role = Role::kReader, .name = name},
                                 .not_before_s = now_s + from_s,
                                 .expires_s = now_s + to_s}) +
           "\n";
  };
  const std::string path = test::WriteSecret(directory_, "token", issue("bob", -60, 60));
  const auto client = Credentials::Load({.token_file = path}, {});
  ASSERT_TRUE(client.ok()) << client.status();
  EXPECT_EQ(*WhoAmI(server->address(), *client), "reader bob by token");
  // Renewed while the client runs.
  test::WriteSecret(directory_, "next", issue("carol", -60, 60));
  ASSERT_EQ(rename(directory_.File("next").c_str(), path.c_str()), 0);
  std::string who;
  for (int i = 0; i < 100 && who != "reader carol by token"; ++i) {
    absl::SleepFor(absl::Milliseconds(50));
    who = WhoAmI(server->address(), *client).value_or("refused");
  }
  EXPECT_EQ(who, "reader carol by token");
  for (const auto& [from_s, to_s, why] :
       {std::tuple(-600, -60, "expired"), std::tuple(60, 600, "not valid yet")}) {
    const auto late = Credentials::Load(
        {.token_file = test::WriteSecret(directory_, "late", issue("dave", from_s, to_s))}, {});
    EXPECT_THAT(Why(WhoAmI(server->address(), *late)), HasSubstr(why));
  }
  EXPECT_FALSE(Credentials::Load({.token_file = test::WriteSecret(directory_, "old", "s3cret\n")}, {}).ok());
}

// The key of a server is changed under it: the new one before the old one, then the new one alone.
TEST_F(GrpcTest, KeysAreReadAgainWithoutARestart) {
  const std::string served = test::WriteKey(directory_, "served");
  const std::string old_key = test::WriteSecret(directory_, "old", test::ReadWhole(served));
  const std::string new_key = test::WriteKey(directory_, "new");
  const auto server = Start(test::WithKey(served, {}));
  const auto answers = [&](const std::string& key, bool let_in) {
    for (int i = 0; i < 100; ++i) {
      if (Call(server->address(), test::WithKey(key, kAnn)).ok() == let_in) return true;
      absl::SleepFor(absl::Milliseconds(50));
    }
    return false;
  };
  EXPECT_TRUE(answers(old_key, true));
  EXPECT_TRUE(answers(new_key, false));
  test::WriteSecret(directory_, "served", test::ReadWhole(new_key) + test::ReadWhole(old_key));
  EXPECT_TRUE(answers(new_key, true));
  EXPECT_TRUE(answers(old_key, true));
  test::WriteSecret(directory_, "served", test::ReadWhole(new_key));
  EXPECT_TRUE(answers(old_key, false));
  EXPECT_TRUE(answers(new_key, true));
}

// What a client gives to a master that it does not trust: nothing that another master would take.
TEST_F(GrpcTest, NoTokenGoesToAMasterThatSomebodyElsePublished) {
  const std::string own = test::WriteKey(directory_, "own");
  const std::string job_key = test::WriteKey(directory_, "job.key");
  const Credentials credentials = test::WithKey(own, kAnn);
  MasterAddress master("127.0.0.1:1");
  EXPECT_NE(credentials.AuthorizationFor(master), "");
  master.published_by = static_cast<int64_t>(geteuid());
  EXPECT_NE(credentials.AuthorizationFor(master), "");
  master.published_by = 12345;
  EXPECT_EQ(credentials.AuthorizationFor(master), "");
  master.key_file = job_key;  // not his: he names another's file
  EXPECT_EQ(credentials.AuthorizationFor(master), "");
  if (geteuid() != 0) return;
  ASSERT_EQ(chown(job_key.c_str(), 12345, 12345), 0);
  const TokenKeys his = *ParseKeys(test::ReadWhole(job_key), "key");
  const TokenKeys ours = *ParseKeys(test::ReadWhole(own), "key");
  const std::string token(BearerToken(credentials.AuthorizationFor(master)));
  EXPECT_TRUE(VerifyToken(his, token, time(nullptr)).ok());
  EXPECT_FALSE(VerifyToken(ours, token, time(nullptr)).ok());
}

TEST_F(GrpcTest, ATokenLeavesThisMachineOverTlsOnly) {
  const std::string key = test::WriteKey(directory_);
  const MasterAddress elsewhere("192.0.2.1:15141");
  EXPECT_EQ(test::WithKey(key, kAnn).AuthorizationFor(elsewhere), "");
  const auto clear = Credentials::Load({.key_file = key, .token_in_clear = true}, kAnn);
  EXPECT_NE(clear->AuthorizationFor(elsewhere), "");
  const test::Certificate authority("authority");
  EXPECT_NE(With(Tls("client", authority), key).AuthorizationFor(elsewhere), "");
}

TEST_F(GrpcTest, MutualTls) {
  const test::Certificate authority("authority");
  const test::Certificate stranger("stranger");
  const std::string key = test::WriteKey(directory_);
  const auto server = Start(With(Tls("server", authority), key));
  EXPECT_EQ(*WhoAmI(server->address(), With(Tls("client", authority), key)), "operator ann by token");
  // All with the right token: it is the certificates that must stop them.
  const auto refused = [&](const TlsOptions& tls) {
    return absl::IsUnavailable(Call(server->address(), With(tls, key)));
  };
  TlsOptions foreign = Tls("foreign", stranger);
  EXPECT_TRUE(refused(foreign));  // does not trust our authority
  foreign.ca = directory_.Write("foreign.ca", authority.CertificatePem());
  // Trusts it, but was signed by another: said as such, not as a closed socket.
  const absl::Status why = Call(server->address(), With(foreign, key));
  EXPECT_TRUE(absl::IsUnavailable(why));
  EXPECT_THAT(std::string(why.message()), AllOf(HasSubstr("certificate"), HasSubstr("signed by stranger")));
  EXPECT_TRUE(refused({}));  // plain
}

TEST_F(GrpcTest, TheCertificatesUriIsWhoCalls) {
  const test::Certificate authority("authority");
  const auto server = Start(With(Tls("server", authority)));
  const auto who = [&](const std::string& uri) {
    return WhoAmI(server->address(), With(Tls("client", authority, {.uri = uri})));
  };
  EXPECT_EQ(*who("c4://role/operator/ann"), "operator ann by certificate");
  EXPECT_EQ(*who("c4://role/job-master/j"), "job-master of job j by certificate");
  EXPECT_TRUE(absl::IsPermissionDenied(who("c4://role/agent/node7").status()));
  EXPECT_TRUE(absl::IsUnauthenticated(who("c4://role/root").status()));
  EXPECT_TRUE(absl::IsUnauthenticated(who("").status()));  // no role and no token
  EXPECT_TRUE(absl::IsUnauthenticated(who("c4://role/operator/a,URI:c4://role/reader/a").status()));
}

TEST_F(GrpcTest, ExpiredAndNotYetValidCertificatesAreRefused) {
  const test::Certificate authority("authority");
  const auto server = Start(With(Tls("server", authority)));
  for (const auto& [from_s, to_s] : {std::pair(-7200, -3600), std::pair(3600, 7200)}) {
    const TlsOptions tls =
        Tls("client", authority, {.uri = "c4://role/operator/ann", .from_s = from_s, .to_s = to_s});
    // Our own program says so at its start; a program that does not care is refused by the server.
    EXPECT_FALSE(Credentials::Load({.tls = tls}, kAnn).ok());
    grpc::SslCredentialsOptions options;
    options.pem_root_certs = test::ReadWhole(tls.ca);
    options.pem_private_key = test::ReadWhole(tls.key);
    options.pem_cert_chain = test::ReadWhole(tls.cert);
    const auto stub = v1::C4d::NewStub(grpc::CreateChannel(server->address(), grpc::SslCredentials(options)));
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(3));
    v1::ListVerdictsReply reply;
    EXPECT_FALSE(stub->ListVerdicts(&context, {}, &reply).ok());
  }
}

// A stolen token, shown over another node's certificate.
TEST_F(GrpcTest, TokenAndCertificateHaveToAgree) {
  const test::Certificate authority("authority");
  const std::string key = test::WriteKey(directory_);
  const auto server = Start(With(Tls("server", authority), key));
  const TlsOptions node7 = Tls("client", authority, {.uri = "c4://role/agent/node7"});
  const auto with = [&](const Identity& self) {
    return Call(server->address(), test::WithKey(key, self, node7));
  };
  EXPECT_TRUE(with({.role = Role::kOperator, .name = "ann"}).ok());
  EXPECT_TRUE(absl::IsUnauthenticated(with({.role = Role::kAgent, .host = "node8"})));
}

// The client looks at the server before a token goes out.
TEST_F(GrpcTest, TheServerHasToBeWhoWasAskedFor) {
  const test::Certificate authority("authority");
  const TlsOptions ann = Tls("client", authority, {.uri = "c4://role/operator/ann"});
  const auto asked = [&](const test::CertificateFacts& facts) {
    const auto server = Start(With(Tls("server", authority, facts)));
    return WhoAmI(server->address(), With(ann), "job");
  };
  EXPECT_TRUE(asked({.uri = "c4://role/job-master/job", .names = "DNS:elsewhere"}).ok());
  EXPECT_THAT(Why(asked({.uri = "c4://role/job-master/other"})), HasSubstr("other"));
  EXPECT_THAT(Why(asked({.uri = "c4://role/agent/node7"})), HasSubstr("agent of host node7"));
  EXPECT_THAT(Why(asked({.uri = "c4://role/path-master"})), HasSubstr("path-master"));
  EXPECT_TRUE(asked({}).ok());  // by the address that was dialled
  EXPECT_FALSE(asked({.names = "DNS:elsewhere"}).ok());
}

// Both are replaced under a running server: an authority that no longer counts shuts its clients out.
TEST_F(GrpcTest, CertificatesAreReadAgainWithoutARestart) {
  const test::Certificate first("first"), second("second");
  const auto server = Start(With(Tls("server", first)));
  const Credentials old_client = With(Tls("old", first, {.uri = "c4://role/operator/old"}));
  const Credentials new_client = With(Tls("new", second, {.uri = "c4://role/operator/new"}));
  EXPECT_TRUE(Call(server->address(), old_client).ok());
  EXPECT_FALSE(Call(server->address(), new_client).ok());
  Tls("server", second);  // over the files that the server watches
  std::string who;
  for (int i = 0; i < 100 && who.empty(); ++i) {
    absl::SleepFor(absl::Milliseconds(100));
    who = WhoAmI(server->address(), new_client).value_or("");
  }
  EXPECT_EQ(who, "operator new by certificate");
  EXPECT_FALSE(Call(server->address(), old_client).ok());
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
  const auto why = [](const SecurityOptions& options) {
    return std::string(Credentials::Load(options, {}).status().message());
  };
  TlsOptions options = Tls("x", authority);
  options.key.clear();
  EXPECT_THAT(why({.tls = options}), HasSubstr("all three"));
  options.key = "/nowhere/key";
  EXPECT_THAT(why({.tls = options}), HasSubstr("/nowhere/key"));
  options.key = test::WriteSecret(directory_, "key", "no pem");
  EXPECT_THAT(why({.tls = options}), HasSubstr("PEM"));
  TlsOptions mixed = Tls("y", authority);
  mixed.key = test::WriteSecret(directory_, "z.key", test::Certificate("z", &authority).KeyPem());
  EXPECT_THAT(why({.tls = mixed}), HasSubstr("is not the key of"));
  ASSERT_EQ(chmod(mixed.key.c_str(), 0644), 0);
  EXPECT_THAT(why({.tls = mixed}), HasSubstr("chmod 600"));
  EXPECT_THAT(why({.token_file = test::WriteSecret(directory_, "empty", "\n")}), HasSubstr("empty"));
  EXPECT_THAT(why({.key_file = directory_.Write("open", *NewKeyLine())}), HasSubstr("chmod 600"));
}

// Run as another user by WithoutIdentityItIsLoopbackAndTheOwnUserOnly.
TEST(Stranger, DISABLED_Calls) {
  std::string address;
  for (const std::string& argument : testing::internal::GetArgvs()) {
    if (argument.starts_with("--address=")) address = argument.substr(10);
  }
  EXPECT_TRUE(absl::IsUnauthenticated(Call(address, Credentials())));
}

}  // namespace
}  // namespace c4::service
