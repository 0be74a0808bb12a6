#include "cli/clients/job_certificates.h"

#include <filesystem>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "service/credentials.h"
#include "tests/unit/service/temporary_directory.h"

namespace c4::cli {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class JobCertificatesTest : public testing::Test {
 protected:
  std::string KeyFile() const { return scratch_.path() + "/job.key"; }
  service::MasterAddress Published() const {
    service::MasterAddress master("127.0.0.1:1");
    master.job = "j";
    master.published_by = geteuid();
    master.key_file = KeyFile();
    return master;
  }
  test::TemporaryDirectory scratch_;
};

TEST_F(JobCertificatesTest, EachProgramGetsWhatItCanShow) {
  const auto made = MakeJobCertificates(KeyFile(), "j", {"host0", "host1"});
  ASSERT_TRUE(made.ok()) << made.status();
  ASSERT_THAT(made->agents, SizeIs(2));
  EXPECT_NE(made->agents[0].cert, made->agents[1].cert);
  for (const service::TlsOptions& tls :
       {made->master, made->path_master, made->agents[0], made->agents[1], OwnersCertificates(Published())}) {
    service::SecurityOptions security;
    security.tls = tls;
    const auto credentials = service::Credentials::Load(security, service::OwnOperator());
    EXPECT_TRUE(credentials.ok()) << credentials.status();
    EXPECT_EQ(tls.ca, made->master.ca);
  }
  EXPECT_EQ(fs::status(scratch_.path() + "/tls").permissions(), fs::perms::owner_all);
}

TEST_F(JobCertificatesTest, TheOwnerFindsHisAndNobodyElse) {
  EXPECT_THAT(OwnersCertificates(Published()).cert, IsEmpty()) << "this job has none";
  ASSERT_TRUE(MakeJobCertificates(KeyFile(), "j", {"host0"}).ok());
  EXPECT_FALSE(OwnersCertificates(Published()).cert.empty());

  service::MasterAddress another = Published();
  another.published_by = geteuid() + 1;
  EXPECT_THAT(OwnersCertificates(another).cert, IsEmpty()) << "published by somebody else";
  service::MasterAddress named = Published();
  named.published_by.reset();
  EXPECT_THAT(OwnersCertificates(named).cert, IsEmpty()) << "an address that a person named";

  fs::permissions(scratch_.path() + "/tls/operator.key", fs::perms(0644));
  EXPECT_THAT(OwnersCertificates(Published()).cert, IsEmpty()) << "open to everybody";
}

TEST_F(JobCertificatesTest, AFolderThatIsThereIsNotTaken) {
  ASSERT_EQ(mkdir((scratch_.path() + "/tls").c_str(), 0755), 0);
  const auto made = MakeJobCertificates(KeyFile(), "j", {"host0"});
  EXPECT_EQ(made.status().code(), absl::StatusCode::kAlreadyExists);
  EXPECT_NE(made.status().message().find("/tls"), std::string::npos) << made.status();
}

TEST_F(JobCertificatesTest, ArgumentsOfADaemon) {
  std::vector<std::string> arguments = {"--job", "j"};
  AppendTlsArguments({}, &arguments);
  EXPECT_THAT(arguments, ElementsAre("--job", "j"));
  AppendTlsArguments({.ca = "a", .cert = "b", .key = "c"}, &arguments);
  EXPECT_THAT(arguments, ElementsAre("--job", "j", "--tls-ca", "a", "--tls-cert", "b", "--tls-key", "c"));
}

}  // namespace
}  // namespace c4::cli
