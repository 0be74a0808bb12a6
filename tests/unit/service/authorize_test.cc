// The table of calls: it is whole, it is in SECURITY.md, and every row lets its roles in and no others.
#include "service/authorize.h"

#include <cstdlib>
#include <gmock/gmock.h>
#include <set>
#include <sys/stat.h>

#include "absl/strings/str_cat.h"
#include "service/audit.h"
#include "service/gate.h"
#include "tests/unit/service/temporary_directory.h"

namespace c4::service {
namespace {

using testing::HasSubstr;

std::string Source(const std::string& path) {
  const char* root = getenv("C4_SOURCE_DIR");  // NOLINT(concurrency-mt-unsafe)
  std::string text = test::ReadWhole(std::string(root == nullptr ? "." : root) + "/" + path);
  EXPECT_FALSE(text.empty()) << path << ": is C4_SOURCE_DIR set?";
  return text;
}

// Of every .proto that is there, whether this test knows of it or not.
std::set<std::string> MethodsOfProto() {
  const char* root = getenv("C4_SOURCE_DIR");  // NOLINT(concurrency-mt-unsafe)
  const std::string base = std::string(root == nullptr ? "." : root) + "/proto";
  std::set<std::string> methods;
  for (const auto& file : std::filesystem::recursive_directory_iterator(base)) {
    if (file.path().extension() != ".proto") continue;
    std::istringstream words(test::ReadWhole(file.path().string()));
    std::string package, service;
    for (std::string word; words >> word;) {
      if (word.starts_with("//")) {
        std::getline(words, word);
      } else if (word == "package") {
        words >> package;
        package.pop_back();  // its semicolon
      } else if (word == "service") {
        words >> service;
      } else if (word == "rpc") {
        words >> word;
        methods.insert(absl::StrCat(package, ".", service, "/", word.substr(0, word.find('('))));
      }
    }
  }
  return methods;
}

TEST(CallTable, HoldsEveryMethodOfEveryServiceAndNoOther) {
  std::set<std::string> rows;
  for (const CallRow& row : CallTable()) {
    if (row.call.starts_with("c4.")) {
      EXPECT_TRUE(rows.emplace(row.call).second) << row.call << " stands twice";
    }
  }
  EXPECT_EQ(rows, MethodsOfProto());
  EXPECT_GT(rows.size(), 15U);
}

TEST(CallTable, EveryRowLetsItsRolesInAndNoOthers) {
  for (const CallRow& row : CallTable()) {
    for (const Role role : kAllRoles) {
      const bool listed = row.roles == 0 || (row.roles & Only(role)) != 0;
      const absl::Status status = Authorize(row, {.role = role});
      EXPECT_EQ(status.ok(), listed) << row.call << " for " << RoleWord(role);
      if (!status.ok()) {
        EXPECT_THAT(std::string(status.message()),
                    AllOf(HasSubstr(std::string(row.call)), HasSubstr(std::string(RoleWord(role)))));
      }
    }
    EXPECT_TRUE(Authorize(row, {.role = Role::kReader, .owner = true}).ok()) << row.call;
    // What changes something is the operator's alone, but for the moves that a job's own master asks for.
    const bool moves = row.call == "c4.v1.C4p/MovePaths" || row.call == "c4.v1.C4p/EndMoves";
    if (row.action) {
      EXPECT_EQ(row.roles, moves ? Only(Role::kOperator) | Only(Role::kJobMaster) : Only(Role::kOperator))
          << row.call;
    }
    if (row.call.starts_with("POST ")) {
      EXPECT_TRUE(row.action) << row.call;
    }
  }
}

TEST(CallTable, SecurityMdHoldsIt) {
  EXPECT_THAT(Source("SECURITY.md"), HasSubstr(CallTableMarkdown()))
      << "put in what `build/bin/c4 doctor --roles-markdown` prints";
}

class GateTest : public testing::Test {
 protected:
  GateTest() {
    directory_.Write("key", *NewKeyLine() + "\n");
    chmod(directory_.File("key").c_str(), 0600);
    const auto credentials =
        Credentials::Load({.key_file = directory_.File("key")}, {.role = Role::kJobMaster, .job = "j"});
    EXPECT_TRUE(credentials.ok()) << credentials.status();
    keys_ = *credentials->Keys();
    auto audit = AuditLog::Open(directory_.File("audit"));
    EXPECT_TRUE(audit.ok()) << audit.status();
    gate_ = std::make_unique<Gate>(Gate::Options{.credentials = *credentials, .job = "j", .audit = *audit});
  }

  std::string Bearer(const Identity& identity) const {
    const int64_t now_s = time(nullptr);
    return "Bearer " +
           *IssueToken(keys_[0], {.identity = identity, .not_before_s = now_s, .expires_s = now_s + 60});
  }
  absl::StatusOr<Identity> Admit(const std::string& call, const std::string& authorization) const {
    return gate_->Admit({.call = call, .detail = "d", .authorization = authorization, .peer = "192.0.2.1:9"});
  }

  test::TemporaryDirectory directory_;
  TokenKeys keys_;
  std::unique_ptr<Gate> gate_;
};

TEST_F(GateTest, EveryRowWithEveryRolesToken) {
  for (const CallRow& row : CallTable()) {
    for (const Role role : kAllRoles) {
      const auto caller = Admit(std::string(row.call), Bearer({.role = role, .job = "j"}));
      const bool listed = row.roles == 0 || (row.roles & Only(role)) != 0;
      EXPECT_EQ(caller.ok(), listed) << row.call << " for " << RoleWord(role);
      if (!listed) {
        EXPECT_TRUE(absl::IsPermissionDenied(caller.status()));
      }
    }
    const auto nobody = Admit(std::string(row.call), "");
    EXPECT_EQ(nobody.ok(), row.roles == 0) << row.call;
    if (!nobody.ok()) {
      EXPECT_TRUE(absl::IsUnauthenticated(nobody.status())) << nobody.status();
    }
    const auto another = Admit(std::string(row.call), Bearer({.role = Role::kOperator, .job = "k"}));
    EXPECT_EQ(another.ok(), row.roles == 0) << row.call << " with another job's token";
  }
  EXPECT_FALSE(Admit("c4.v1.C4d/Unknown", Bearer({.role = Role::kOperator})).ok());
  EXPECT_FALSE(Admit("c4.v1.C4d/GetStatus", "Basic cm9vdDpyb290").ok());
  EXPECT_FALSE(Admit("c4.v1.C4d/GetStatus", "Bearer t0ken").ok());
}

TEST_F(GateTest, ActionsAreWrittenDownWhetherAllowedOrNot) {
  EXPECT_TRUE(Admit("c4.v1.C4d/SetLevel", Bearer({.role = Role::kOperator, .job = "j", .name = "ann"})).ok());
  EXPECT_FALSE(Admit("c4.v1.Alerts/AddSilence", Bearer({.role = Role::kReader, .name = "bob"})).ok());
  EXPECT_TRUE(Admit("c4.v1.C4d/GetStatus", Bearer({.role = Role::kReader})).ok());
  const std::string text = test::ReadWhole(directory_.File("audit"));
  EXPECT_THAT(text, HasSubstr("operator ann"));
  EXPECT_THAT(text, HasSubstr("reader bob"));
  EXPECT_THAT(text, HasSubstr("\"from\":\"192.0.2.1:9\""));
  EXPECT_THAT(text, HasSubstr("\"allowed\":false"));
  EXPECT_EQ(*VerifyAudit(directory_.File("audit")), 2U);
}

// Without a key and TLS nobody of another machine can be anybody.
TEST(OpenGate, KnowsNobodyFromElsewhere) {
  const Gate gate;
  for (const CallRow& row : CallTable()) {
    EXPECT_EQ(gate.Admit({.call = std::string(row.call), .peer = "192.0.2.1:9", .local = "127.0.0.1:1"}).ok(),
              row.roles == 0)
        << row.call;
  }
}

}  // namespace
}  // namespace c4::service
