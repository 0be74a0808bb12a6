// SMon's pages and calls over real sockets of this process, with its real threads.
#include <array>
#include <chrono>
#include <grpcpp/grpcpp.h>
#include <httplib.h>
#include <thread>

#include <nlohmann/json.hpp>

#include "c4/v1/smon.grpc.pb.h"
#include "c4d_master/grpc_service.h"
#include "c4d_master/smon/smon_grpc.h"
#include "c4d_master/smon/smon_http.h"
#include "c4d_master/smon/smon_workers.h"
#include "c4d_master/verdict_store.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "service/channel.h"
#include "service/grpc_server.h"
#include "tests/unit/c4d_master/smon/fake_profiles.h"

namespace c4::c4d {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;
using Json = nlohmann::json;

class SkinsTest : public ::testing::Test {
 protected:
  void Start(ProfileSource* source) {
    SmonOptions options;
    options.job = "job";
    options.limits = {.steps = 6, .at_most_ns = 60 * kSecondNs};
    smon_ = std::make_unique<Smon>(options, source, &workers_, &store_, &metrics_, ReadClock(clock_));
    state_thread_ = std::make_unique<service::StateThread>("c4d-state", absl::Milliseconds(5),
                                                           [this] { smon_->Tick(ReadClock(clock_)); });
    const service::Gate gate;
    service_ = MakeSmonService(smon_.get(), state_thread_.get(), gate, clock_);
    const std::array<grpc::Service*, 1> services = {service_.get()};
    auto server = service::GrpcServer::Start("127.0.0.1:0", gate, services);
    ASSERT_TRUE(server.ok()) << server.status();
    grpc_server_ = *std::move(server);
    stub_ = v1::Smon::NewStub(service::MakeChannel(grpc_server_->address(), {}));
    http_server_ = std::make_unique<service::HttpServer>([] { return absl::OkStatus(); },
                                                         [this] { return metrics_.Serialise(); });
    AddSmonRoutes(http_server_.get(), smon_.get(), state_thread_.get(), clock_);
    ASSERT_TRUE(http_server_->Start("127.0.0.1:0", gate).ok());
    client_ = std::make_unique<httplib::Client>("127.0.0.1", http_server_->port());
  }

  void TearDown() override {
    if (http_server_ != nullptr) http_server_->Stop();
    if (grpc_server_ != nullptr) grpc_server_->Shutdown(absl::Milliseconds(100));
    workers_.Stop();
    if (state_thread_ != nullptr) state_thread_->Stop();
  }

  // Status and body.
  std::pair<int, std::string> Get(const std::string& path) {
    const httplib::Result reply = client_->Get(path.c_str());
    return reply ? std::pair(reply->status, reply->body) : std::pair(0, std::string());
  }
  std::pair<int, std::string> Post(const std::string& path) {
    const httplib::Result reply = client_->Post(path.c_str(), "", "text/plain");
    return reply ? std::pair(reply->status, reply->body) : std::pair(0, std::string());
  }
  static bool Eventually(const std::function<bool()>& holds) {
    for (int i = 0; i < 1000; ++i) {
      if (holds()) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return false;
  }

  const service::Clock& clock_ = service::SystemClock();
  FakeProfiles source_;
  service::Metrics metrics_;
  VerdictStore file_{":memory:"};
  SmonStore store_{file_.file(), "job"};
  SmonWorkers workers_;
  std::unique_ptr<Smon> smon_;
  std::unique_ptr<service::StateThread> state_thread_;
  std::unique_ptr<grpc::Service> service_;
  std::unique_ptr<service::GrpcServer> grpc_server_;
  std::unique_ptr<service::HttpServer> http_server_;
  std::unique_ptr<v1::Smon::Stub> stub_;
  std::unique_ptr<httplib::Client> client_;
};

TEST_F(SkinsTest, ASessionOnEveryWayOut) {
  Start(&source_);
  EXPECT_EQ(Get("/v1/smon/sessions/latest").first, 404);
  const auto [code, body] = Post("/v1/smon/sessions?steps=6&seconds=30");
  ASSERT_EQ(code, 202) << body;
  EXPECT_EQ(Json::parse(body)["session"]["state"], "collecting");
  EXPECT_EQ(Post("/v1/smon/sessions").first, 409);
  EXPECT_EQ(Post("/v1/smon/sessions?steps=x").first, 400);
  EXPECT_EQ(Get("/v1/smon/sessions/1/heatmap.svg").first, 404);
  ASSERT_TRUE(state_thread_->Call([this] { source_.steps = 6; }, absl::Seconds(5)).ok());
  Json session;
  ASSERT_TRUE(Eventually([&] {
    session = Json::parse(Get("/v1/smon/sessions/latest").second);
    return session["session"]["state"] == "analysed";
  })) << session.dump(2);
  // The figures are those of the report, which has the fields of `c4 whatif --json`.
  EXPECT_EQ(session["session"]["figures"]["slowdown"], session["report"]["slowdown"]);
  for (const char* field :
       {"slowdown", "waste", "step_time_s", "discrepancy", "slowdown_by_worker", "heatmap",
        "slowdown_by_step", "m_w", "m_s", "fwd_bwd_correlation", "causes", "notes"}) {
    EXPECT_TRUE(session["report"].contains(field)) << field;
  }
  EXPECT_THAT(Get("/v1/smon/sessions/1/heatmap.svg").second, StartsWith("<svg "));
  const int step = session["report"]["job"]["steps"][0];
  EXPECT_THAT(Get("/v1/smon/sessions/1/heatmap.svg?step=" + std::to_string(step)).second,
              HasSubstr("step " + std::to_string(step)));
  EXPECT_EQ(Get("/v1/smon/sessions/1/heatmap.svg?step=4711").first, 404);
  EXPECT_EQ(Get("/v1/smon/sessions/1/heatmap.svg?step=x").first, 400);
  EXPECT_THAT(Get("/v1/smon/sessions/1/steps.svg").second, StartsWith("<svg "));
  EXPECT_THAT(Get("/v1/smon/history.svg").second, HasSubstr("<circle"));
  const Json history = Json::parse(Get("/v1/smon/history").second);
  ASSERT_EQ(history["sessions"].size(), 1U);
  EXPECT_EQ(history["sessions"][0]["slowdown"], session["report"]["slowdown"]);
  EXPECT_EQ(Json::parse(Get("/v1/smon/sessions?limit=5").second)["sessions"].size(), 1U);
  EXPECT_EQ(Get("/v1/smon/sessions/2").first, 404);
  EXPECT_EQ(Get("/v1/smon/sessions/99999999999999999999").first, 404);

  grpc::ClientContext context;
  v1::GetSessionReply reply;
  ASSERT_TRUE(stub_->GetSession(&context, {}, &reply).ok());
  EXPECT_EQ(Json::parse(reply.report_json()), session["report"]);
  EXPECT_THAT(reply.report_text(), HasSubstr("slow-down"));
  EXPECT_EQ(reply.session().slowdown(), session["report"]["slowdown"]);
}

TEST_F(SkinsTest, WithoutASourceTheAnswerSaysSo) {
  Start(nullptr);
  const Json list = Json::parse(Get("/v1/smon/sessions").second);
  EXPECT_EQ(list["available"], false);
  EXPECT_THAT(list["not_available"].get<std::string>(), HasSubstr("no source of profiles"));
  EXPECT_EQ(Post("/v1/smon/sessions").first, 409);
  EXPECT_THAT(Get("/v1/smon/history.svg").second, StartsWith("<svg "));
  grpc::ClientContext context;
  v1::RunSessionReply reply;
  EXPECT_EQ(stub_->RunSession(&context, {}, &reply).error_code(), grpc::StatusCode::FAILED_PRECONDITION);
}

}  // namespace
}  // namespace c4::c4d
