// What a page in somebody's browser, or anybody who reaches the port, can ask of the master's HTTP side.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "service/authorize.h"
#include "tests/security/attack.h"

namespace c4::service_test {
namespace {

using service::Role;
using testing::HasSubstr;
using testing::StartsWith;

class HttpTricksTest : public testing::Test {
 protected:
  std::string Ask(const std::string& method, const std::string& path, const std::string& headers,
                  const std::string& host = "localhost") const {
    return HttpAsk(attacked_.http_address(), method + " " + path + " HTTP/1.1\r\nHost: " + host +
                                                 "\r\nConnection: close\r\nContent-Length: 0\r\n" + headers +
                                                 "\r\n");
  }
  AttackedJob attacked_;
};

constexpr const char* kActions[] = {"/v1/smon/sessions", "/v1/alerts/silences?match=rule=slow&seconds=3600",
                                    "/v1/alerts/test/slow"};

TEST_F(HttpTricksTest, AReboundNameOpensNothing) {
  const std::string port = attacked_.http_address().substr(attacked_.http_address().rfind(':'));
  for (const std::string host : {"evil.example", "localhost.evil.example", "127.0.0.1.nip.io"}) {
    C4_ATTACK("DNS rebinding: a foreign name as Host and Origin");
    std::string origin = "Origin: http://";
    origin += host;
    origin += port;
    origin += "\r\n";
    for (const char* path : {"/v1/status", "/v1/verdicts", "/metrics", "/v1/alerts"}) {
      EXPECT_THAT(Ask("GET", path, "", host + port), StartsWith("HTTP/1.1 403")) << host << path;
    }
    for (const char* path : kActions) {
      EXPECT_THAT(Ask("POST", path, origin, host + port), StartsWith("HTTP/1.1 403")) << host << path;
    }
  }
}

// A page of another origin that asks under our address; and anybody on this machine without the key.
TEST_F(HttpTricksTest, ActionsNeedTheOperatorsToken) {
  const service::TokenKey key = attacked_.Key();
  Attack("cross-site request: a POST of another origin");
  Attack("role confusion: actions over HTTP without a token");
  Attack("stolen token: a shared secret over HTTP");
  Attack("role confusion: actions over HTTP with each other role's token");
  for (const char* path : kActions) {
    EXPECT_THAT(Ask("POST", path, ""), StartsWith("HTTP/1.1 403")) << path;
    EXPECT_THAT(Ask("POST", path, "Origin: http://elsewhere\r\n"), StartsWith("HTTP/1.1 403")) << path;
    EXPECT_THAT(Ask("POST", path, "Authorization: Bearer s3cret\r\n"), StartsWith("HTTP/1.1 401")) << path;
    for (const Role role : service::kAllRoles) {
      if (role == Role::kOperator) continue;
      const std::string header =
          "Authorization: " + BearerOf(key, {.role = role, .job = attacked_.name()}) + "\r\n";
      EXPECT_THAT(Ask("POST", path, header), StartsWith("HTTP/1.1 403")) << path << service::RoleWord(role);
    }
    const std::string op =
        "Authorization: " + BearerOf(key, {.role = Role::kOperator, .job = attacked_.name()}) + "\r\n";
    EXPECT_THAT(Ask("POST", path, op), Not(StartsWith("HTTP/1.1 40"
                                                      "3")))
        << path;
  }
  EXPECT_THAT(attacked_.Audit(), HasSubstr("POST /v1/smon/sessions"));
  EXPECT_THAT(attacked_.Audit(), HasSubstr("seconds=3600"));
}

// Every further route of the running master has a row: one without would be refused to the operator too.
TEST_F(HttpTricksTest, EveryRouteHasARow) {
  const std::string op =
      "Authorization: " + BearerOf(attacked_.Key(), {.role = Role::kOperator, .job = attacked_.name()}) +
      "\r\n";
  const std::string agent =
      "Authorization: " + BearerOf(attacked_.Key(), {.role = Role::kAgent, .job = attacked_.name()}) + "\r\n";
  C4_ATTACK("role confusion: an agent's token at every page of the master");
  for (const char* path : {"/v1/verdicts", "/v1/status", "/v1/smon/sessions", "/v1/smon/sessions/latest",
                           "/v1/smon/sessions/1/heatmap.svg", "/v1/smon/sessions/1/steps.svg",
                           "/v1/smon/history", "/v1/smon/history.svg", "/v1/alerts"}) {
    EXPECT_THAT(Ask("GET", path, op), Not(StartsWith("HTTP/1.1 403"))) << path;
    EXPECT_THAT(Ask("GET", path, agent), StartsWith("HTTP/1.1 403")) << path;
  }
}

TEST_F(HttpTricksTest, AStopIsNamedWhileTheyAreTried) {
  attacked_.StoppedRankIsNamedDuring([&] {
    for (const char* path : kActions) Ask("POST", path, "Origin: http://evil.example\r\n", "evil.example");
  });
}

}  // namespace
}  // namespace c4::service_test
