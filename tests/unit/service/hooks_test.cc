// What hooks are made of: a POST to a real server of this process, and real commands.
#include <atomic>
#include <chrono>
#include <gmock/gmock.h>
#include <httplib.h>
#include <memory>
#include <netinet/in.h>
#include <sys/socket.h>
#include <thread>

#include "service/http_post.h"
#include "service/inside_address.h"
#include "service/run_command.h"
#include "tests/support/webhook.h"
#include "tests/unit/service/temporary_directory.h"

namespace c4::service {
namespace {

using std::chrono::steady_clock;
using test::Webhook;
using testing::AllOf;
using testing::HasSubstr;

absl::Status Post(const std::string& url, const std::string& body, absl::Duration timeout,
                  const std::function<bool()>& stop = {}) {
  return HttpPost({.url = url, .body = body, .timeout = timeout, .allow_inside = true}, stop).status();
}

TEST(HttpPost, DeliversJson) {
  Webhook webhook(204);
  const auto answer = HttpPost({.url = webhook.Url(),
                                .body = R"({"a":1})",
                                .headers = {{"X-Name", "value"}},
                                .timeout = absl::Seconds(5),
                                .allow_inside = true});
  EXPECT_TRUE(answer.ok()) << answer.status();
  ASSERT_EQ(webhook.deliveries().size(), 1);
  EXPECT_EQ(webhook.deliveries().front().body, R"({"a":1})");
  EXPECT_EQ(webhook.deliveries().front().type, "application/json");
  EXPECT_EQ(webhook.deliveries().front().headers.at("X-Name"), "value");
}

TEST(HttpPost, TellsWhatMayBeTriedAgain) {
  const Webhook busy(503);
  EXPECT_TRUE(absl::IsUnavailable(Post(busy.Url(), "{}", absl::Seconds(5))));
  const Webhook limited(429);
  EXPECT_TRUE(absl::IsUnavailable(Post(limited.Url(), "{}", absl::Seconds(5))));
  const Webhook refusing(403);
  const absl::Status refused = Post(refusing.Url(), "{}", absl::Seconds(5));
  EXPECT_TRUE(absl::IsFailedPrecondition(refused));
  EXPECT_THAT(std::string(refused.message()), AllOf(HasSubstr(refusing.Url()), HasSubstr("403")));
  EXPECT_TRUE(absl::IsUnavailable(Post("http://127.0.0.1:1/", "{}", absl::Seconds(1))));
}

// A server that means well says where it has moved to; one that does not sends us to its neighbours.
TEST(HttpPost, RedirectsAreNotFollowed) {
  Webhook inside;
  httplib::Server server;
  server.Post("/hook", [&inside](const httplib::Request&, httplib::Response& response) {
    response.set_redirect(inside.Url(), 307);
  });
  const int port = server.bind_to_any_port("127.0.0.1");
  std::thread thread([&] { server.listen_after_bind(); });
  const absl::Status status =
      Post("http://127.0.0.1:" + std::to_string(port) + "/hook", "{}", absl::Seconds(5));
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("redirects are not followed"));
  EXPECT_TRUE(inside.deliveries().empty());
  server.stop();
  thread.join();
}

TEST(HttpPost, NothingGoesInsideUnlessItIsMeant) {
  Webhook inside;
  const absl::Status status = HttpPost({.url = inside.Url(), .body = "{}"}).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("allow_private"));
  // A name is judged by what it resolves to.
  std::string by_name = inside.Url();
  by_name.replace(by_name.find("127.0.0.1"), 9, "localhost");
  EXPECT_TRUE(absl::IsFailedPrecondition(HttpPost({.url = by_name, .body = "{}"}).status()));
  EXPECT_TRUE(inside.deliveries().empty());
  EXPECT_TRUE(absl::IsUnavailable(HttpPost({.url = "https://no-such-name.invalid/", .body = "{}"}).status()));
}

TEST(HttpPost, WhatIsInside) {
  for (const char* inside : {"127.0.0.1",
                             "10.1.2.3",
                             "172.16.0.1",
                             "172.31.255.255",
                             "192.168.1.1",
                             "169.254.169.254",
                             "100.64.0.1",
                             "0.1.2.3",
                             "224.0.0.1",
                             "255.255.255.255",
                             "198.18.0.1",
                             "192.0.0.1",
                             "::1",
                             "::",
                             "fe80::1",
                             "fd00::1",
                             "fec0::1",
                             "ff02::1",
                             "::ffff:10.0.0.1",
                             "::10.0.0.1",
                             "64:ff9b::10.0.0.1",
                             "64:ff9b:1::1",
                             "2002:0a00:0001::1"}) {
    EXPECT_TRUE(IsInside(*ParseIp(inside))) << inside;
  }
  for (const char* outside : {"8.8.8.8", "172.32.0.1", "100.128.0.1", "192.169.0.1", "198.20.0.1",
                              "2001:4860::1", "64:ff9b::8.8.8.8", "2002:0808:0808::1"}) {
    EXPECT_FALSE(IsInside(*ParseIp(outside))) << outside;
  }
}

// With a certificate of an authority of the test's own.
class HttpsPostTest : public testing::Test {
 protected:
  void Serve(const std::string& subject_names) {
    const std::string key = directory_.File("key.pem"), certificate = directory_.File("cert.pem");
    const std::string make =
        "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 1 -subj /CN=test "
        "-keyout " +
        key + " -out " + certificate + " -addext subjectAltName=" + subject_names + " 2>/dev/null";
    ASSERT_EQ(system(make.c_str()), 0);  // NOLINT(concurrency-mt-unsafe)
    server_ = std::make_unique<httplib::SSLServer>(certificate.c_str(), key.c_str());
    server_->Post("/hook",
                  [this](const httplib::Request& request, httplib::Response&) { body_ = request.body; });
    port_ = server_->bind_to_any_port("127.0.0.1");
    thread_ = std::thread([this] { server_->listen_after_bind(); });
  }
  ~HttpsPostTest() override {
    if (server_ == nullptr) return;
    server_->stop();
    thread_.join();
  }
  absl::Status PostTo(const std::string& host, const std::string& ca_file) const {
    return HttpPost({.url = "https://" + host + ":" + std::to_string(port_) + "/hook",
                     .body = "{}",
                     .timeout = absl::Seconds(10),
                     .allow_inside = true,
                     .ca_file = ca_file})
        .status();
  }

  const test::TemporaryDirectory directory_;
  std::unique_ptr<httplib::SSLServer> server_;
  std::thread thread_;
  int port_ = 0;
  std::string body_;
};

TEST_F(HttpsPostTest, ItsCertificateHasToHold) {
  ASSERT_NO_FATAL_FAILURE(Serve("DNS:localhost"));
  EXPECT_TRUE(PostTo("localhost", directory_.File("cert.pem")).ok())
      << PostTo("localhost", directory_.File("cert.pem"));
  EXPECT_EQ(body_, "{}");
  // Of an authority that nobody knows.
  const absl::Status unknown = PostTo("localhost", "");
  EXPECT_TRUE(absl::IsUnavailable(unknown)) << unknown;
  EXPECT_THAT(std::string(unknown.message()), HasSubstr("its certificate does not hold"));
  // Of another host.
  const absl::Status other = PostTo("127.0.0.1", directory_.File("cert.pem"));
  EXPECT_TRUE(absl::IsUnavailable(other)) << other;
  EXPECT_THAT(std::string(other.message()), HasSubstr("does not name that host"));
}

// Takes the connection and says nothing: no handshake, no answer.
TEST(HttpPost, AServerThatNeverAnswersIsLeft) {
  const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  ASSERT_EQ(bind(listener, reinterpret_cast<sockaddr*>(&address), length), 0);
  ASSERT_EQ(listen(listener, 8), 0);
  getsockname(listener, reinterpret_cast<sockaddr*>(&address), &length);
  const std::string place = "127.0.0.1:" + std::to_string(ntohs(address.sin_port)) + "/";
  const auto begin = steady_clock::now();
  for (const std::string scheme : {"http://", "https://"}) {
    const absl::Status status = Post(scheme + place, "{}", absl::Milliseconds(300));
    EXPECT_TRUE(absl::IsUnavailable(status)) << status;
    EXPECT_TRUE(absl::IsCancelled(Post(scheme + place, "{}", absl::Seconds(60), [] { return true; })));
  }
  EXPECT_LT(steady_clock::now() - begin, std::chrono::seconds(10));
  close(listener);
}

// Sends a byte of its answer now and then, for ever.
// Says that to whoever comes first.
class OneAnswer {
 public:
  explicit OneAnswer(std::string answer) : socket_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof address;
    EXPECT_EQ(bind(socket_, reinterpret_cast<sockaddr*>(&address), length), 0);
    EXPECT_EQ(listen(socket_, 1), 0);
    EXPECT_EQ(getsockname(socket_, reinterpret_cast<sockaddr*>(&address), &length), 0);
    url_ = "http://127.0.0.1:" + std::to_string(ntohs(address.sin_port)) + "/";
    thread_ = std::thread([this, answer = std::move(answer)] {
      const int client = accept(socket_, nullptr, nullptr);
      char request[4096];
      EXPECT_GT(recv(client, request, sizeof request, 0), 0);
      EXPECT_EQ(send(client, answer.data(), answer.size(), MSG_NOSIGNAL),
                static_cast<ssize_t>(answer.size()));
      close(client);
    });
  }
  ~OneAnswer() {
    thread_.join();
    close(socket_);
  }
  const std::string& url() const { return url_; }

 private:
  const int socket_;
  std::string url_;
  std::thread thread_;
};

// gRPC's JSON gateway, etcd's for one, sends a trailer behind each error.
TEST(HttpPost, AnErrorWithATrailerIsRead) {
  const auto called = [](const std::string& head) {
    const OneAnswer server("HTTP/1.1 " + head +
                           "Transfer-Encoding: chunked\r\n\r\n4\r\nfull\r\n0\r\nX-Of: g\r\n\r\n");
    return HttpCall({.url = server.url(), .body = "{}", .timeout = absl::Seconds(5), .allow_inside = true});
  };
  const absl::StatusOr<HttpAnswer> refused =
      called("429 Too Many Requests\r\nRetry-After: 3\r\nTrailer: X-Of\r\n");
  ASSERT_TRUE(refused.ok()) << refused.status();
  EXPECT_EQ(refused->status, 429);
  EXPECT_EQ(refused->body, "full");
  EXPECT_EQ(refused->retry_after, absl::Seconds(3));
  // What went well has to be whole.
  EXPECT_TRUE(absl::IsUnavailable(called("200 OK\r\nTrailer: X-Of\r\n").status()));
  EXPECT_TRUE(absl::IsUnavailable(called("429 Too Many Requests\r\n").status()));
}

TEST(HttpPost, AReceiverThatDripsIsLeft) {
  httplib::Server server;
  std::atomic<bool> ended = false;
  server.Post("/hook", [&ended](const httplib::Request&, httplib::Response& response) {
    response.set_chunked_content_provider("text/plain", [&ended](size_t, httplib::DataSink& sink) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      return !ended && sink.write("x", 1);
    });
  });
  const int port = server.bind_to_any_port("127.0.0.1");
  std::thread thread([&] { server.listen_after_bind(); });
  const std::string url = "http://127.0.0.1:" + std::to_string(port) + "/hook";
  const auto begin = steady_clock::now();
  EXPECT_TRUE(absl::IsUnavailable(Post(url, "{}", absl::Milliseconds(200))));
  EXPECT_TRUE(absl::IsCancelled(Post(url, "{}", absl::Seconds(60), [] { return true; })));
  EXPECT_LT(steady_clock::now() - begin, std::chrono::seconds(5));
  ended = true;
  server.stop();
  thread.join();
}

TEST(HttpPost, Addresses) {
  for (const char* good : {"http://h", "http://h/", "http://h:9000/a/b?c=d", "http://[::1]:80/x",
                           "http://[::1]/", "https://h", "https://h:9000/a", "https://[::1]/"}) {
    EXPECT_TRUE(CheckHttpUrl(good, true).ok()) << good << ": " << CheckHttpUrl(good, true);
  }
  EXPECT_TRUE(CheckHttpUrl("https://h/", false).ok());
  for (const char* bad :
       {"", "h", "ftp://h/", "http://", "https:///x", "http://h:x/", "http://h:0/", "http://h/a b",
        "http://h/\r\nX: y", "http://user@h/", "http://h?x", "http://8.8.8.8/"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(CheckHttpUrl(bad, true))) << bad;
  }
  for (const char* inside :
       {"http://h/", "https://127.0.0.1/", "https://[fe80::1]/", "https://192.168.0.1/"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(CheckHttpUrl(inside, false))) << inside;
  }
}

absl::Status Shell(const std::string& script, const std::string& input,
                   absl::Duration timeout = absl::Seconds(20), const std::function<bool()>& stop = {}) {
  return RunCommand({"/bin/sh", "-c", script, "sh", "two words"}, input, timeout, stop);
}

TEST(RunCommand, GivesWordsAndInput) {
  const test::TemporaryDirectory directory;
  // More than a pipe holds.
  const std::string input(300'000, 'x');
  const std::string file = directory.File("out");
  ASSERT_TRUE(Shell("{ echo \"$1\"; cat; } > " + file, input).ok());
  EXPECT_EQ(test::ReadWhole(file), "two words\n" + input);
  // One that does not read it.
  EXPECT_TRUE(Shell("exit 0", input).ok());
}

TEST(RunCommand, GivesWhatItWrote) {
  std::string output;
  ASSERT_TRUE(
      RunCommand({"/bin/sh", "-c", "cat; echo more"}, "input\n", absl::Seconds(20), {}, &output).ok());
  EXPECT_EQ(output, "input\nmore\n");
  const absl::Status much = RunCommand({"/bin/sh", "-c", "yes"}, "", absl::Seconds(60), {}, &output);
  EXPECT_TRUE(absl::IsResourceExhausted(much)) << much;
}

TEST(RunCommand, TellsHowItEnded) {
  EXPECT_THAT(std::string(Shell("echo too bad >&2; exit 3", "").message()),
              AllOf(HasSubstr("/bin/sh ended with 3"), HasSubstr("too bad")));
  EXPECT_THAT(std::string(Shell("kill -9 $$", "").message()), HasSubstr("signal 9"));
  EXPECT_THAT(std::string(RunCommand({"/no/such/program"}, "", absl::Seconds(5), {}).message()),
              HasSubstr("cannot start /no/such/program"));
  EXPECT_FALSE(RunCommand({}, "", absl::Seconds(5), {}).ok());
}

TEST(RunCommand, IsKilledWithItsChildrenWhenTheTimeIsUp) {
  const test::TemporaryDirectory directory;
  const std::string alive = directory.File("alive");
  const auto begin = steady_clock::now();
  // TERM would not be enough, and a child holds on.
  const absl::Status status =
      Shell("trap '' TERM; (sleep 0.5; echo x > " + alive + ") & sleep 60", "", absl::Milliseconds(100));
  EXPECT_TRUE(absl::IsDeadlineExceeded(status)) << status;
  EXPECT_LT(steady_clock::now() - begin, std::chrono::seconds(10));
  const absl::Status stopped = Shell("sleep 60", "", absl::Seconds(60), [] { return true; });
  EXPECT_TRUE(absl::IsCancelled(stopped)) << stopped;
  std::this_thread::sleep_for(std::chrono::milliseconds(700) - (steady_clock::now() - begin));
  EXPECT_FALSE(std::filesystem::exists(alive)) << "a child lives on";
}

}  // namespace
}  // namespace c4::service
