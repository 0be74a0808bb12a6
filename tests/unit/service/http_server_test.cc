#include "service/http_server.h"

#include <arpa/inet.h>
#include <array>
#include <atomic>
#include <gmock/gmock.h>
#include <httplib.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "service/address.h"
#include "service/http_names.h"
#include "service/limits.h"
#include "service/metrics.h"
#include "tests/unit/service/key_files.h"
#include "tests/unit/service/temporary_directory.h"

namespace c4::service {
namespace {

using testing::HasSubstr;

TEST(HttpServer, HealthMetricsAndRoutes) {
  Metrics metrics;
  MetricCounter counter = metrics.Counter("c4a_things_total", "Things", {{"job", "a\"b"}});
  counter.Add(2);
  metrics.Counter("c4a_things_total", "Things", {{"job", "a\"b"}}).Add();  // the same one
  std::atomic<bool> healthy = true;
  HttpServer server(
      [&] { return healthy ? absl::OkStatus() : absl::UnavailableError("the scan stands still"); },
      [&] { return metrics.Serialise(); });
  server.Get("/v1/verdicts", [](const HttpRequest& request) {
    const auto limit = request.query.find("limit");
    return HttpReply{.body = "[" + (limit == request.query.end() ? "" : limit->second) + "]"};
  });
  ASSERT_TRUE(server.Start("127.0.0.1:0", Credentials()).ok());
  EXPECT_GT(server.port(), 0);
  EXPECT_EQ(server.address(), "127.0.0.1:" + std::to_string(server.port()));

  httplib::Client client("127.0.0.1", server.port());
  auto reply = client.Get("/healthz");
  ASSERT_TRUE(reply);
  EXPECT_EQ(reply->status, 200);
  EXPECT_EQ(reply->body, "ok\n");
  healthy = false;
  reply = client.Get("/healthz");
  EXPECT_EQ(reply->status, 503);
  EXPECT_EQ(reply->body, "the scan stands still\n");
  reply = client.Get("/metrics");
  EXPECT_EQ(reply->status, 200);
  EXPECT_THAT(reply->body, HasSubstr("c4a_things_total{job=\"a\\\"b\"} 3"));
  EXPECT_THAT(reply->get_header_value("Content-Type"), HasSubstr("version=0.0.4"));
  reply = client.Get("/v1/verdicts?limit=7");
  EXPECT_EQ(reply->body, "[7]");
  EXPECT_EQ(reply->get_header_value("Content-Type"), "application/json");
  EXPECT_EQ(client.Get("/nothing")->status, 404);
  server.Stop();
  EXPECT_FALSE(httplib::Client("127.0.0.1", server.port()).Get("/healthz"));
}

TEST(MetricsTest, WhatIsRemovedIsServedNoMore) {
  Metrics metrics;
  metrics.Counter("c4a_sent_total", "Sent", {{"job", "a"}}).Add(3);
  metrics.Counter("c4a_sent_total", "Sent", {{"job", "b"}}).Add(4);
  metrics.Gauge("c4a_processes", "Processes", {{"job", "a"}}).Set(2);
  metrics.Remove("c4a_sent_total", {{"job", "a"}});
  metrics.Remove("c4a_processes", {{"job", "a"}});
  metrics.Remove("c4a_never_made", {{"job", "a"}});
  EXPECT_THAT(metrics.Serialise(), HasSubstr("c4a_sent_total{job=\"b\"} 4"));
  EXPECT_THAT(metrics.Serialise(), testing::Not(HasSubstr("job=\"a\"")));
  EXPECT_EQ(metrics.Counter("c4a_sent_total", "Sent", {{"job", "a"}}).Value(), 0);  // begins anew
}

TEST(HttpServer, PostsHavePartsOfThePathAndAreNotForOtherOrigins) {
  HttpServer server([] { return absl::OkStatus(); }, [] { return std::string(); });
  server.Get("/v1/smon/sessions/([0-9]+|latest)",
             [](const HttpRequest& request) { return HttpReply{.body = request.parts.at(0)}; });
  server.Post("/v1/alerts/silences/([0-9]+)/end", [](const HttpRequest& request) {
    return HttpReply{.status = 202, .body = request.parts.at(0) + request.query.at("n")};
  });
  ASSERT_TRUE(server.Start("127.0.0.1:0", Credentials()).ok());
  httplib::Client client("127.0.0.1", server.port());
  EXPECT_EQ(client.Get("/v1/smon/sessions/12")->body, "12");
  auto reply = client.Post("/v1/alerts/silences/12/end?n=5", "", "text/plain");
  EXPECT_EQ(reply->status, 202);
  EXPECT_EQ(reply->body, "125");
  EXPECT_EQ(client.Get("/v1/alerts/silences/12/end?n=5")->status, 404);
  const std::string own = "http://" + server.address();
  EXPECT_EQ(client.Post("/v1/alerts/silences/12/end?n=5", {{"Origin", own}}, "", "text/plain")->status, 202);
  EXPECT_EQ(client
                .Post("/v1/alerts/silences/12/end?n=5", {{"Origin", "https://" + server.address()}}, "",
                      "text/plain")
                ->status,
            202);  // behind a proxy with TLS
  EXPECT_EQ(client.Post("/v1/alerts/silences/12/end?n=5", {{"Origin", "http://elsewhere"}}, "", "text/plain")
                ->status,
            403);
}

// As `curl -X POST` sends it.
TEST(HttpServer, APostThatSaysNothingOfItsLengthIsServedAtOnce) {
  HttpServer server([] { return absl::OkStatus(); }, [] { return std::string(); });
  server.Post("/v1/smon/sessions", [](const HttpRequest&) { return HttpReply{.body = "begun"}; });
  ASSERT_TRUE(server.Start("127.0.0.1:0", Credentials()).ok());
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(server.port());
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  ASSERT_EQ(connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  const timeval limit = {.tv_sec = 2, .tv_usec = 0};
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  const std::string request = "POST /v1/smon/sessions HTTP/1.1\r\nHost: localhost\r\n\r\n";
  ASSERT_EQ(write(fd, request.data(), request.size()), static_cast<ssize_t>(request.size()));
  std::string answer;
  std::array<char, 1000> part{};
  while (answer.find("begun") == std::string::npos) {
    const ssize_t n = read(fd, part.data(), part.size());
    if (n <= 0) break;
    answer.append(part.data(), static_cast<size_t>(n));
  }
  close(fd);
  EXPECT_THAT(answer, testing::AllOf(HasSubstr("200"), HasSubstr("begun")));
}

int ConnectTo(uint16_t port) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const timeval limit = {.tv_sec = 5, .tv_usec = 0};
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
  EXPECT_EQ(connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  return fd;
}

void SendText(int fd, const std::string& text) {
  EXPECT_EQ(send(fd, text.data(), text.size(), MSG_NOSIGNAL), static_cast<ssize_t>(text.size()));
}

std::string ReadToEnd(int fd) {
  std::string answer;
  std::array<char, 4000> part{};
  for (ssize_t n = 0; (n = read(fd, part.data(), part.size())) > 0;)
    answer.append(part.data(), static_cast<size_t>(n));
  return answer;
}

// More of them than there may be connections, half of them with a part of a request.
TEST(HttpServer, ClientsThatDawdleHoldNobodyUp) {
  HttpServer server([] { return absl::OkStatus(); }, [] { return std::string(); });
  ASSERT_TRUE(server.Start("127.0.0.1:0", Credentials()).ok());
  std::vector<int> slow;
  for (size_t i = 0; i < limits::kHttpConnections + 50; ++i) {
    slow.push_back(ConnectTo(server.port()));
    if (i % 2 == 0) SendText(slow.back(), "GET /healthz HTTP/1.1\r\nHost: ");
  }
  httplib::Client client("127.0.0.1", server.port());
  client.set_read_timeout(2);
  for (int i = 0; i < 20; ++i) {
    const auto reply = client.Get("/healthz");
    ASSERT_TRUE(reply);
    EXPECT_EQ(reply->status, 200);
  }
  for (const int fd : slow) close(fd);
}

TEST(HttpServer, ABodyIsRefusedBeforeItIsRead) {
  HttpServer server([] { return absl::OkStatus(); }, [] { return std::string(); });
  std::atomic<int> begun = 0;
  server.Post("/v1/run", [&](const HttpRequest&) { return HttpReply{.body = std::to_string(++begun)}; });
  ASSERT_TRUE(server.Start("127.0.0.1:0", Credentials()).ok());
  for (const std::string head : {"GET /healthz HTTP/1.1\r\nContent-Length: 2000000000\r\n\r\n",
                                 "GET /healthz HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n",
                                 "POST /v1/run HTTP/1.1\r\nContent-Length: 2000000000\r\n\r\n"}) {
    const int fd = ConnectTo(server.port());
    SendText(fd, head);
    EXPECT_THAT(ReadToEnd(fd), testing::StartsWith("HTTP/1.1 413 ")) << head;
    close(fd);
  }
  EXPECT_EQ(begun, 0);
}

constexpr char kFiles[] = "/api/v1/recordings";  // a row of the table of calls

TEST(HttpServer, AFileIsReadForARouteThatTakesFiles) {
  HttpServer server([] { return absl::OkStatus(); }, [] { return std::string(); });
  server.PostFile(kFiles, 3U << 20, [](const HttpRequest& request, const std::string& file) {
    return HttpReply{.status = 202,
                     .body = request.query.at("name") + " " + std::to_string(file.size()) + file.back()};
  });
  server.Post("/v1/smon/sessions", [](const HttpRequest&) { return HttpReply{.body = "begun"}; });
  ASSERT_TRUE(server.Start("127.0.0.1:0", Credentials()).ok());
  httplib::Client client("127.0.0.1", server.port());
  const std::string path = std::string(kFiles) + "?name=f";
  const std::string large = std::string((3U << 20) - 1, 'a') + "b";
  auto reply = client.Post(path, large, "application/octet-stream");
  ASSERT_TRUE(reply);
  EXPECT_EQ(reply->status, 202);
  EXPECT_EQ(reply->body, "f 3145728b");
  EXPECT_EQ(client.Post(path, "x", "text/plain")->body, "f 1x");
  reply = client.Post(path, large + "c", "application/octet-stream");
  ASSERT_TRUE(reply);
  EXPECT_EQ(reply->status, 413);
  // The other routes take no more than before.
  const int fd = ConnectTo(server.port());
  SendText(fd, "POST /v1/smon/sessions HTTP/1.1\r\nContent-Length: 100000\r\n\r\n");
  EXPECT_THAT(ReadToEnd(fd), testing::StartsWith("HTTP/1.1 413 "));
  close(fd);
  // Who leaves in the middle leaves nothing behind.
  const int gone = ConnectTo(server.port());
  SendText(gone, "POST " + path + " HTTP/1.1\r\nContent-Length: 1000\r\n\r\nabc");
  close(gone);
  EXPECT_EQ(client.Post(path, "y", "text/plain")->body, "f 1y");
}

TEST(HttpServer, WhoMayNotSendAFileIsToldBeforeItIsRead) {
  const test::TemporaryDirectory directory;
  const Credentials reader = test::WithKey(test::WriteKey(directory), {.role = Role::kReader, .name = "ann"});
  HttpServer server([] { return absl::OkStatus(); }, [] { return std::string(); });
  std::atomic<int> taken = 0;
  server.PostFile(kFiles, 3U << 20, [&](const HttpRequest&, const std::string&) {
    return HttpReply{.body = std::to_string(++taken)};
  });
  ASSERT_TRUE(server.Start("127.0.0.1:0", reader).ok());
  // Not a byte of it was sent.
  const int fd = ConnectTo(server.port());
  SendText(fd, std::string("POST ") + kFiles + " HTTP/1.1\r\nContent-Length: 1000\r\nAuthorization: " +
                   reader.AuthorizationFor(MasterAddress("127.0.0.1:1")) + "\r\n\r\n");
  EXPECT_THAT(ReadToEnd(fd), testing::StartsWith("HTTP/1.1 403 "));
  close(fd);
  EXPECT_EQ(taken, 0);
}

TEST(HttpServer, FewFilesAreReadAtATime) {
  HttpServer server([] { return absl::OkStatus(); }, [] { return std::string(); });
  server.PostFile(kFiles, 1000,
                  [](const HttpRequest&, const std::string& file) { return HttpReply{.body = file}; });
  ASSERT_TRUE(server.Start("127.0.0.1:0", Credentials()).ok());
  const std::string head = std::string("POST ") + kFiles + " HTTP/1.1\r\nContent-Length: 4\r\n\r\n";
  std::vector<int> slow;
  for (size_t i = 0; i <= limits::kHttpBodies; ++i) {
    slow.push_back(ConnectTo(server.port()));
    SendText(slow.back(), head + "ab");
  }
  size_t refused = 0;
  for (const int fd : slow) {
    std::array<char, 4> begin{};
    const timeval limit = {.tv_sec = 1, .tv_usec = 0};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    if (recv(fd, begin.data(), begin.size(), MSG_PEEK) <= 0) {
      SendText(fd, "cd");
      const std::string answer = ReadToEnd(fd);
      EXPECT_THAT(answer, testing::AllOf(testing::StartsWith("HTTP/1.1 200 "), testing::EndsWith("abcd")));
    } else {
      ++refused;
      EXPECT_THAT(ReadToEnd(fd), testing::StartsWith("HTTP/1.1 503 "));
    }
    close(fd);
  }
  EXPECT_EQ(refused, 1U);
}

TEST(HttpServer, WhatIsNoRequestIsRefused) {
  HttpServer server([] { return absl::OkStatus(); }, [] { return std::string(); });
  server.Get("/v1/status",
             [](const HttpRequest& request) { return HttpReply{.body = request.query.at("a b")}; });
  ASSERT_TRUE(server.Start("127.0.0.1:0", Credentials()).ok());
  const auto ask = [&](const std::string& text) {
    const int fd = ConnectTo(server.port());
    SendText(fd, text);
    std::string answer = ReadToEnd(fd);
    close(fd);
    return answer;
  };
  EXPECT_THAT(ask("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), testing::StartsWith("HTTP/1.1 400 "));
  for (const char* text : {"GET /v1/status\001 HTTP/1.1\r\n\r\n", "GET /v1/st\tatus HTTP/1.1\r\n\r\n",
                           "GET /v1 /status HTTP/1.1\r\n\r\n", "GET / HTTP/1.1\r\nA: b\rC: d\r\n\r\n",
                           "GET / HTTP/1.1\r\nA: b\nC: d\r\n\r\n", "GET / HTTP/1.1\r\nA: \033[2J\r\n\r\n"}) {
    EXPECT_THAT(ask(text), testing::StartsWith("HTTP/1.1 400 ")) << text;
  }
  constexpr char kWithNul[] = "GET /v1/status\0 HTTP/1.1\r\n\r\n";
  EXPECT_THAT(ask(std::string(kWithNul, sizeof kWithNul - 1)), testing::StartsWith("HTTP/1.1 400 "));
  EXPECT_THAT(ask("GET /%zz HTTP/1.1\r\n\r\n"), testing::StartsWith("HTTP/1.1 400 "));
  EXPECT_THAT(ask("GET / HTTP/1.1\r\nX: " + std::string(limits::kHttpHeadBytes, 'x')),
              testing::StartsWith("HTTP/1.1 431 "));
  EXPECT_THAT(ask("BREW / HTTP/1.1\r\n\r\n"), testing::StartsWith("HTTP/1.1 405 "));
  EXPECT_THAT(ask("GET /v1/status?x=1&a+b=%41%2b HTTP/1.1\r\n\r\n"), testing::EndsWith("\r\n\r\nA+"));
}

TEST(HttpServer, ATakenPortIsAnErrorWithTheAddress) {
  const auto healthy = [] { return absl::OkStatus(); };
  HttpServer first(healthy, [] { return std::string(); });
  ASSERT_TRUE(first.Start("127.0.0.1:0", Credentials()).ok());
  HttpServer second(healthy, [] { return std::string(); });
  const absl::Status status = second.Start(first.address(), Credentials());
  EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr(first.address()), HasSubstr("in use")));
  EXPECT_FALSE(second.Start("nonsense", Credentials()).ok());
}

TEST(HttpServer, ATokenGuardsTheFurtherRoutesOnly) {
  const test::TemporaryDirectory directory;
  const Credentials credentials =
      test::WithKey(test::WriteKey(directory), {.role = Role::kOperator, .job = "j", .name = "ann"});
  HttpServer server([] { return absl::OkStatus(); }, [] { return std::string("m 1\n"); });
  server.Get("/v1/status", [](const HttpRequest&) { return HttpReply{.body = "[]"}; });
  server.Post("/v1/smon/sessions", [](const HttpRequest&) { return HttpReply{.body = "[]"}; });
  server.Get("/v1/unheard-of", [](const HttpRequest&) { return HttpReply{.body = "[]"}; });
  ASSERT_TRUE(server.Start("127.0.0.1:0", credentials, "c4.example, other").ok());
  httplib::Client client("127.0.0.1", server.port());
  EXPECT_EQ(client.Get("/healthz")->status, 200);
  EXPECT_EQ(client.Get("/metrics")->status, 200);
  const httplib::Headers token = {
      {"Authorization", credentials.AuthorizationFor(MasterAddress("127.0.0.1:1"))}};
  EXPECT_EQ(client.Get("/v1/status")->status, 200);  // its own user may read
  EXPECT_EQ(client.Get("/v1/status", {{"Authorization", "Bearer s3cret"}})->status, 401);
  EXPECT_EQ(client.Get("/v1/status", token)->status, 200);
  EXPECT_EQ(client.Post("/v1/smon/sessions")->status, 403);
  EXPECT_EQ(client.Post("/v1/smon/sessions", token, "", "text/plain")->status, 200);
  EXPECT_EQ(client.Get("/v1/unheard-of", token)->status, 403);  // no row in the table of calls
}

// A page elsewhere that makes its own name point here asks under that name (DNS rebinding).
TEST(HttpServer, AnswersUnderItsOwnNamesOnly) {
  HttpServer server([] { return absl::OkStatus(); }, [] { return std::string("m 1\n"); });
  server.Get("/v1/status", [](const HttpRequest&) { return HttpReply{.body = "[]"}; });
  server.Post("/v1/smon/sessions", [](const HttpRequest&) { return HttpReply{.body = "[]"}; });
  ASSERT_TRUE(server.Start("127.0.0.1:0", Gate(), "c4.example, other").ok());
  httplib::Client client("127.0.0.1", server.port());
  for (const std::string name :
       {"evil.example", "127.0.0.1.evil.example", "[evil", "localhost.evil.example"}) {
    const std::string host = name + ":" + std::to_string(server.port());
    EXPECT_EQ(client.Get("/v1/status", {{"Host", host}})->status, 403) << host;
    EXPECT_EQ(client.Get("/metrics", {{"Host", host}})->status, 403) << host;
    const httplib::Headers page = {{"Host", host}, {"Origin", "http://" + host}};
    EXPECT_EQ(client.Post("/v1/smon/sessions", page, "", "text/plain")->status, 403) << host;
  }
  for (const std::string name : {"127.0.0.1", "[::1]", "localhost", "c4.example", "OTHER"}) {
    EXPECT_EQ(client.Get("/v1/status", {{"Host", name + ":80"}})->status, 200) << name;
  }
  EXPECT_TRUE(IsOurName(HostName(), ""));
  EXPECT_TRUE(IsOurName("", ""));
}

TEST(Metrics, GaugesGoAndHistogramsCount) {
  Metrics metrics;
  metrics.Gauge("c4a_connected", "Connected", {{"job", "a"}}).Set(1);
  metrics.Gauge("c4a_connected", "Connected", {{"job", "b"}}).Set(1);
  metrics.Remove("c4a_connected", {{"job", "a"}});
  metrics.Remove("c4a_unknown", {});
  metrics.Histogram("c4a_scan_seconds", "Scan", {0.001, 0.01}).Observe(0.005);
  const std::string text = metrics.Serialise();
  EXPECT_THAT(text, Not(HasSubstr("job=\"a\"")));
  EXPECT_THAT(text, HasSubstr("c4a_connected{job=\"b\"} 1"));
  EXPECT_THAT(text, HasSubstr("c4a_scan_seconds_bucket{le=\"0.01\"} 1"));
  // Bugs of ours must not end a daemon.
  metrics.Gauge("c4a_scan_seconds", "another type").Set(1);
  metrics.Counter("not a name", "").Add();
}

}  // namespace
}  // namespace c4::service
