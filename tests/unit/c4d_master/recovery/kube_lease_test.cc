// Who acts: the lease over a server that holds to the API's rules.
#include "c4d_master/recovery/kube_lease.h"

#include <gmock/gmock.h>

#include "tests/support/kube_server.h"
#include "tests/unit/service/temporary_directory.h"

namespace c4::c4d::recovery {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::json;

class KubeLeaseTest : public testing::Test {
 protected:
  KubeLeaseTest() {
    config_.server = server_.Url();
    config_.token_file = directory_.Write("token", "token-1");
    config_.lease_namespace = test::KubeServer::kMasterNamespace;
    config_.lease_ns = kSecond;
    api_ = std::make_unique<KubeApi>(config_);
  }
  std::unique_ptr<KubeLease> Make(const std::string& holder) {
    return std::make_unique<KubeLease>(api_.get(), config_, "l", holder);
  }
  static KubeDeadline In(absl::Duration time) {
    return {std::chrono::steady_clock::now() + absl::ToChronoNanoseconds(time), {}};
  }
  std::string Holder() { return server_.Get("leases/l")["spec"].value("holderIdentity", ""); }

  const test::TemporaryDirectory directory_;
  test::KubeServer server_;
  KubernetesConfig config_;
  std::unique_ptr<KubeApi> api_;
};

TEST_F(KubeLeaseTest, ItIsTakenByTheFirstCommandAndRenewed) {
  const auto lease = Make("m1");
  EXPECT_FALSE(lease->held());
  EXPECT_TRUE(server_.Get("leases/l").is_null()) << "who only looks does not take it";
  ASSERT_TRUE(lease->Hold(In(absl::Seconds(10))).ok());
  EXPECT_TRUE(lease->held());
  const std::string renewed = server_.Get("leases/l")["spec"]["renewTime"];
  for (int i = 0; i < 500 && server_.Get("leases/l")["spec"]["renewTime"] == renewed; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_NE(server_.Get("leases/l")["spec"]["renewTime"], renewed);
  EXPECT_EQ(server_.Get("leases/l")["spec"]["leaseTransitions"], 0);
}

TEST_F(KubeLeaseTest, OneThatIsNotRenewedIsTakenOver) {
  const auto begin = std::chrono::steady_clock::now();
  { ASSERT_TRUE(Make("m1")->Hold(In(absl::Seconds(10))).ok()); }
  const auto second = Make("m2");
  // Not before its time is over, whatever its holder's clock says.
  server_.Change("leases/l",
                 [](Json* lease) { (*lease)["spec"]["renewTime"] = "2020-01-01T00:00:00.000000Z"; });
  const absl::Status early = second->Hold(In(absl::Milliseconds(300)));
  EXPECT_TRUE(absl::IsFailedPrecondition(early));
  EXPECT_THAT(std::string(early.message()), HasSubstr("m1 holds the lease c4/l"));
  EXPECT_TRUE(second->Hold(In(absl::Seconds(20))).ok());
  EXPECT_GE(std::chrono::steady_clock::now() - begin, std::chrono::seconds(1));
  EXPECT_EQ(Holder(), "m2");
  EXPECT_EQ(server_.Get("leases/l")["spec"]["leaseTransitions"], 1);
}

TEST_F(KubeLeaseTest, OneThatIsGivenUpIsTakenAtOnce) {
  { ASSERT_TRUE(Make("m1")->Hold(In(absl::Seconds(10))).ok()); }
  server_.Change("leases/l", [](Json* lease) { (*lease)["spec"]["holderIdentity"] = ""; });
  EXPECT_TRUE(Make("m2")->Hold(In(absl::Milliseconds(900))).ok());
}

TEST_F(KubeLeaseTest, WhoLostItWritesNothing) {
  const auto lease = Make("m1");
  ASSERT_TRUE(lease->Hold(In(absl::Seconds(10))).ok());
  auto state = lease->Read(In(absl::Seconds(10)));
  ASSERT_TRUE(state.ok()) << state.status();
  server_.Change("leases/l", [](Json* object) { (*object)["spec"]["holderIdentity"] = "m2"; });
  state->asked = 7;
  EXPECT_TRUE(absl::IsAborted(lease->Write(*state, In(absl::Seconds(10)))));
  EXPECT_TRUE(absl::IsFailedPrecondition(lease->Read(In(absl::Seconds(10))).status()));
  for (int i = 0; i < 500 && lease->held(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_FALSE(lease->held());
}

// Two at the same moment: the second one's creation is a conflict.
TEST_F(KubeLeaseTest, OfTwoAtOnceOneHoldsIt) {
  const auto first = Make("m1"), second = Make("m2");
  absl::Status of_second;
  std::thread thread([&] { of_second = second->Hold(In(absl::Seconds(10))); });
  const absl::Status of_first = first->Hold(In(absl::Seconds(10)));
  thread.join();
  EXPECT_NE(of_first.ok(), of_second.ok()) << of_first << of_second;
}

TEST_F(KubeLeaseTest, ARenewalThatDoesNotComeEndsIt) {
  const auto lease = Make("m1");
  ASSERT_TRUE(lease->Hold(In(absl::Seconds(10))).ok());
  server_.SetHook([](const httplib::Request&, httplib::Response* response) {
    response->status = 503;
    return true;
  });
  for (int i = 0; i < 500 && lease->held(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_FALSE(lease->held());
  EXPECT_TRUE(absl::IsUnavailable(lease->Hold(In(absl::Milliseconds(200)))));
}

TEST(KubeHolderTest, IsThisProcess) {
  EXPECT_EQ(KubeHolder(), KubeHolder());
  EXPECT_THAT(KubeHolder(), HasSubstr("_"));
}

}  // namespace
}  // namespace c4::c4d::recovery
