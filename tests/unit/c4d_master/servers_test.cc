// The skins over real sockets of this process: gRPC streams and calls, the HTTP pages, tokens, and ends
// at any moment.
#include <arpa/inet.h>
#include <array>
#include <atomic>
#include <grpcpp/grpcpp.h>
#include <memory>
#include <netinet/in.h>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>

#include "c4/v1/c4d.grpc.pb.h"
#include "c4d_master/grpc_service.h"
#include "c4d_master/http_api.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "service/channel.h"
#include "service/grpc_server.h"
#include "service/limits.h"
#include "service/log.h"
#include "service/state_thread.h"
#include "tests/unit/c4d_master/fake_job.h"
#include "tests/unit/service/key_files.h"

namespace c4::c4d {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::SizeIs;
using ::testing::StartsWith;

// One GET, the whole answer with its head.
std::string Get(uint16_t port, const std::string& path, const std::string& header = "") {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) {
    close(fd);
    return "no connection";
  }
  const std::string request =
      "GET " + path + " HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n" + header + "\r\n";
  (void)!write(fd, request.data(), request.size());
  std::string answer;
  std::array<char, 4096> part;
  for (ssize_t n = 0; (n = read(fd, part.data(), part.size())) > 0;)
    answer.append(part.data(), static_cast<size_t>(n));
  close(fd);
  return answer;
}

// A master whose time stands still unless the test moves it.
class ServersTest : public ::testing::Test {
 protected:
  void Start(const service::Gate& gate = {}, size_t max_watch_backlog = kMaxWatchBacklog) {
    HandlerOptions options;
    options.job = "job";
    options.master_epoch = 5;
    handler_ = std::make_unique<C4dHandler>(options, &store_, &metrics_);
    state_thread_ = std::make_unique<service::StateThread>("c4d-state", absl::Milliseconds(5),
                                                           [this] { handler_->Tick(ReadClock(clock_)); });
    service_ = MakeGrpcService(handler_.get(), state_thread_.get(), gate, clock_, max_watch_backlog);
    const std::array<grpc::Service*, 1> services = {service_.get()};
    auto server = service::GrpcServer::Start("127.0.0.1:0", gate, services);
    ASSERT_TRUE(server.ok()) << server.status();
    grpc_server_ = *std::move(server);
    http_server_ = std::make_unique<service::HttpServer>([this] { return state_thread_->Health(); },
                                                         [this] { return metrics_.Serialise(); });
    AddHttpRoutes(http_server_.get(), handler_.get(), state_thread_.get(), clock_);
    ASSERT_TRUE(http_server_->Start("127.0.0.1:0", gate).ok());
    stub_ = v1::C4d::NewStub(service::MakeChannel(grpc_server_->address(), {}));
  }

  void TearDown() override {
    if (http_server_ != nullptr) http_server_->Stop();
    if (grpc_server_ != nullptr) grpc_server_->Shutdown(absl::Milliseconds(100));
    if (state_thread_ != nullptr) state_thread_->Stop();
  }

  // On one stream: every host's batch, its reply checked.
  void Report(grpc::ClientReaderWriterInterface<v1::TelemetryBatch, v1::TelemetryReply>* stream) {
    for (const auto& [name, host] : job_.hosts()) {
      const v1::TelemetryBatch batch = job_.Batch(name);
      ASSERT_TRUE(stream->Write(batch));
      v1::TelemetryReply reply;
      ASSERT_TRUE(stream->Read(&reply));
      EXPECT_EQ(reply.sequence(), batch.sequence());
      EXPECT_EQ(reply.master_epoch(), 5U);
    }
  }
  void Advance(int64_t ns) {
    job_.Advance(ns);
    clock_.Advance(ns);
  }

  FakeJob job_{4, 2};
  service::FakeClock clock_{1000 * kSecondNs};
  service::Metrics metrics_;
  VerdictStore store_{":memory:"};
  std::unique_ptr<C4dHandler> handler_;
  std::unique_ptr<service::StateThread> state_thread_;
  std::unique_ptr<grpc::Service> service_;
  std::unique_ptr<service::GrpcServer> grpc_server_;
  std::unique_ptr<service::HttpServer> http_server_;
  std::unique_ptr<v1::C4d::Stub> stub_;
};

TEST_F(ServersTest, FromTelemetryToVerdictsOnEveryWayOut) {
  Start();
  grpc::ClientContext watch_context;
  const auto watch = stub_->WatchVerdicts(&watch_context, {});
  grpc::ClientContext context;
  const auto stream = stub_->StreamTelemetry(&context);
  job_.Complete(50, kWorld, 0);
  for (uint32_t rank = 0; rank < 4; ++rank) job_.Enter(rank);
  job_.SetState(2, ProcessState::kStopped);
  Report(stream.get());
  Advance(2500 * kMillisecondNs);
  Report(stream.get());

  v1::Verdict verdict;
  do {
    ASSERT_TRUE(watch->Read(&verdict));
  } while (verdict.state() == v1::VERDICT_STATE_SUSPECTED);
  EXPECT_EQ(verdict.state(), v1::VERDICT_STATE_CONFIRMED);
  EXPECT_EQ(verdict.culprit().rank(), 2);

  grpc::ClientContext list_context;
  v1::ListVerdictsReply list;
  ASSERT_TRUE(stub_->ListVerdicts(&list_context, {}, &list).ok());
  ASSERT_THAT(list.verdicts(), SizeIs(1));
  EXPECT_EQ(list.verdicts(0).id(), verdict.id());

  grpc::ClientContext status_context;
  v1::GetStatusReply status;
  ASSERT_TRUE(stub_->GetStatus(&status_context, {}, &status).ok());
  EXPECT_THAT(status.ranks(), SizeIs(4));
  EXPECT_THAT(status.agents(), SizeIs(2));

  const uint16_t port = http_server_->port();
  EXPECT_THAT(Get(port, "/v1/verdicts"),
              AllOf(StartsWith("HTTP/1.1 200"), HasSubstr("application/json"),
                    HasSubstr("\"state\": \"confirmed\""), HasSubstr("\"rank\": 2")));
  EXPECT_THAT(Get(port, "/v1/status"), HasSubstr("\"host\": \"host1\""));
  EXPECT_THAT(Get(port, "/healthz"), AllOf(StartsWith("HTTP/1.1 200"), HasSubstr("ok")));
  EXPECT_THAT(Get(port, "/metrics"), HasSubstr("c4d_verdicts_open{state=\"confirmed\"} 1"));

  job_.SetState(2, ProcessState::kRunning);
  for (uint32_t rank = 0; rank < 4; ++rank) job_.Finish(rank);
  Advance(250 * kMillisecondNs);
  Report(stream.get());
  ASSERT_TRUE(watch->Read(&verdict));
  EXPECT_EQ(verdict.state(), v1::VERDICT_STATE_CLEARED);
  EXPECT_THAT(Get(port, "/v1/verdicts"), HasSubstr("\"verdicts\": []"));
  EXPECT_THAT(Get(port, "/v1/verdicts?cleared=true"), HasSubstr("\"state\": \"cleared\""));

  stream->WritesDone();
  EXPECT_TRUE(stream->Finish().ok());
  watch_context.TryCancel();
  EXPECT_EQ(watch->Finish().error_code(), grpc::StatusCode::CANCELLED);
}

TEST_F(ServersTest, ABatchOfAnotherJobEndsTheStreamWithASentence) {
  Start();
  FakeJob other(2, 2, "other");
  grpc::ClientContext context;
  const auto stream = stub_->StreamTelemetry(&context);
  ASSERT_TRUE(stream->Write(other.Batch("host0")));
  v1::TelemetryReply reply;
  EXPECT_FALSE(stream->Read(&reply));
  const grpc::Status status = stream->Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_THAT(status.error_message(), HasSubstr("job \"other\""));
}

TEST_F(ServersTest, TheTokenIsAskedForEverywhere) {
  const test::TemporaryDirectory directory;
  const std::string key = test::WriteKey(directory);
  const auto token = [&](const service::Identity& identity) {
    return test::WithKey(key, identity).AuthorizationFor(service::MasterAddress("127.0.0.1:1"));
  };
  const std::string agent = token({.role = service::Role::kAgent, .host = "host0", .job = "job"});
  const std::string any_agent = token({.role = service::Role::kAgent});
  const std::string stranger = token({.role = service::Role::kAgent, .job = "another"});
  Start(service::Gate({.credentials = test::WithKey(key, {}), .job = "job"}));
  const auto code_of = [&](const std::string& authorization, const std::string& host) {
    grpc::ClientContext context;
    if (!authorization.empty()) context.AddMetadata("authorization", authorization);
    const auto stream = stub_->StreamTelemetry(&context);
    stream->Write(job_.Batch(host));
    stream->WritesDone();
    v1::TelemetryReply reply;
    while (stream->Read(&reply)) continue;
    return stream->Finish().error_code();
  };

  // Nobody, an agent of another job, and one that brings another host's telemetry. The test's own user may
  // read without a token, and no more.
  EXPECT_EQ(code_of("", "host0"), grpc::StatusCode::PERMISSION_DENIED);
  EXPECT_EQ(code_of("Bearer t0ken", "host0"), grpc::StatusCode::UNAUTHENTICATED);
  EXPECT_EQ(code_of(stranger, "host0"), grpc::StatusCode::PERMISSION_DENIED);
  EXPECT_EQ(code_of(agent, "host1"), grpc::StatusCode::PERMISSION_DENIED);
  EXPECT_EQ(code_of(agent, "host0"), grpc::StatusCode::OK);
  v1::SetLevelReply level;
  for (const std::string& wrong : {std::string(), agent, stranger}) {
    grpc::ClientContext context;
    if (!wrong.empty()) context.AddMetadata("authorization", wrong);
    EXPECT_EQ(stub_->SetLevel(&context, {}, &level).error_code(), grpc::StatusCode::PERMISSION_DENIED);
  }
  EXPECT_THAT(Get(http_server_->port(), "/v1/verdicts"), StartsWith("HTTP/1.1 200"));
  EXPECT_THAT(Get(http_server_->port(), "/v1/verdicts", "Authorization: Bearer t0ken\r\n"),
              StartsWith("HTTP/1.1 401"));
  EXPECT_THAT(Get(http_server_->port(), "/v1/verdicts", "Authorization: " + agent + "\r\n"),
              StartsWith("HTTP/1.1 403"));

  grpc::ClientContext allowed_context;
  allowed_context.AddMetadata("authorization", any_agent);
  const auto allowed = stub_->StreamTelemetry(&allowed_context);
  Report(allowed.get());
  allowed->WritesDone();
  EXPECT_TRUE(allowed->Finish().ok());
}

// Many ranks stop at once: more changes in one go than a watcher may fall behind.
TEST_F(ServersTest, AWatcherThatFallsBehindIsLetGo) {
  constexpr uint32_t kRanks = 300;
  ASSERT_TRUE(service::InitLog({.level = "error"}, "test").ok());  // hundreds of changes
  Start({}, 2);
  grpc::ClientContext context;
  const auto watch = stub_->WatchVerdicts(&context, {});
  while (metrics_.Serialise().find("c4d_watchers 1") == std::string::npos) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  FakeJob large(kRanks, kRanks);
  for (uint32_t rank = 0; rank < kRanks; ++rank) large.Enter(rank);
  for (uint32_t rank = 1; rank < kRanks; ++rank) large.SetState(rank, ProcessState::kStopped);
  large.Advance(2500 * kMillisecondNs);
  clock_.Advance(2500 * kMillisecondNs);
  absl::Status ingested;
  ASSERT_TRUE(
      state_thread_
          ->Call([&] { ingested = handler_->Ingest(large.Batch("host0"), ReadClock(clock_)).status(); },
                 absl::Seconds(10))
          .ok());
  EXPECT_TRUE(ingested.ok()) << ingested;
  v1::Verdict verdict;
  size_t read = 0;
  while (watch->Read(&verdict)) ++read;
  const grpc::Status status = watch->Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED) << status.error_message();
  EXPECT_LT(read, 2 * (kRanks - 1));
  // It calls again and begins with what is open.
  grpc::ClientContext list_context;
  v1::ListVerdictsReply list;
  ASSERT_TRUE(stub_->ListVerdicts(&list_context, {}, &list).ok());
  EXPECT_THAT(list.verdicts(), SizeIs(kRanks - 1));
  ASSERT_TRUE(service::InitLog({}, "test").ok());
}

TEST_F(ServersTest, WatchersAndRecordersAreOnlySoMany) {
  Start();
  struct Stream {
    grpc::ClientContext context;
    std::unique_ptr<grpc::ClientReader<v1::RecordedBatch>> reader;
  };
  std::vector<std::unique_ptr<Stream>> streams;
  const auto open = [&] {
    streams.push_back(std::make_unique<Stream>());
    streams.back()->reader = stub_->Record(&streams.back()->context, {});
  };
  for (size_t i = 0; i <= service::limits::kRecorders; ++i) open();
  // Whichever of them came last is refused: it ends by itself, and says why.
  size_t refused = 0;
  for (const auto& stream : streams) {
    grpc::Status status;
    std::thread end([&] { status = stream->reader->Finish(); });
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    stream->context.TryCancel();
    end.join();
    if (status.error_code() == grpc::StatusCode::RESOURCE_EXHAUSTED) ++refused;
  }
  EXPECT_EQ(refused, 1U);
}

TEST_F(ServersTest, ManyStreamsThatComeAndGo) {
  Start();
  std::atomic<int> answered = 0;
  std::vector<std::thread> threads;
  threads.reserve(4);
  std::vector<v1::TelemetryBatch> batches;
  batches.reserve(50);
  for (int i = 0; i < 50; ++i) batches.push_back(job_.Batch("host0"));
  for (size_t thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&, thread] {
      for (size_t round = 0; round < 10; ++round) {
        grpc::ClientContext context;
        const auto stream = stub_->StreamTelemetry(&context);
        grpc::ClientContext watch_context;
        const auto watch = stub_->WatchVerdicts(&watch_context, {});
        v1::TelemetryReply reply;
        for (size_t i = 0; i < 5; ++i) {
          if (stream->Write(batches[round * 5 + i]) && stream->Read(&reply)) ++answered;
        }
        // Half of them just vanish, with a batch under way.
        if ((round + thread) % 2 == 0) {
          stream->Write(batches[0]);
          context.TryCancel();
          watch_context.TryCancel();
        } else {
          stream->WritesDone();
          watch_context.TryCancel();
        }
        (void)stream->Finish();
        (void)watch->Finish();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(answered, 4 * 10 * 5);
  EXPECT_THAT(Get(http_server_->port(), "/metrics"), HasSubstr("c4d_batches_total 50"));
}

TEST_F(ServersTest, EndsInOrderWithStreamsOpen) {
  Start();
  grpc::ClientContext context;
  const auto stream = stub_->StreamTelemetry(&context);
  Report(stream.get());
  grpc::ClientContext watch_context;
  const auto watch = stub_->WatchVerdicts(&watch_context, {});
  TearDown();
  EXPECT_FALSE(stream->Finish().ok());
  EXPECT_FALSE(watch->Finish().ok());
  EXPECT_FALSE(state_thread_->Post([] {}));
}

}  // namespace
}  // namespace c4::c4d
