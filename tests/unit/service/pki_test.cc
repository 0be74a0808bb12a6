// What `c4 pki` makes, as the daemons take it.
#include "service/pki.h"

#include <gmock/gmock.h>
#include <sys/stat.h>

#include "service/certificate.h"
#include "tests/unit/service/temporary_directory.h"

namespace c4::service {
namespace {

using testing::HasSubstr;

const Identity kAgent = {.role = Role::kAgent, .host = "node 7"};

class PkiTest : public testing::Test {
 protected:
  PkiTest() { EXPECT_TRUE(InitAuthority(authority_, "the cluster's", 10).ok()); }
  absl::StatusOr<IssuedFiles> Issue(const std::string& prefix, const std::vector<std::string>& names = {}) {
    return IssueCertificate(authority_, kAgent, names, 5, directory_.File(prefix));
  }
  test::TemporaryDirectory directory_;
  const std::string authority_ = directory_.File("authority");
};

TEST_F(PkiTest, DaemonsTakeWhatItIssues) {
  const auto files = Issue("node7", {"DNS:node7", "IP:10.0.0.7"});
  ASSERT_TRUE(files.ok()) << files.status();
  EXPECT_TRUE(CheckCertificateFiles({files->ca, files->certificate, files->key}).ok());
  EXPECT_THAT(DescribeCertificateFile(files->certificate),
              AllOf(HasSubstr("c4://role/agent/node%207"), HasSubstr("the cluster's")));
  struct stat status {};
  for (const std::string& secret : {files->key, authority_ + "/ca.key"}) {
    ASSERT_EQ(stat(secret.c_str(), &status), 0);
    EXPECT_EQ(status.st_mode & 0777, 0600U) << secret;
  }
}

TEST_F(PkiTest, NothingIsWrittenOver) {
  ASSERT_TRUE(Issue("node7").ok());
  const std::string key = test::ReadWhole(directory_.File("node7.key"));
  EXPECT_TRUE(absl::IsAlreadyExists(Issue("node7").status()));
  EXPECT_TRUE(absl::IsAlreadyExists(InitAuthority(authority_, "again", 10)));
  EXPECT_EQ(test::ReadWhole(directory_.File("node7.key")), key);
}

TEST_F(PkiTest, RenewalKeepsKeyAndNames) {
  const auto files = Issue("node7");
  const std::string before = test::ReadWhole(files->certificate);
  ASSERT_TRUE(RenewCertificate(authority_, files->certificate, 9).ok());
  EXPECT_NE(test::ReadWhole(files->certificate), before);
  EXPECT_TRUE(CheckCertificateFiles({files->ca, files->certificate, files->key}).ok());
  EXPECT_THAT(DescribeCertificateFile(files->certificate), HasSubstr("c4://role/agent/node%207"));
  const std::string other = directory_.File("other");
  ASSERT_TRUE(InitAuthority(other, "another", 10).ok());
  EXPECT_TRUE(absl::IsPermissionDenied(RenewCertificate(other, files->certificate, 9)));
}

TEST_F(PkiTest, WhatNamesNobodyIsNotIssued) {
  EXPECT_FALSE(IssueCertificate(authority_, {.role = Role::kAgent}, {}, 5, directory_.File("a")).ok());
  for (const char* name :
       {"node7", "URI:c4://role/operator/me", "DNS:a,URI:c4://role/operator/me", "DNS:@section"}) {
    EXPECT_FALSE(Issue("b", {name}).ok()) << name;
  }
  EXPECT_FALSE(IssueCertificate(authority_, kAgent, {}, 0, directory_.File("c")).ok());
  EXPECT_FALSE(IssueCertificate(directory_.File("none"), kAgent, {}, 5, directory_.File("d")).ok());
}

}  // namespace
}  // namespace c4::service
