// The page over a real server: what it answers, to whom, with which headers, and how it ends.
#include "page/page_api.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <httplib.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "service/credentials.h"
#include "tests/unit/page/fake_source.h"
#include "tests/unit/service/key_files.h"

namespace c4::page {
namespace {

using test::AddVerdict;
using test::FakeSource;
using testing::HasSubstr;
using testing::Not;

constexpr unsigned char kPacked[] = {  // gzip of "<p>hello</p>\n"
    0x1f, 0x8b, 0x08, 0x00, 0x00, 0x00, 0x00, 0x00, 0x02, 0x03, 0xb3, 0x29, 0xb0, 0xcb, 0x48, 0xcd, 0xc9,
    0xc9, 0xb7, 0xd1, 0x2f, 0xb0, 0xe3, 0x02, 0x00, 0xe1, 0x2d, 0xb4, 0x43, 0x0d, 0x00, 0x00, 0x00};

std::vector<PageFile> Files() {
  const std::string_view packed(reinterpret_cast<const char*>(kPacked), sizeof kPacked);
  return {{.path = "/", .content_type = "text/html; charset=utf-8", .tag = "t1", .bytes = 13, .gzip = packed},
          {.path = "/assets/a-1.js",
           .content_type = "text/javascript",
           .tag = "t2",
           .bytes = 13,
           .gzip = packed}};
}

class PageApiTest : public testing::Test {
 protected:
  void Serve(PageApi::Options options = {}, const service::Gate& gate = service::Gate()) {
    api_ = std::make_unique<PageApi>(&source_, &service::SystemClock(), &files_, options);
    server_ =
        std::make_unique<service::HttpServer>([] { return absl::OkStatus(); }, [] { return std::string(); });
    api_->AddRoutes(server_.get());
    if (take_) api_->TakeRecordings(server_.get(), take_);
    if (past_) api_->OpenPasts(server_.get(), past_);
    ASSERT_TRUE(server_->Start("127.0.0.1:0", gate).ok());
    api_->Start();
    client_ = std::make_unique<httplib::Client>("127.0.0.1", server_->port());
    client_->set_decompress(false);
  }
  void TearDown() override {
    if (server_ != nullptr) server_->Stop();
  }
  // What comes of a stream until `wanted` has, or for five seconds.
  std::string Stream(const std::string& wanted, const std::string& headers = "") const {
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(server_->port());
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (connect(fd, reinterpret_cast<const sockaddr*>(&to), sizeof to) != 0) ADD_FAILURE() << "no connection";
    timeval limit{.tv_sec = 5, .tv_usec = 0};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    const std::string request = "GET /api/v1/events HTTP/1.1\r\nHost: localhost\r\n" + headers + "\r\n";
    if (send(fd, request.data(), request.size(), 0) < 0) ADD_FAILURE() << "nothing was sent";
    std::string text;
    char piece[4096];
    while (text.find(wanted) == std::string::npos) {
      const ssize_t bytes = recv(fd, piece, sizeof piece, 0);
      if (bytes <= 0) break;
      text.append(piece, static_cast<size_t>(bytes));
    }
    close(fd);
    return text;
  }

  FakeSource source_;
  PageApi::TakeRecording take_;
  PageApi::OpenPast past_;
  std::vector<PageFile> files_ = Files();
  std::unique_ptr<PageApi> api_;
  std::unique_ptr<service::HttpServer> server_;
  std::unique_ptr<httplib::Client> client_;
};

TEST_F(PageApiTest, FilesComeCompressedOrPlainAndOnlyOnce) {
  Serve();
  auto reply = client_->Get("/", {{"Accept-Encoding", "gzip, br"}});
  ASSERT_TRUE(reply);
  EXPECT_EQ(reply->status, 200);
  EXPECT_EQ(reply->get_header_value("Content-Encoding"), "gzip");
  EXPECT_EQ(reply->get_header_value("Cache-Control"), "no-cache");
  EXPECT_THAT(reply->get_header_value("Content-Security-Policy"), HasSubstr("default-src 'none'"));
  EXPECT_THAT(reply->get_header_value("Content-Security-Policy"), HasSubstr("frame-ancestors 'none'"));
  EXPECT_EQ(reply->get_header_value("X-Content-Type-Options"), "nosniff");
  reply = client_->Get("/assets/a-1.js");
  EXPECT_EQ(reply->body, "<p>hello</p>\n");
  EXPECT_THAT(reply->get_header_value("Cache-Control"), HasSubstr("immutable"));
  EXPECT_EQ(client_->Get("/", {{"If-None-Match", "\"t1\""}})->status, 304);
  EXPECT_EQ(client_->Get("/assets/b.js")->status, 404);
  EXPECT_EQ(client_->Get("/assets/..%2f..%2fetc%2fpasswd")->status, 404);
}

TEST_F(PageApiTest, WithoutItsFilesThePageSaysHowToGetThem) {
  files_.clear();
  Serve();
  const auto reply = client_->Get("/");
  EXPECT_EQ(reply->status, 200);
  EXPECT_THAT(reply->body, HasSubstr("make page"));
}

TEST_F(PageApiTest, FleetVerdictsAndMatrixAsProtobufsJson) {
  FakeSource::Job& job = source_.Add("a/b?<script>");
  AddVerdict(&job, "v-1", v1::VERDICT_STATE_CONFIRMED, "host7");
  v1::MatrixCell* cell = job.matrix.add_cells();
  cell->set_from_rank(0);
  cell->set_to_rank(1);
  cell->set_ratio(2);
  Serve();
  auto reply = client_->Get("/api/v1/fleet");
  ASSERT_TRUE(reply);
  EXPECT_EQ(reply->status, 200);
  EXPECT_EQ(reply->get_header_value("Content-Type"), "application/json");
  EXPECT_EQ(reply->get_header_value("Cache-Control"), "no-store");
  // Protobuf writes '<' so that it is no markup wherever the JSON is put.
  EXPECT_THAT(reply->body, HasSubstr(R"("job":"a/b?\u003cscript\u003e")"));
  EXPECT_THAT(reply->body, HasSubstr(R"("masterEpoch":"1")"));
  reply = client_->Get("/api/v1/verdicts?job=a%2Fb%3F%3Cscript%3E");
  EXPECT_EQ(reply->status, 200);
  EXPECT_THAT(reply->body, HasSubstr(R"("id":"v-1")"));
  EXPECT_THAT(reply->body, HasSubstr("host7"));
  reply = client_->Get("/api/v1/matrix?job=a%2Fb%3F%3Cscript%3E&by=rank");
  EXPECT_THAT(reply->body, HasSubstr(R"("names":["rank 0","rank 1"])"));
  EXPECT_EQ(client_->Get("/api/v1/matrix?job=a%2Fb%3F%3Cscript%3E&by=x")->status, 400);
  EXPECT_EQ(client_->Get("/api/v1/verdicts?job=other")->status, 404);
  EXPECT_EQ(client_->Get("/api/v1/verdicts?job=a%2Fb%3F%3Cscript%3E&at=x")->status, 400);
  EXPECT_EQ(client_->Get("/api/v1/nothing")->status, 404);
  EXPECT_EQ(client_->Post("/api/v1/fleet")->status, 404);
}

TEST_F(PageApiTest, ATimelineIsOfTheWindowAndRanksThatAreAskedFor) {
  source_.Add("j");
  Serve();
  EXPECT_EQ(client_->Get("/api/v1/timeline?job=j&from=5&to=9&ranks=0-7,12")->status, 200);
  EXPECT_EQ(source_.timeline_window.from_unix_ns, 5);
  EXPECT_EQ(source_.timeline_window.to_unix_ns, 9);
  EXPECT_THAT(source_.timeline_window.ranks,
              testing::ElementsAre(testing::Pair(0, 7), testing::Pair(12, 12)));
  EXPECT_EQ(client_->Get("/api/v1/timeline?job=j")->status, 200);
  EXPECT_THAT(source_.timeline_window.ranks, testing::IsEmpty());
  for (const char* wrong : {"ranks=x", "ranks=7-0", "ranks=1-", "ranks=-1", "ranks=1,,2", "ranks=99999999999",
                            "from=9&to=5", "from=-1"}) {
    EXPECT_EQ(client_->Get(std::string("/api/v1/timeline?job=j&") + wrong)->status, 400) << wrong;
  }
}

TEST_F(PageApiTest, StragglersAreOfARecordingOrOfASessionsReport) {
  source_.Add("j");
  Serve();
  EXPECT_EQ(client_->Get("/api/v1/whatif?job=j&fix=worker%3D2,cause%3Dpauses")->status, 200);
  EXPECT_THAT(source_.what_if_fix, testing::ElementsAre("worker=2", "cause=pauses"));
  EXPECT_EQ(client_->Get("/api/v1/whatif?job=j")->status, 200);
  EXPECT_THAT(source_.what_if_fix, testing::IsEmpty());
  // A session whose report is gone, and one whose report is none.
  EXPECT_EQ(client_->Get("/api/v1/whatif?job=j&number=1")->status, 404);
  source_.session.set_report_json("{}");
  EXPECT_GE(client_->Get("/api/v1/whatif?job=j&number=2")->status, 400);
  EXPECT_EQ(client_->Get("/api/v1/whatif?job=j&number=2&fix=worker%3D1")->status, 400);
  EXPECT_EQ(client_->Get("/api/v1/whatif?job=j&number=x")->status, 400);
}

TEST_F(PageApiTest, ARecordingThatIsBroughtIsShown) {
  Serve();
  EXPECT_THAT(client_->Get("/api/v1/fleet")->body, Not(HasSubstr("mostRecordingBytes")));
  EXPECT_EQ(client_->Post("/api/v1/recordings?name=a.c4rec", "x", "text/plain")->status, 404);
  take_ = [&](const std::string& name, std::string_view content) -> absl::StatusOr<std::string> {
    if (content != "a recording") return absl::InvalidArgumentError(name + " is no recording");
    return source_.Add("night-1").job.id();
  };
  server_->Stop();
  server_.reset();
  Serve();
  EXPECT_THAT(client_->Get("/api/v1/fleet")->body, HasSubstr(R"("mostRecordingBytes":"67108864")"));
  auto reply = client_->Post("/api/v1/recordings?name=a.c4rec", "nonsense", "text/plain");
  EXPECT_EQ(reply->status, 400);
  EXPECT_EQ(reply->body, "a.c4rec is no recording\n");
  reply = client_->Post("/api/v1/recordings?name=a.c4rec", "a recording", "text/plain");
  EXPECT_EQ(reply->status, 200);
  EXPECT_EQ(reply->body, "night-1");
  EXPECT_EQ(client_->Get("/api/v1/verdicts?job=night-1")->status, 200);  // at once
}

TEST_F(PageApiTest, TheLastMinutesOfAJobAreShown) {
  source_.Add("night");
  Serve();
  EXPECT_EQ(client_->Post("/api/v1/past?job=night")->status, 404) << "a master's own page keeps nothing";
  bool is_recorded = false;
  past_ = [&](const std::string& id) -> absl::StatusOr<std::string> {
    if (!is_recorded) return absl::FailedPreconditionError("nothing of it is recorded");
    return source_.Add(id + "-1").job.id();
  };
  server_->Stop();
  server_.reset();
  Serve();
  EXPECT_EQ(client_->Post("/api/v1/past?job=nobody")->status, 404);
  auto reply = client_->Post("/api/v1/past?job=night");
  EXPECT_GE(reply->status, 400);
  EXPECT_EQ(reply->body, "nothing of it is recorded\n");
  is_recorded = true;
  reply = client_->Post("/api/v1/past?job=night");
  EXPECT_EQ(reply->status, 200);
  EXPECT_EQ(reply->body, "night-1");
  EXPECT_EQ(client_->Get("/api/v1/verdicts?job=night-1")->status, 200);  // at once
}

TEST_F(PageApiTest, AJobThatIsSilentSaysWhy) {
  FakeSource::Job& job = source_.Add("night");
  Serve();
  EXPECT_EQ(client_->Get("/api/v1/status?job=night")->status, 200);
  job.silent = "it went away";
  const auto reply = client_->Get("/api/v1/iterations?job=night");
  EXPECT_EQ(reply->status, 200);  // the fake has those whatever becomes of the job
  const auto verdicts = client_->Get("/api/v1/verdicts?job=night");
  EXPECT_EQ(verdicts->status, 502);
  EXPECT_EQ(verdicts->body, "it went away\n");
}

TEST_F(PageApiTest, FiftyPagesAskAMasterOnce) {
  source_.Add("night");
  Serve();
  for (int i = 0; i < 50; ++i) EXPECT_EQ(client_->Get("/api/v1/matrix?job=night")->status, 200);
  EXPECT_LE(source_.matrix_calls, 3);  // one for each two seconds that it took
}

TEST_F(PageApiTest, MoreRequestsThanAPageNeedsAreRefused) {
  source_.Add("night");
  PageApi::Options options;
  options.rate = {.per_second = 5, .burst = 20, .clients = 10};
  Serve(options);
  int refused = 0;
  for (int i = 0; i < 60; ++i) {
    const auto reply = client_->Get("/api/v1/fleet");
    ASSERT_TRUE(reply);
    if (reply->status == 429) {
      ++refused;
      EXPECT_EQ(reply->get_header_value("Retry-After"), "1");
    }
  }
  EXPECT_GE(refused, 20);
  EXPECT_EQ(client_->Get("/healthz")->status, 200);
}

TEST_F(PageApiTest, AStreamTellsTheStateAndItsChangesAndThatItLives) {
  FakeSource::Job& job = source_.Add("night");
  PageApi::Options options;
  options.beat_ns = 300'000'000;
  options.refresh_ns = 50'000'000;
  Serve(options);
  std::string text = Stream("event: beat");
  EXPECT_THAT(text, HasSubstr("Content-Type: text/event-stream\r\n"));
  EXPECT_THAT(text, Not(HasSubstr("Content-Length")));
  EXPECT_THAT(text, HasSubstr("event: fleet\nid: 1\ndata: {"));
  EXPECT_THAT(text, HasSubstr("event: beat\ndata: {\"unixNs\":\""));
  EXPECT_THAT(text, Not(HasSubstr("v-1")));
  AddVerdict(&job, "v-1", v1::VERDICT_STATE_CONFIRMED, "host7");
  EXPECT_THAT(Stream("v-1"), HasSubstr("v-1"));
}

TEST_F(PageApiTest, AStreamEndsSoThatItsReaderShowsWhoHeIsAgain) {
  PageApi::Options options;
  options.stream_life_ns = 400'000'000;
  Serve(options);
  const std::string text = Stream("never said");
  EXPECT_THAT(text, HasSubstr("event: fleet"));
}

TEST_F(PageApiTest, WhenNobodyLooksTheMastersAreLeftAlone) {
  source_.Add("night");
  PageApi::Options options;
  options.refresh_ns = 1'000'000;
  options.unwatched_after_ns = 200'000'000;
  Serve(options);
  usleep(150'000);
  EXPECT_EQ(source_.list_calls, 0);
  EXPECT_EQ(client_->Get("/api/v1/fleet")->status, 200);
  usleep(450'000);
  const int calls = source_.list_calls;
  EXPECT_GT(calls, 1);
  usleep(150'000);
  EXPECT_EQ(source_.list_calls, calls);
}

TEST_F(PageApiTest, ReboundNamesSeeNothing) {
  source_.Add("night");
  Serve();
  for (const char* path : {"/", "/api/v1/fleet", "/api/v1/events"}) {
    const auto reply = client_->Get(path, {{"Host", "evil.example"}});
    ASSERT_TRUE(reply);
    EXPECT_EQ(reply->status, 403) << path;
  }
}

TEST_F(PageApiTest, WhoHasATokenForOneJobSeesThatOne) {
  const c4::test::TemporaryDirectory directory;
  const service::Credentials credentials =
      c4::test::WithKey(c4::test::WriteKey(directory), {.role = service::Role::kOperator});
  const service::TokenKey key = credentials.Keys()->front();
  AddVerdict(&source_.Add("mine"), "m-1", v1::VERDICT_STATE_CONFIRMED, "host1");
  AddVerdict(&source_.Add("theirs"), "t-1", v1::VERDICT_STATE_CONFIRMED, "host1");
  Serve({}, service::Gate(credentials));
  const auto with = [&](const service::Identity& identity) {
    const int64_t now_s = service::SystemClock().UnixNs() / 1'000'000'000;
    const auto token =
        service::IssueToken(key, {.identity = identity, .not_before_s = now_s - 5, .expires_s = now_s + 600});
    EXPECT_TRUE(token.ok()) << token.status();
    return httplib::Headers{{"Authorization", "Bearer " + *token}};
  };
  const auto mine = with({.role = service::Role::kReader, .job = "mine"});
  auto reply = client_->Get("/api/v1/fleet", mine);
  EXPECT_EQ(reply->status, 200);
  EXPECT_THAT(reply->body, HasSubstr("m-1"));
  EXPECT_THAT(reply->body, Not(HasSubstr("t-1")));
  EXPECT_EQ(client_->Get("/api/v1/verdicts?job=mine", mine)->status, 200);
  EXPECT_EQ(client_->Get("/api/v1/verdicts?job=theirs", mine)->status, 404);
  EXPECT_EQ(client_->Get("/api/v1/paths?of=theirs", mine)->status, 200);
  EXPECT_EQ(source_.paths_of, "mine");
  EXPECT_EQ(client_->Get("/api/v1/history?of=theirs", mine)->status, 200);
  EXPECT_EQ(source_.history_of, "mine");
  EXPECT_EQ(client_->Get("/api/v1/timeline?job=theirs", mine)->status, 404);
  EXPECT_EQ(client_->Get("/api/v1/whatif?job=theirs", mine)->status, 404);
  EXPECT_EQ(client_->Get("/api/v1/explain?connection=x", mine)->status, 404);
  EXPECT_THAT(Stream("event: fleet", "Authorization: " + mine.find("Authorization")->second + "\r\n"),
              Not(HasSubstr("theirs")));
  const auto all = with({.role = service::Role::kReader});
  EXPECT_EQ(client_->Get("/api/v1/verdicts?job=theirs", all)->status, 200);
  // An agent brings telemetry; it is no reader.
  EXPECT_EQ(client_->Get("/api/v1/fleet", with({.role = service::Role::kAgent}))->status, 403);
  EXPECT_EQ(client_->Get("/api/v1/fleet", {{"Authorization", "Bearer c4t1.x.y"}})->status, 401);
  // The page itself holds nothing, so that a token can be asked for.
  EXPECT_EQ(client_->Get("/", {{"Authorization", "Bearer c4t1.x.y"}})->status, 200);
}

}  // namespace
}  // namespace c4::page
