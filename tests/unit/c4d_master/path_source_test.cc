// C4D as a client of C4P, against a server of this process that answers as the test says.
#include "c4d_master/path_source.h"

#include <array>
#include <atomic>
#include <chrono>
#include <grpcpp/grpcpp.h>
#include <map>
#include <set>

#include "c4/v1/c4p.grpc.pb.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "service/grpc_server.h"
#include "service/text.h"

namespace c4::c4d {
namespace {

using ::testing::ElementsAre;

class FakeC4p final : public v1::C4p::Service {
 public:
  grpc::Status ResolvePaths(grpc::ServerContext*, const v1::ResolvePathsRequest* request,
                            v1::ResolvePathsReply* reply) override {
    const std::unique_lock lock(mutex_);
    ++calls_;
    most_ = std::max(most_, request->tuples_size());
    if (failing_) return {grpc::StatusCode::INTERNAL, "broken"};
    reply->set_master_epoch(epoch_);
    for (const v1::FiveTuple& tuple : request->tuples()) {
      const bool roce = tuple.destination_port() == 4791;
      EXPECT_EQ(tuple.protocol(), roce ? v1::IP_PROTOCOL_UDP : v1::IP_PROTOCOL_TCP);
      if (roce) roce_.insert(service::Concat(tuple.source(), ":", tuple.source_port()));
      v1::ResolvedPath* path = reply->add_paths();
      *path->mutable_tuple() = tuple;
      const auto known = paths_.find(tuple.source_port());
      path->set_known(known != paths_.end());
      if (known != paths_.end()) path->mutable_links()->Assign(known->second.begin(), known->second.end());
      ++asked_[tuple.source_port()];
    }
    return grpc::Status::OK;
  }

  void Set(uint32_t source_port, LinkPath path) {
    const std::unique_lock lock(mutex_);
    paths_[source_port] = std::move(path);
  }
  void Lose(uint32_t source_port) {
    const std::unique_lock lock(mutex_);
    paths_.erase(source_port);
  }
  void SetEpoch(uint64_t epoch) {
    const std::unique_lock lock(mutex_);
    epoch_ = epoch;
  }
  void SetFailing(bool failing) {
    const std::unique_lock lock(mutex_);
    failing_ = failing;
  }
  int asked(uint32_t source_port) {
    const std::unique_lock lock(mutex_);
    return asked_[source_port];
  }
  std::set<std::string> roce() {
    const std::unique_lock lock(mutex_);
    return roce_;
  }
  int calls() {
    const std::unique_lock lock(mutex_);
    return calls_;
  }
  int most() {
    const std::unique_lock lock(mutex_);
    return most_;
  }

 private:
  std::mutex mutex_;
  std::map<uint32_t, LinkPath> paths_;
  std::map<uint32_t, int> asked_;
  std::set<std::string> roce_;
  uint64_t epoch_ = 1;
  bool failing_ = false;
  int calls_ = 0;
  int most_ = 0;
};

std::string Port(uint32_t port) {
  return service::Concat("10.0.0.1:", port);
}
const char kThere[] = "10.0.0.2:9000";

class PathSourceTest : public ::testing::Test {
 protected:
  void SetUp() override { Serve("127.0.0.1:0"); }
  void TearDown() override {
    source_.reset();
    if (server_ != nullptr) server_->Shutdown(absl::Milliseconds(50));
  }
  void Serve(const std::string& address) {
    const std::array<grpc::Service*, 1> services = {&c4p_};
    auto server = service::GrpcServer::Start(address, {}, services);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    address_ = server_->address();
  }
  GrpcPathSource::Options Quick() {
    GrpcPathSource::Options options;
    options.address = [this]() -> absl::StatusOr<std::string> {
      if (!found_) return absl::NotFoundError("no C4P");
      return address_;
    };
    options.known_for_ms = 100'000;
    options.ask_again_ms = 20;
    options.look_every_ms = 5;
    options.retry_ms = 20;
    return options;
  }
  static bool Eventually(const std::function<bool()>& holds) {
    for (int i = 0; i < 1000; ++i) {
      if (holds()) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return false;
  }
  LinkPath PathFrom(uint32_t port) {
    const auto path = source_->Find(Port(port), kThere);
    return path == nullptr ? LinkPath() : *path;
  }

  FakeC4p c4p_;
  std::string address_;
  std::atomic<bool> found_ = true;
  std::unique_ptr<service::GrpcServer> server_;
  std::unique_ptr<GrpcPathSource> source_;
};

TEST(CableTest, IsTheSameBothWays) {
  EXPECT_EQ(CableOf("leaf0>spine1"), "leaf0-spine1");
  EXPECT_EQ(CableOf("leaf0<spine1"), "leaf0-spine1");
  EXPECT_EQ(CableOf("odd"), "odd");
}

// Of RoCE v2 both directions go to one port, and leave from the same.
TEST_F(PathSourceTest, AcknowledgementsOfRoceLeaveFromTheSendersPort) {
  source_ = std::make_unique<GrpcPathSource>(Quick());
  (void)source_->Find("10.0.0.1:50000", "10.0.0.2:4791");
  (void)source_->Find("10.0.0.2:4791", "10.0.0.1:50000");
  EXPECT_TRUE(Eventually([&] { return c4p_.roce().size() == 2; }));
  EXPECT_THAT(c4p_.roce(), ElementsAre("10.0.0.1:50000", "10.0.0.2:50000"));
}

TEST_F(PathSourceTest, AsksOnceForWhatIsKnownAndAgainForWhatIsNot) {
  c4p_.Set(1000, {"host0>leaf0", "host1<leaf0"});
  source_ = std::make_unique<GrpcPathSource>(Quick());
  EXPECT_EQ(source_->Find(Port(1000), kThere), nullptr) << "it never waits";
  EXPECT_EQ(source_->Find(Port(1001), kThere), nullptr);
  ASSERT_TRUE(Eventually([&] { return !PathFrom(1000).empty() && c4p_.asked(1001) >= 3; }));
  EXPECT_THAT(PathFrom(1000), ElementsAre("host0>leaf0", "host1<leaf0"));
  EXPECT_EQ(c4p_.asked(1000), 1);
  EXPECT_EQ(source_->known(), 1U);
  EXPECT_EQ(source_->size(), 2U);
  c4p_.Set(1001, {"host0>leaf1"});
  EXPECT_TRUE(Eventually([&] { return !PathFrom(1001).empty(); }));
}

TEST_F(PathSourceTest, FollowsAPathThatMovesAndKeepsOneThatIsLost) {
  c4p_.Set(1000, {"old"});
  GrpcPathSource::Options options = Quick();
  options.known_for_ms = 20;
  source_ = std::make_unique<GrpcPathSource>(options);
  ASSERT_TRUE(Eventually([&] { return PathFrom(1000) == LinkPath{"old"}; }));
  c4p_.Set(1000, {"new"});
  ASSERT_TRUE(Eventually([&] { return PathFrom(1000) == LinkPath{"new"}; }));
  c4p_.Lose(1000);
  const int asked = c4p_.asked(1000);
  ASSERT_TRUE(Eventually([&] { return c4p_.asked(1000) >= asked + 3; }));
  EXPECT_EQ(PathFrom(1000), LinkPath{"new"});
}

TEST_F(PathSourceTest, AsksANewMasterForEverything) {
  c4p_.Set(1000, {"old"});
  source_ = std::make_unique<GrpcPathSource>(Quick());
  ASSERT_TRUE(Eventually([&] { return PathFrom(1000) == LinkPath{"old"}; }));
  c4p_.Set(1000, {"new"});
  c4p_.SetEpoch(2);
  source_->Find(Port(1001), kThere);  // its answer tells of the new master
  EXPECT_TRUE(Eventually([&] { return PathFrom(1000) == LinkPath{"new"}; }));
}

TEST_F(PathSourceTest, AsksInBatches) {
  GrpcPathSource::Options options = Quick();
  options.batch = 16;
  options.most_tuples = 100;
  found_ = false;
  source_ = std::make_unique<GrpcPathSource>(options);
  for (uint32_t port = 1; port <= 200; ++port) {
    c4p_.Set(port, {"a"});
    source_->Find(Port(port), kThere);
  }
  EXPECT_EQ(source_->size(), 100U) << "no more than it may keep";
  found_ = true;
  ASSERT_TRUE(Eventually([&] { return source_->known() == 100; }));
  EXPECT_EQ(c4p_.most(), 16);
  EXPECT_EQ(c4p_.calls(), 7);
}

TEST_F(PathSourceTest, WithoutC4pNothingIsKnownAndItIsFoundWhenItComes) {
  c4p_.Set(1000, {"a"});
  found_ = false;
  source_ = std::make_unique<GrpcPathSource>(Quick());
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(source_->Find(Port(1000), kThere), nullptr);
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  found_ = true;
  EXPECT_TRUE(Eventually([&] { return !PathFrom(1000).empty(); }));
}

TEST_F(PathSourceTest, SurvivesErrorsAndARestart) {
  c4p_.Set(1000, {"a"});
  c4p_.SetFailing(true);
  source_ = std::make_unique<GrpcPathSource>(Quick());
  source_->Find(Port(1000), kThere);
  ASSERT_TRUE(Eventually([&] { return c4p_.calls() >= 2; }));
  c4p_.SetFailing(false);
  ASSERT_TRUE(Eventually([&] { return !PathFrom(1000).empty(); }));
  server_->Shutdown(absl::Milliseconds(50));
  c4p_.Set(1001, {"b"});
  EXPECT_TRUE(PathFrom(1001).empty());
  EXPECT_FALSE(PathFrom(1000).empty()) << "what was known stays";
  Serve("127.0.0.1:0");  // elsewhere: the directory would say so
  EXPECT_TRUE(Eventually([&] { return !PathFrom(1001).empty(); }));
}

TEST_F(PathSourceTest, LeavesOutWhatIsNoTupleOrNoPath) {
  c4p_.Set(1000, {"a", ""});
  c4p_.Set(1001, LinkPath(100, "a"));
  c4p_.Set(1002, {});
  c4p_.Set(1003, {"good"});
  source_ = std::make_unique<GrpcPathSource>(Quick());
  EXPECT_EQ(source_->Find("", kThere), nullptr);
  EXPECT_EQ(source_->Find("no address", "nor this"), nullptr);
  ASSERT_TRUE(Eventually([&] {
    for (uint32_t port = 1000; port < 1003; ++port) EXPECT_TRUE(PathFrom(port).empty());
    return !PathFrom(1003).empty() && c4p_.asked(1002) >= 2;
  }));
  EXPECT_EQ(source_->known(), 1U);
}

TEST_F(PathSourceTest, ForgetsWhatNobodyAsksFor) {
  GrpcPathSource::Options options = Quick();
  options.forget_after_ms = 50;
  source_ = std::make_unique<GrpcPathSource>(options);
  source_->Find(Port(1000), kThere);
  EXPECT_EQ(source_->size(), 1U);
  EXPECT_TRUE(Eventually([&] { return source_->size() == 0; }));
}

// Ends at any moment, also in the middle of a call to somebody who does not answer.
TEST_F(PathSourceTest, EndsAtOnce) {
  GrpcPathSource::Options options = Quick();
  options.address = [] { return std::string("127.0.0.1:1"); };
  options.call_limit_ms = 60'000;
  source_ = std::make_unique<GrpcPathSource>(options);
  source_->Find(Port(1000), kThere);
  std::this_thread::sleep_for(std::chrono::milliseconds(30));
  const auto begin = std::chrono::steady_clock::now();
  source_.reset();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(3));
}

}  // namespace
}  // namespace c4::c4d
