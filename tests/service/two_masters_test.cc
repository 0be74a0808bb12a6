// C4D and C4P together, over gRPC: a simulated job whose connections ask C4P for their ports, a link that
// becomes slow, C4D's experiment, C4P's moves, the verdict. The library, the agents and the network are
// simulated; both masters, what goes between them, and who may call whom are real.
#include <algorithm>
#include <array>
#include <chrono>
#include <thread>

#include "c4d_master/c4d_handler.h"
#include "c4d_master/intervention/grpc_mover.h"
#include "c4p_master/grpc_service.h"
#include "gmock/gmock.h"
#include "grpcpp/impl/service_type.h"
#include "gtest/gtest.h"
#include "service/grpc_server.h"
#include "service/state_thread.h"
#include "service/verdict_json.h"
#include "tests/support/told_verdicts.h"
#include "tests/support/training_sim.h"
#include "tests/unit/c4p_master/cluster.h"
#include "tests/unit/service/key_files.h"

namespace c4 {
namespace {

using c4d::C4dHandler;
using c4p::Cluster;
using simulation::Fault;
using simulation::TrainingShape;
using simulation::TrainingSim;
using ::testing::Contains;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr int kHosts = 4;
constexpr int64_t kStepNs = 250'000'000;
constexpr uint32_t kDataPort = 9000;

// Simulated time stands still until C4P has answered.
class PromptMover final : public c4d::Mover {
 public:
  explicit PromptMover(c4d::GrpcMover::Options options) : inner_(std::move(options)) {}
  void Send(const c4d::MoveOrder& order) override {
    orders.push_back(order);
    asked_ = true;
    inner_.Send(order);
  }
  std::optional<c4d::MoveAnswer> Take() override {
    if (!asked_) return std::nullopt;
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    while (std::chrono::steady_clock::now() < until) {
      if (std::optional<c4d::MoveAnswer> answer = inner_.Take()) {
        asked_ = false;
        return answer;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    ADD_FAILURE() << "no answer of any kind came";
    asked_ = false;
    return std::nullopt;
  }
  std::vector<c4d::MoveOrder> orders;

 private:
  c4d::GrpcMover inner_;
  bool asked_ = false;
};

class TwoMastersTest : public ::testing::Test {
 protected:
  static TrainingShape Shape() {
    TrainingShape shape;
    shape.tensor = 1;
    shape.pipeline = 1;
    shape.data = kHosts;
    shape.queue_pairs = 1;
    shape.hosts_per_leaf = 1;
    shape.spines = 2;
    return shape;
  }

  void Start(const c4p::HandlerOptions& options = {}, const std::string& job = "job") {
    key_ = test::WriteKey(directory_);
    cluster_ =
        std::make_unique<Cluster>(c4p::FakeSpec{.leaves = kHosts, .spines = 2, .hosts_per_leaf = 1}, options);
    c4p_thread_ = std::make_unique<service::StateThread>("c4p-state", absl::Milliseconds(1000), [] {});
    const service::Gate gate({.credentials = test::WithKey(key_, {.role = service::Role::kPathMaster})});
    c4p_service_ = c4p::MakeGrpcService(&cluster_->handler, c4p_thread_.get(), gate, clock_);
    const std::array<grpc::Service*, 1> services = {c4p_service_.get()};
    auto server = service::GrpcServer::Start("127.0.0.1:0", gate, services);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    OnC4p([&] { cluster_->Run(3000); });
    for (int rank = 0; rank < kHosts; ++rank) {
      OnC4p([&] {
        v1::AgentToC4p message;
        *message.mutable_request() = cluster_->RequestOf(rank, (rank + 1) % kHosts, Name(rank), 1);
        message.mutable_request()->set_destination_port(kDataPort);
        cluster_->requests[Name(rank)] = {rank, message.request()};
        cluster_->Say(rank, message);
      });
    }
    OnC4p([&] { cluster_->Run(3000); });
    Follow();
    StartC4d(job);
  }
  void StartC4d(const std::string& job = "job") {
    handler_.reset();
    mover_.reset();
    const service::Credentials credentials =
        test::WithKey(key_, {.role = service::Role::kJobMaster, .job = job});
    const auto address = [address = server_->address()]() -> absl::StatusOr<service::MasterAddress> {
      return service::MasterAddress(address);
    };
    paths_ = std::make_unique<c4d::GrpcPathSource>(
        c4d::GrpcPathSource::Options{.address = address, .credentials = credentials, .look_every_ms = 2});
    mover_ = std::make_unique<PromptMover>(c4d::GrpcMover::Options{
        .job = "job", .address = address, .credentials = credentials, .call_limit_ms = 20'000});
    c4d::HandlerOptions options;
    options.job = "job";
    options.master_epoch = ++epoch_;
    options.intervene = true;
    handler_ = std::make_unique<C4dHandler>(options, &store_, &metrics_, paths_.get(), mover_.get());
  }
  void TearDown() override {
    handler_.reset();
    mover_.reset();
    paths_.reset();
    if (server_ != nullptr) server_->Shutdown(absl::Milliseconds(100));
    if (c4p_thread_ != nullptr) c4p_thread_->Stop();
  }

  static std::string Name(int rank) { return "c" + std::to_string(rank); }
  void OnC4p(const std::function<void()>& task) {
    ASSERT_TRUE(c4p_thread_->Call(task, absl::Seconds(30)).ok());
  }
  // "10.0.0.3:123" of the simulated job is host 2's NIC of the fabric.
  std::string OnFabric(const std::string& text) {
    for (int host = 0; host < kHosts; ++host) {
      const std::string own = sim_.nic(static_cast<uint32_t>(host)) + ":";
      if (text.starts_with(own))
        return service::IpText(cluster_->fabric.Address(host)) + ":" + text.substr(own.size());
    }
    return text;
  }
  // The library goes over to what C4P advises, and says so.
  void Follow() {
    for (int rank = 0; rank < kHosts; ++rank) {
      OnC4p([&] {
        const v1::PathAnswer& answer = cluster_->answers[Name(rank)];
        const uint32_t port = answer.paths_size() == 0 ? 0 : answer.paths(0).source_port();
        if (port == 0 || port == ports_[rank]) return;
        const int spine = cluster_->Spines(Name(rank))[0];
        const std::string nic = sim_.nic(static_cast<uint32_t>(rank));
        const std::string to = sim_.nic(static_cast<uint32_t>((rank + 1) % kHosts)) + ":9000";
        const std::string from =
            nic + ":" + std::to_string(ports_[rank] == 0 ? FirstPort(rank) : ports_[rank]);
        EXPECT_NE(sim_.MoveTo(from, to, static_cast<uint32_t>(spine), port), "") << from << " " << to;
        ports_[rank] = port;
        cluster_->Use(Name(rank));
      });
    }
  }
  // Of the simulated job's own choice.
  uint32_t FirstPort(int rank) {
    TrainingSim probe(Shape(), 11);
    for (const v1::TelemetryBatch& batch : probe.Step()) {
      for (const v1::QueuePairState& pair : batch.processes(0).queue_pairs()) {
        if (batch.processes(0).rank_label() != rank || pair.direction() != v1::DIRECTION_SEND) continue;
        return static_cast<uint32_t>(std::stoi(pair.local().substr(pair.local().rfind(':') + 1)));
      }
    }
    return 0;
  }
  void Pass(double seconds, const std::function<bool()>& until = nullptr) {
    for (int step = 0; step < static_cast<int>(seconds * 4); ++step) {
      OnC4p([&] { cluster_->Run(static_cast<int>(kStepNs / 1'000'000)); });
      clock_.Advance(kStepNs);
      Follow();
      for (v1::TelemetryBatch& batch : Batches()) {
        (void)handler_->Ingest(batch, {sim_.now_ns(), sim_.unix_ns()});
      }
      AwaitPaths();
      handler_->Tick({sim_.now_ns(), sim_.unix_ns()});
      if (until && until()) return;
    }
  }
  std::vector<v1::TelemetryBatch> Batches() {
    std::vector<v1::TelemetryBatch> batches = sim_.Step();
    for (v1::TelemetryBatch& batch : batches) {
      for (v1::ProcessReport& process : *batch.mutable_processes()) {
        for (v1::QueuePairState& pair : *process.mutable_queue_pairs()) {
          pair.set_local(OnFabric(pair.local()));
          pair.set_remote(OnFabric(pair.remote()));
        }
      }
    }
    return batches;
  }
  // In simulated time C4D has its paths at once.
  void AwaitPaths() {
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    for (int rank = 0; rank < kHosts; ++rank) {
      const std::string from =
          service::IpText(cluster_->fabric.Address(rank)) + ":" + std::to_string(ports_[rank]);
      const std::string to = service::IpText(cluster_->fabric.Address((rank + 1) % kHosts)) + ":9000";
      while (paths_->Find(from, to) == nullptr && std::chrono::steady_clock::now() < until) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
    }
  }
  // That all of host 1's queue pairs take: the detectors see a slow NIC.
  void SlowLink() {
    Pass(40);
    std::vector<int> spines;
    OnC4p([&] {
      for (int rank = 0; rank < kHosts; ++rank) spines.push_back(cluster_->Spines(Name(rank))[0]);
    });
    ASSERT_EQ(spines[0], spines[1]) << "what enters host 1 and what leaves it";
    spine_ = spines[1];
    sim_.Inject(Fault::kSlowLink, 1 * Shape().spines + static_cast<uint32_t>(spine_));
  }
  std::vector<v1::Verdict> All() const { return AllVerdicts(*handler_); }
  std::string Story() const { return StoryOf(*handler_); }
  std::optional<v1::Intervention> Experiment() const { return NewestExperiment(*handler_); }
  bool IsOver() const { return IsExperimentOver(*handler_); }
  // As `c4 paths` shows it.
  v1::ListPathsReply Paths() {
    v1::ListPathsReply reply;
    OnC4p([&] { reply = cluster_->handler.ListPaths({}, cluster_->now_ns); });
    return reply;
  }
  size_t Moved() {
    size_t moved = 0;
    const v1::ListPathsReply paths = Paths();
    for (const v1::ConnectionStatus& connection : paths.connections()) {
      for (const v1::QueuePairStatus& pair : connection.queue_pairs()) moved += pair.moved().empty() ? 0 : 1;
    }
    return moved;
  }
  std::vector<std::string> History() {
    std::vector<std::string> texts;
    const v1::ListPathsReply paths = Paths();
    for (const v1::MoveEntry& entry : paths.moves()) texts.push_back(entry.text());
    return texts;
  }

  test::TemporaryDirectory directory_;
  std::string key_;
  TrainingSim sim_{Shape(), 11};
  service::FakeClock clock_{1'000'000'000};
  std::unique_ptr<Cluster> cluster_;
  std::unique_ptr<service::StateThread> c4p_thread_;
  std::unique_ptr<grpc::Service> c4p_service_;
  std::unique_ptr<service::GrpcServer> server_;
  c4d::VerdictStore store_{":memory:"};
  service::Metrics metrics_;
  std::unique_ptr<c4d::GrpcPathSource> paths_;
  std::unique_ptr<PromptMover> mover_;
  std::unique_ptr<C4dHandler> handler_;
  std::map<int, uint32_t> ports_;
  uint64_t epoch_ = 0;
  int spine_ = 0;
};

TEST_F(TwoMastersTest, ALinkThatLooksLikeANicIsNamedAndTheBooksAreTrue) {
  Start();
  SlowLink();
  size_t most = 0;
  Pass(90, [&] {
    most = std::max(most, Moved());
    return IsOver();
  });
  ASSERT_TRUE(IsOver()) << Story();
  Pass(1);
  ASSERT_FALSE(All().empty());
  EXPECT_EQ(All()[0].culprit().kind(), v1::CULPRIT_KIND_LINK) << Story();
  EXPECT_EQ(All()[0].culprit().cable(), "leaf1-spine" + std::to_string(spine_)) << Story();
  EXPECT_EQ(All()[0].confirmed_by(), "moved") << Story();
  EXPECT_GE(most, 2U) << "c4 paths shows what is moved: a suspect and a control";
  EXPECT_EQ(Moved(), 0U) << "and when it is over, nothing";
  EXPECT_THAT(History(), Contains(HasSubstr("stays on its new way")));
  EXPECT_THAT(History(), Contains(HasSubstr("moved back to")));
  // Where C4P's books have the queue pairs is where they send.
  const v1::ListPathsReply paths = Paths();
  for (const v1::ConnectionStatus& connection : paths.connections()) {
    const v1::QueuePairStatus& pair = connection.queue_pairs(0);
    EXPECT_EQ(pair.tuple().source_port(), pair.advised_port()) << connection.connection();
    OnC4p([&] {
      const auto truth = cluster_->fabric.PathOf(Cluster::TupleOf(pair.tuple())).links;
      EXPECT_EQ(truth, std::vector<std::string>(pair.links().begin(), pair.links().end()));
    });
  }
}

TEST_F(TwoMastersTest, WhereTheOperatorForbidsItNothingMoves) {
  c4p::HandlerOptions options;
  options.moves.allowed = false;
  Start(options);
  SlowLink();
  Pass(60);
  ASSERT_TRUE(Experiment().has_value()) << Story();
  EXPECT_EQ(Experiment()->outcome(), "refused");
  EXPECT_THAT(Experiment()->lines(), Contains(HasSubstr("operator")));
  EXPECT_NE(All()[0].confirmed_by(), "moved");
  EXPECT_THAT(History(), Not(IsEmpty()));
  EXPECT_THAT(History(), Each(HasSubstr("refused")));
}

// The master of another job, whatever it calls the job: its token says whose it is.
TEST_F(TwoMastersTest, TheMasterOfAnotherJobMovesNothing) {
  Start({}, "another");
  SlowLink();
  Pass(60);
  ASSERT_TRUE(Experiment().has_value()) << Story();
  EXPECT_EQ(Experiment()->outcome(), "refused") << Story();
  EXPECT_THAT(Experiment()->lines(), Contains(HasSubstr("are not moved for")));
  EXPECT_THAT(History(), IsEmpty());
}

TEST_F(TwoMastersTest, C4dStartedAgainInTheMiddleHasItMovedBack) {
  Start();
  SlowLink();
  std::vector<int> before;
  OnC4p([&] {
    for (int rank = 0; rank < kHosts; ++rank) before.push_back(cluster_->Spines(Name(rank))[0]);
  });
  Pass(90, [&] { return Moved() > 0; });
  ASSERT_GT(Moved(), 0U) << Story();
  Pass(2);
  StartC4d();
  Pass(3);
  EXPECT_EQ(Moved(), 0U);
  EXPECT_EQ(Experiment()->outcome(), "interrupted") << Story();
  for (int rank = 0; rank < kHosts; ++rank) {
    OnC4p([&] { EXPECT_EQ(cluster_->Spines(Name(rank))[0], before[static_cast<size_t>(rank)]); });
  }
}

// C4D is gone for good: C4P does not wait for it.
TEST_F(TwoMastersTest, C4dGoneForGoodC4pMovesBackByItself) {
  Start();
  SlowLink();
  Pass(90, [&] { return Moved() > 0; });
  ASSERT_GT(Moved(), 0U) << Story();
  handler_.reset();
  mover_.reset();
  for (int second = 0; second < 120 && Moved() > 0; ++second) {
    OnC4p([&] { cluster_->Run(1000); });
    Follow();
  }
  EXPECT_EQ(Moved(), 0U);
  EXPECT_THAT(History(), Contains(HasSubstr("nobody ended the experiment")));
}

TEST_F(TwoMastersTest, C4pGoneInTheMiddleTheVerdictIsAsItWas) {
  Start();
  SlowLink();
  Pass(90, [&] { return Moved() > 0; });
  ASSERT_GT(Moved(), 0U) << Story();
  server_->Shutdown(absl::Milliseconds(50));
  const auto pass = [&](int steps) {
    for (int step = 0; step < steps && !IsOver(); ++step) {
      for (v1::TelemetryBatch& batch : Batches()) {
        (void)handler_->Ingest(batch, {sim_.now_ns(), sim_.unix_ns()});
      }
      handler_->Tick({sim_.now_ns(), sim_.unix_ns()});
    }
  };
  pass(4 * 200);
  ASSERT_TRUE(IsOver()) << Story();
  // What was measured holds; only nobody could be told that it is over, and that is said.
  EXPECT_THAT(Experiment()->lines(), Contains(HasSubstr("C4P was not told"))) << Story();
}

}  // namespace
}  // namespace c4
