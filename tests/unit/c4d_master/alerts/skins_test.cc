// Alerts' pages and calls over real sockets of this process, with the real senders.
#include <array>
#include <chrono>
#include <grpcpp/grpcpp.h>
#include <httplib.h>
#include <thread>

#include <nlohmann/json.hpp>

#include "c4/v1/alerts.grpc.pb.h"
#include "c4d_master/alerts/alerts_grpc.h"
#include "c4d_master/alerts/alerts_http.h"
#include "c4d_master/alerts/senders.h"
#include "c4d_master/grpc_service.h"
#include "c4d_master/verdict_store.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "service/channel.h"
#include "service/grpc_server.h"
#include "service/hmac.h"
#include "tests/support/webhook.h"
#include "tests/unit/service/temporary_directory.h"

namespace c4::c4d {
namespace {

using std::chrono::steady_clock;
using ::testing::HasSubstr;
using Json = nlohmann::json;

bool Eventually(const std::function<bool()>& holds) {
  for (int i = 0; i < 1000; ++i) {
    if (holds()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return false;
}

AlertTarget Command(const std::string& name, const std::string& script) {
  AlertTarget target;
  target.name = name;
  target.kind = AlertTarget::Kind::kCommand;
  target.command = {"/bin/sh", "-c", script};
  target.timeout_ns = 20 * kSecondNs;
  return target;
}

std::vector<AlertAttempted> Await(AlertSenders* senders) {
  std::vector<AlertAttempted> results;
  (void)Eventually([&] { return !(results = senders->Take()).empty(); });
  return results;
}

TEST(AlertSendersTest, ACommandGetsTheNotification) {
  const test::TemporaryDirectory directory;
  AlertSenders senders;
  senders.Try({7, false, Command("a", "cat > " + directory.File("told")), R"({"a":1})"});
  const auto results = Await(&senders);
  ASSERT_EQ(results.size(), 1U);
  EXPECT_EQ(results[0].number, 7U);
  EXPECT_TRUE(results[0].outcome.ok()) << results[0].outcome;
  EXPECT_EQ(test::ReadWhole(directory.File("told")), "{\"a\":1}\n");
}

TEST(AlertSendersTest, AWebhookIsSigned) {
  test::Webhook webhook;
  AlertTarget target;
  target.name = "ops";
  target.url = webhook.Url();
  target.allow_private = true;
  target.secret = "0123456789abcdef";
  AlertSenders senders;
  senders.Try({7, false, target, R"({"a":1})"});
  ASSERT_TRUE(Await(&senders).at(0).outcome.ok());
  const auto delivery = webhook.deliveries().at(0);
  EXPECT_EQ(delivery.headers.at("C4-Delivery"), "7");
  const std::string signed_text = delivery.headers.at("C4-Timestamp") + "." + delivery.body;
  std::string hex;
  for (const unsigned char byte : service::HmacSha256(target.secret, signed_text)) {
    char two[3];
    snprintf(two, sizeof two, "%02x", byte);
    hex += two;
  }
  EXPECT_EQ(delivery.headers.at("C4-Signature"), "v1=" + hex);
}

TEST(AlertSendersTest, ATargetThatHangsHoldsUpNoOtherAndStopCutsItOff) {
  AlertSenders senders;
  const auto begin = steady_clock::now();
  senders.Try({1, false, Command("a", "sleep 20"), "{}"});
  senders.Try({2, false, Command("b", "true"), "{}"});
  const auto results = Await(&senders);
  ASSERT_EQ(results.size(), 1U);
  EXPECT_EQ(results[0].number, 2U);
  senders.Stop();
  EXPECT_LT(steady_clock::now() - begin, std::chrono::seconds(10));
  EXPECT_TRUE(senders.Take().empty()) << "it counts as failed";
}

class AlertSkinsTest : public ::testing::Test {
 protected:
  AlertSkinsTest() {
    AlertConfig config;
    config.targets.push_back(Command("ops", "true"));
    AlertRule rule;
    rule.name = "down";
    rule.to = {"ops"};
    config.rules = {rule};
    center_ = std::make_unique<AlertCenter>("j", config, &senders_, &store_, &metrics_, ReadClock(clock_));
    v1::Verdict verdict;
    verdict.set_id("v-1");
    verdict.set_syndrome(v1::SYNDROME_CRASH);
    verdict.set_state(v1::VERDICT_STATE_CONFIRMED);
    center_->OnVerdict(verdict, ReadClock(clock_));
    state_thread_ = std::make_unique<service::StateThread>("c4d-state", absl::Milliseconds(5),
                                                           [this] { center_->Tick(ReadClock(clock_)); });
    const service::Gate gate;
    service_ = MakeAlertsService(center_.get(), state_thread_.get(), gate, clock_);
    const std::array<grpc::Service*, 1> services = {service_.get()};
    auto server = service::GrpcServer::Start("127.0.0.1:0", gate, services);
    EXPECT_TRUE(server.ok()) << server.status();
    grpc_server_ = *std::move(server);
    stub_ = v1::Alerts::NewStub(service::MakeChannel(grpc_server_->address(), {}));
    http_server_ = std::make_unique<service::HttpServer>([] { return absl::OkStatus(); },
                                                         [this] { return metrics_.Serialise(); });
    AddAlertRoutes(http_server_.get(), center_.get(), state_thread_.get(), clock_);
    EXPECT_TRUE(http_server_->Start("127.0.0.1:0", gate).ok());
    client_ = std::make_unique<httplib::Client>("127.0.0.1", http_server_->port());
  }
  ~AlertSkinsTest() override {
    http_server_->Stop();
    grpc_server_->Shutdown(absl::Milliseconds(100));
    state_thread_->Stop();
  }

  std::pair<int, std::string> Post(const std::string& path) {
    const auto reply = client_->Post(path.c_str(), "", "text/plain");
    return reply ? std::pair(reply->status, reply->body) : std::pair(0, std::string());
  }
  Json List() {
    const auto reply = client_->Get("/v1/alerts");
    return reply ? Json::parse(reply->body, nullptr, false) : Json();
  }

  const service::Clock& clock_ = service::SystemClock();
  const test::TemporaryDirectory directory_;
  service::Metrics metrics_;
  VerdictStore file_{directory_.File("c4d.db")};
  AlertStore store_{file_.file(), "j"};
  AlertSenders senders_;
  std::unique_ptr<AlertCenter> center_;
  std::unique_ptr<service::StateThread> state_thread_;
  std::unique_ptr<grpc::Service> service_;
  std::unique_ptr<service::GrpcServer> grpc_server_;
  std::unique_ptr<v1::Alerts::Stub> stub_;
  std::unique_ptr<service::HttpServer> http_server_;
  std::unique_ptr<httplib::Client> client_;
};

TEST_F(AlertSkinsTest, OverHttp) {
  Json list;
  ASSERT_TRUE(Eventually([&] {
    list = List();
    return !list["alerts"].empty() && !list["alerts"][0]["last_delivery"].is_null();
  }));
  EXPECT_EQ(list["alerts"][0]["id"], "down/v-1");
  EXPECT_EQ(list["alerts"][0]["last_delivery"]["delivered"], true);
  EXPECT_EQ(Post("/v1/alerts/acknowledge?id=x").first, 404);
  EXPECT_EQ(Post("/v1/alerts/acknowledge?id=v-1&comment=mine").first, 200);
  EXPECT_EQ(List()["alerts"][0]["acknowledged_comment"], "mine");
  EXPECT_EQ(Post("/v1/alerts/silences?match=rule=down").first, 400);
  EXPECT_EQ(Post("/v1/alerts/silences?match=host&seconds=5").first, 400);
  EXPECT_EQ(Post("/v1/alerts/silences?match=rule=down,host=a*&seconds=60").first, 200);
  EXPECT_EQ(List()["silences"][0]["match"], (Json{"rule=down", "host=a*"}));
  EXPECT_EQ(Post("/v1/alerts/silences/1/end").first, 200);
  EXPECT_EQ(Post("/v1/alerts/silences/1/end").first, 404);
  EXPECT_EQ(Post("/v1/alerts/silences/99999999999999999999/end").first, 404);
  EXPECT_EQ(Post("/v1/alerts/test/other").first, 404);
  ASSERT_EQ(Post("/v1/alerts/test/ops").first, 202);
  EXPECT_TRUE(Eventually([&] { return !List()["targets"][0]["last_test"].is_null(); }));
}

TEST_F(AlertSkinsTest, OverGrpc) {
  {
    grpc::ClientContext context;
    v1::AddSilenceRequest request;
    request.add_matchers("rule=*");
    request.set_seconds(60);
    v1::AddSilenceReply reply;
    ASSERT_TRUE(stub_->AddSilence(&context, request, &reply).ok());
    EXPECT_EQ(reply.silence().number(), 1U);
  }
  {
    grpc::ClientContext context;
    v1::EndSilenceRequest request;
    request.set_number(2);
    v1::EndSilenceReply reply;
    const grpc::Status status = stub_->EndSilence(&context, request, &reply);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::NOT_FOUND);
    EXPECT_THAT(status.error_message(), HasSubstr("there are 1"));
  }
  {
    grpc::ClientContext context;
    v1::AcknowledgeAlertRequest request;
    request.set_id("down/v-1");
    v1::AcknowledgeAlertReply reply;
    ASSERT_TRUE(stub_->Acknowledge(&context, request, &reply).ok());
    EXPECT_EQ(reply.alerts_size(), 1);
  }
  grpc::ClientContext context;
  v1::ListAlertsReply reply;
  ASSERT_TRUE(stub_->List(&context, {}, &reply).ok());
  EXPECT_EQ(reply.alerts(0).detail().acknowledged_by(), "somebody");
  EXPECT_EQ(reply.rules(0).name(), "down");
}

}  // namespace
}  // namespace c4::c4d
