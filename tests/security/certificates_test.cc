// A master and an agent under mutual TLS, with what c4 pki makes: who comes with the wrong certificate, and
// certificates that are changed under the running programs.
#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "tests/security/attack.h"

namespace c4::service_test {
namespace {

using testing::AllOf;
using testing::AnyOf;
using testing::HasSubstr;

class CertificatesTest : public testing::Test {
 protected:
  void SetUp() override {
    Authority("ours");
    Authority("theirs");
    Issue("ours", "master", {"--role", "job-master", "--job", "j"});
    Issue("ours", "ann", {"--role", "operator", "--name", "ann"});
    master_ = std::make_unique<Process>(
        With("master", {Binary("c4d_master"), "--job", "j", "--listen", "127.0.0.1:0", "--http-address",
                        "127.0.0.1:0", "--c4p", "off", "--directory", scratch_.path() + "/masters"}),
        std::vector<std::string>{}, File("log"));
    ASSERT_TRUE(Eventually(Seconds(10), [&] { return std::filesystem::exists(File("masters/j.json")); }))
        << master_->Errors();
  }

  std::string File(const std::string& name) const { return scratch_.path() + "/" + name; }
  void Authority(const std::string& name) const {
    ASSERT_EQ(RunC4({"pki", "init", File(name)}).exit_code, 0);
  }
  void Issue(const std::string& authority, const std::string& name, std::vector<std::string> role) const {
    role.insert(role.begin(), {"pki", "issue", "--dir", File(authority), File(name)});
    const CommandResult issued = RunC4(role);
    ASSERT_EQ(issued.exit_code, 0) << issued.errors;
    std::filesystem::copy_file(File(authority) + "/ca.pem", File(name) + ".ca",
                               std::filesystem::copy_options::overwrite_existing);
  }
  std::vector<std::string> With(const std::string& name, std::vector<std::string> words) const {
    words.insert(words.end(), {"--tls-ca", File(name) + ".ca", "--tls-cert", File(name) + ".pem", "--tls-key",
                               File(name) + ".key"});
    return words;
  }
  CommandResult Level(const std::string& name) const {
    return RunC4(With(name, {"level", "fine", "--job", "j", "--run-dir", scratch_.path()}));
  }

  ScratchDir scratch_;
  std::unique_ptr<Process> master_;
};

TEST_F(CertificatesTest, EachRoleDoesItsOwn) {
  EXPECT_EQ(Level("ann").exit_code, 0) << Level("ann").errors;
  Attack("role confusion: a certificate of each other role directs the master");
  const std::vector<std::vector<std::string>> others = {{"--role", "reader"},
                                                        {"--role", "agent", "--host", "node7"},
                                                        {"--role", "job", "--job", "j"},
                                                        {"--role", "job-master", "--job", "j"},
                                                        {"--role", "path-master"}};
  for (size_t i = 0; i < others.size(); ++i) {
    const std::string name = "other" + std::to_string(i);
    Issue("ours", name, others[i]);
    EXPECT_THAT(Level(name).errors, HasSubstr("is for operator")) << others[i][1];
  }
  EXPECT_THAT(master_->Errors(), HasSubstr("operator ann by certificate"));
}

// What stops them is said as what it is.
TEST_F(CertificatesTest, WrongAuthorityAndNoCertificateAreRefusedAsSuch) {
  Attack("wrong CA: a certificate and an authority of somebody else's");
  Attack("wrong CA: a certificate of somebody else's, our authority trusted");
  Attack("wrong CA: no certificate at all");
  Issue("theirs", "mallory", {"--role", "operator", "--name", "mallory"});
  EXPECT_THAT(Level("mallory").errors,
              AnyOf(HasSubstr("certificate verify failed"), HasSubstr("certificate")));
  // He trusts our authority, but it has not signed him.
  std::filesystem::copy_file(File("ann.ca"), File("mallory.ca"),
                             std::filesystem::copy_options::overwrite_existing);
  const CommandResult refused = Level("mallory");
  EXPECT_NE(refused.exit_code, 0);
  EXPECT_THAT(refused.errors, AllOf(HasSubstr("refused this side's certificate"), HasSubstr("mallory.pem")));
  EXPECT_NE(RunC4({"level", "fine", "--job", "j", "--run-dir", scratch_.path()}).exit_code, 0);
}

// Whoever has lost a certificate: the door counts frames within TLS as it does without.
TEST_F(CertificatesTest, RapidResetOverTlsCostsItsConnectionOnly) {
  C4_ATTACK("flood: HTTP/2 rapid reset over TLS, by one who has a certificate");
  const std::string address = Json::parse(std::ifstream(File("masters/j.json")))["address"];
  Process attacker({"/usr/bin/python3", Script("rapid_reset.py"), address, "6", "2",
                    "/c4.v1.C4d/StreamTelemetry", File("ann.ca"), File("ann.pem"), File("ann.key")},
                   {}, File("attacker"));
  for (int i = 0; i < 10; ++i) EXPECT_EQ(Level("ann").exit_code, 0);
  EXPECT_TRUE(attacker.Wait(Seconds(15)));
  EXPECT_EQ(attacker.exit_code(), 0) << attacker.Errors();
  EXPECT_GT(std::strtol(attacker.Output().c_str(), nullptr, 10), 100) << attacker.Output();
  EXPECT_LT(PeakKib(master_->pid()), kDaemonKib);
  EXPECT_THAT(master_->Errors(), HasSubstr("resets"));
}

// The server behind the entry is an agent's: its certificate does not make it the master of the job.
TEST_F(CertificatesTest, AnAgentsCertificateMakesNoMaster) {
  C4_ATTACK("role confusion: an agent's certificate poses as the job's master");
  master_->Signal(SIGTERM);
  ASSERT_TRUE(master_->Wait(Seconds(10)));
  Issue("ours", "node7", {"--role", "agent", "--host", "node7"});
  const Process posing(
      With("node7", {Binary("c4d_master"), "--job", "j", "--listen", "127.0.0.1:0", "--http-address",
                     "127.0.0.1:0", "--c4p", "off", "--directory", scratch_.path() + "/masters"}),
      {}, File("posing"));
  ASSERT_TRUE(Eventually(Seconds(10), [&] { return std::filesystem::exists(File("masters/j.json")); }));
  const CommandResult refused = Level("ann");
  EXPECT_NE(refused.exit_code, 0);
  EXPECT_THAT(refused.errors, HasSubstr("node7"));
}

TEST_F(CertificatesTest, AChangedAuthorityShutsOutItsOldCertificates) {
  C4_ATTACK("wrong CA: a certificate of an authority that has been replaced");
  ASSERT_EQ(Level("ann").exit_code, 0);
  ASSERT_EQ(RunC4({"pki", "renew", "--dir", File("ours"), "--days", "60", File("master.pem")}).exit_code, 0);
  Issue("theirs", "bob", {"--role", "operator", "--name", "bob"});
  EXPECT_NE(Level("bob").exit_code, 0);
  Issue("theirs", "next", {"--role", "job-master", "--job", "j"});
  for (const char* end : {".ca", ".key", ".pem"}) {
    std::filesystem::rename(File("next") + end, File("master") + end);
  }
  EXPECT_TRUE(Eventually(Seconds(20), [&] { return Level("bob").exit_code == 0; })) << Level("bob").errors;
  EXPECT_NE(Level("ann").exit_code, 0);
}

}  // namespace
}  // namespace c4::service_test
