// From a library's path selector through the control socket and the relay to masters in this process that
// answer, correct, order probes, stand still and die.
#include "c4a/path_relay.h"

#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <sys/eventfd.h>

#include "c4/v1/c4p.grpc.pb.h"
#include "ccl/base/knobs.h"
#include "ccl/pathsel/pathsel.h"
#include "service/grpc_server.h"
#include "tests/unit/service/temporary_directory.h"

namespace c4::agent {
namespace {

using service::Credentials;

class FakeC4p final : public v1::C4p::Service {
 public:
  explicit FakeC4p(const std::string& address = "127.0.0.1:0", uint64_t epoch = 1) : epoch_(epoch) {
    grpc::Service* const services[] = {this};
    auto server = service::GrpcServer::Start(address, Credentials(), services);
    EXPECT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }
  ~FakeC4p() override { server_->Shutdown(absl::ZeroDuration()); }

  grpc::Status Session(grpc::ServerContext*,
                       grpc::ServerReaderWriter<v1::C4pToAgent, v1::AgentToC4p>* stream) override {
    v1::AgentToC4p message;
    v1::C4pToAgent reply;
    while (stream->Read(&message)) {
      {
        const absl::MutexLock lock(&mutex_);
        messages_.push_back(message);
        stream_ = stream;
      }
      if (message.has_hello() && refusals_ > 0) {
        --refusals_;
        reply.Clear();
        reply.set_refused("host host7 has an agent in session");
        stream->Write(reply);
        continue;
      }
      if (message.has_hello()) {
        reply.Clear();
        reply.mutable_welcome()->set_master_epoch(epoch_);
        stream->Write(reply);
      }
      if (!message.has_request() || !answers_) continue;
      reply.Clear();
      reply.mutable_answer()->set_connection(message.request().connection());
      reply.mutable_answer()->set_epoch(1);
      for (uint32_t i = 0; i < message.request().queue_pairs(); ++i) {
        v1::QueuePairPath* const path = reply.mutable_answer()->add_paths();
        path->set_index(i);
        path->set_source_port(20000 + i);
      }
      stream->Write(reply);
    }
    const absl::MutexLock lock(&mutex_);
    stream_ = nullptr;
    return grpc::Status::OK;
  }

  const std::string& address() const { return server_->address(); }
  void Answer(bool answers) { answers_ = answers; }
  void Refuse(int hellos) { refusals_ = hellos; }
  bool Send(const v1::C4pToAgent& message) {
    const absl::MutexLock lock(&mutex_);
    return stream_ != nullptr && stream_->Write(message);
  }
  bool Heard(const std::function<bool(const v1::AgentToC4p&)>& wanted) {
    const absl::MutexLock lock(&mutex_);
    return std::any_of(messages_.begin(), messages_.end(), wanted);
  }
  // The first message for which it is true, within five seconds.
  v1::AgentToC4p WaitFor(const std::function<bool(const v1::AgentToC4p&)>& wanted) {
    const absl::MutexLock lock(&mutex_);
    const auto there = [&]() {
      mutex_.AssertReaderHeld();
      return std::any_of(messages_.begin(), messages_.end(), wanted);
    };
    if (!mutex_.AwaitWithTimeout(absl::Condition(&there), absl::Seconds(5))) {
      ADD_FAILURE() << "no such message among " << messages_.size();
      return {};
    }
    return *std::find_if(messages_.begin(), messages_.end(), wanted);
  }

 private:
  const uint64_t epoch_;
  absl::Mutex mutex_;
  std::atomic<bool> answers_ = true;
  std::atomic<int> refusals_ = 0;
  std::vector<v1::AgentToC4p> messages_ ABSL_GUARDED_BY(mutex_);
  grpc::ServerReaderWriter<v1::C4pToAgent, v1::AgentToC4p>* stream_ ABSL_GUARDED_BY(mutex_) = nullptr;
  std::unique_ptr<service::GrpcServer> server_;
};

SocketAddress Address(const std::string& text) {
  SocketAddress address;
  EXPECT_TRUE(ParseAddress(text, &address).ok());
  return address;
}

class PathRelayTest : public testing::Test {
 protected:
  PathRelayTest() : monitor_(directory_.path(), {4, 4, 2, 16}, JobIdentity()) {
    wake_.Reset(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
    setenv("C4_PATH_WAIT_MS", "3000", 1);
    ForgetKnobs();
  }
  ~PathRelayTest() override {
    selector_.reset();
    if (server_ != nullptr) server_->Stop();
    relay_.reset();
    unsetenv("C4_PATH_WAIT_MS");
    ForgetKnobs();
  }

  void SetMaster(const std::string& address) { SetMasters({address}); }
  void SetMasters(const std::vector<std::string>& addresses) {
    const absl::MutexLock lock(&mutex_);
    masters_ = addresses;
  }
  void Start() {
    PathRelayOptions options;
    options.host = "host7";
    options.agent_epoch = 5;
    options.find_master = [this]() -> absl::StatusOr<std::string> {
      const absl::MutexLock lock(&mutex_);
      if (masters_.empty()) return absl::NotFoundError("none here");
      return masters_[asked_++ % masters_.size()];
    };
    {
      const absl::MutexLock lock(&mutex_);
      options.places = std::max<size_t>(1, masters_.size());
    }
    options.nics = [] {
      v1::NicInfo nic;
      nic.set_address("10.0.0.2");
      return std::vector<v1::NicInfo>{nic};
    };
    options.answer = [this](ControlClientId client, const wire::ControlPathAnswer& answer) {
      server_->Answer(client, answer);
    };
    options.lease_interval = absl::Milliseconds(200);
    options.first_pause = options.longest_pause = absl::Milliseconds(20);
    relay_ = std::make_unique<PathRelay>(std::move(options));
    ASSERT_TRUE(relay_->Start().ok());
    ControlOptions control;
    control.run_dir = directory_.path();
    control.on_path_ask = [this](auto client, const auto& peer, const auto& ask) {
      relay_->Ask(client, peer, ask);
    };
    control.on_path_use = [this](auto client, const auto& peer, const auto& use) {
      relay_->Use(client, peer, use);
    };
    control.on_gone = [this](auto client) { relay_->Gone(client); };
    server_ = std::make_unique<ControlServer>(control);
    ASSERT_TRUE(server_->Start().ok());
    selector_ = std::make_unique<PathSelector>(&monitor_);
    ASSERT_TRUE(selector_->Start().ok());
  }
  void AwaitSession() {
    for (int i = 0; i < 500 && !relay_->connected(); ++i) absl::SleepFor(absl::Milliseconds(10));
    ASSERT_TRUE(relay_->connected());
  }
  uint64_t Open(PathAdvice* advice) {
    PathQuestion question;
    question.communicator_id = 9;
    question.from_rank = 1;
    question.to_rank = 2;
    question.queue_pairs = 2;
    question.ends = {{Address("10.0.0.2:0"), Address("10.1.0.2:4000")}};
    return selector_->Open(question, wake_.get(), advice);
  }

  test::TemporaryDirectory directory_;
  absl::Mutex mutex_;
  std::vector<std::string> masters_ ABSL_GUARDED_BY(mutex_);
  size_t asked_ ABSL_GUARDED_BY(mutex_) = 0;
  Monitor monitor_;
  Fd wake_;
  std::unique_ptr<PathRelay> relay_;
  std::unique_ptr<ControlServer> server_;
  std::unique_ptr<PathSelector> selector_;
};

TEST_F(PathRelayTest, AsksUsesProbesAndLeasesGoThrough) {
  FakeC4p master;
  SetMaster(master.address());
  Start();
  AwaitSession();
  const v1::AgentToC4p hello = master.WaitFor([](const auto& m) { return m.has_hello(); });
  EXPECT_EQ(hello.hello().host(), "host7");
  EXPECT_EQ(hello.hello().nics(0).address(), "10.0.0.2");
  PathAdvice advice;
  const uint64_t connection = Open(&advice);
  ASSERT_EQ(advice.epoch, 1u);
  EXPECT_EQ(advice.paths[1].source_port, 20001);
  const v1::PathRequest request = master.WaitFor([](const auto& m) { return m.has_request(); }).request();
  EXPECT_EQ(request.ends(0).source(), "10.0.0.2");
  EXPECT_EQ(request.ends(0).destination(), "10.1.0.2");
  EXPECT_EQ(request.destination_port(), 4000u);
  EXPECT_EQ(request.protocol(), v1::IP_PROTOCOL_TCP);

  wire::ControlPathInUse path{ToEndpoint(Address("10.0.0.2:20000")), ToEndpoint(Address("10.1.0.2:4000")),
                              wire::kPathLive, 0, 0};
  selector_->Use(connection, 1, {path});
  const v1::PathUse use = master.WaitFor([](const auto& m) { return m.has_use(); }).use();
  EXPECT_EQ(use.connection(), request.connection());
  EXPECT_EQ(use.queue_pairs(0).tuple().source_port(), 20000u);
  master.WaitFor([&](const auto& m) {
    return m.has_lease() && m.lease().connections_size() == 1 &&
           m.lease().connections(0) == request.connection();
  });

  v1::C4pToAgent message;
  message.mutable_probe()->set_order(3);
  message.mutable_probe()->set_first_ttl(1);
  message.mutable_probe()->set_last_ttl(2);
  v1::FiveTuple* const tuple = message.mutable_probe()->add_tuples();
  tuple->set_protocol(v1::IP_PROTOCOL_UDP);
  tuple->set_source("127.0.0.1");
  tuple->set_source_port(28123);
  tuple->set_destination("127.0.0.1");
  tuple->set_destination_port(28124);
  ASSERT_TRUE(master.Send(message));
  const v1::ProbeReport report = master.WaitFor([](const auto& m) { return m.has_probes(); }).probes();
  EXPECT_EQ(report.order(), 3u);
  EXPECT_TRUE(report.last());
  ASSERT_EQ(report.results_size(), 1);
  EXPECT_EQ(report.results(0).tuple().source_port(), 28123u);
  EXPECT_EQ(report.results(0).hops(0).status(), v1::HOP_STATUS_REACHED);

  // What cannot be probed is reported as done, with nothing learnt.
  message.mutable_probe()->set_order(4);
  message.mutable_probe()->mutable_tuples(0)->set_source("nowhere");
  ASSERT_TRUE(master.Send(message));
  EXPECT_TRUE(master.WaitFor([](const auto& m) { return m.has_probes() && m.probes().order() == 4; })
                  .probes()
                  .last());

  message.Clear();
  message.mutable_answer()->set_connection(request.connection());
  message.mutable_answer()->set_epoch(2);
  message.mutable_answer()->add_paths()->set_source_port(30000);
  ASSERT_TRUE(master.Send(message));
  for (int i = 0; i < 500 && !selector_->TakeCorrection(connection, &advice); ++i) {
    absl::SleepFor(absl::Milliseconds(10));
  }
  EXPECT_EQ(advice.epoch, 2u);
  EXPECT_EQ(advice.paths[0].source_port, 30000);

  selector_->Close(connection);
  master.WaitFor([](const auto& m) { return m.has_use() && m.use().queue_pairs_size() == 0; });
  EXPECT_EQ(relay_->connections(), 0u);
}

// Its host's former session is not known to be dead yet.
TEST_F(PathRelayTest, AnAgentThatIsRefusedComesAgain) {
  FakeC4p master;
  master.Refuse(3);
  SetMaster(master.address());
  Start();
  AwaitSession();
  PathAdvice advice;
  Open(&advice);
  EXPECT_EQ(advice.epoch, 1u);
}

TEST_F(PathRelayTest, WithoutAMasterTheAnswerIsThatNobodyCanAdvise) {
  Start();
  PathAdvice advice;
  const absl::Time began = absl::Now();
  Open(&advice);
  EXPECT_LT(absl::Now() - began, absl::Seconds(2));
  EXPECT_EQ(advice.epoch, 0u);
}

TEST_F(PathRelayTest, AMasterThatComesBackElsewhereIsToldAll) {
  auto master = std::make_unique<FakeC4p>();
  SetMaster(master->address());
  Start();
  AwaitSession();
  PathAdvice advice;
  const uint64_t used = Open(&advice);
  const uint64_t asked = Open(&advice);
  EXPECT_NE(used, asked);
  wire::ControlPathInUse path{ToEndpoint(Address("10.0.0.2:20000")), ToEndpoint(Address("10.1.0.2:4000")),
                              wire::kPathLive, 0, 0};
  selector_->Use(used, 1, {path});
  master->WaitFor([](const auto& m) { return m.has_use(); });
  master.reset();
  FakeC4p second;
  SetMaster(second.address());
  second.WaitFor([](const auto& m) { return m.has_hello(); });
  const v1::AgentToC4p use = second.WaitFor([](const auto& m) { return m.has_use(); });
  EXPECT_EQ(use.use().epoch(), 1u);
  EXPECT_EQ(use.use().request().to_rank(), 2);
  second.WaitFor([](const auto& m) { return m.has_request(); });
}

// A place where nobody listens, as those who stand by do.
std::string Nobody() {
  return FakeC4p().address();
}

TEST_F(PathRelayTest, OfSeveralTheOneThatAnswersIsTakenAndTheNextWhenItGoes) {
  auto first = std::make_unique<FakeC4p>("127.0.0.1:0", 10);
  auto second = std::make_unique<FakeC4p>("127.0.0.1:0", 11);
  const std::string elsewhere = second->address();
  second.reset();
  SetMasters({Nobody(), first->address(), elsewhere});
  Start();
  AwaitSession();
  PathAdvice advice;
  const uint64_t connection = Open(&advice);
  ASSERT_EQ(advice.epoch, 1u);
  wire::ControlPathInUse path{ToEndpoint(Address("10.0.0.2:20000")), ToEndpoint(Address("10.1.0.2:4000")),
                              wire::kPathLive, 0, 0};
  selector_->Use(connection, 1, {path});
  first->WaitFor([](const auto& m) { return m.has_use(); });
  first.reset();
  second = std::make_unique<FakeC4p>(elsewhere, 11);
  EXPECT_EQ(second->WaitFor([](const auto& m) { return m.has_use(); }).use().epoch(), 1u);
}

// The one with the later epoch leads; one of before that comes back to life does not count, though it is the
// first that answers, and none of its answers is passed on.
TEST_F(PathRelayTest, ALeaderOfBeforeIsRefused) {
  auto leader = std::make_unique<FakeC4p>("127.0.0.1:0", 11);
  SetMaster(leader->address());
  Start();
  AwaitSession();
  const std::string place = leader->address();
  FakeC4p former("127.0.0.1:0", 10);
  SetMaster(former.address());
  leader.reset();
  former.WaitFor([](const auto& m) { return m.has_hello(); });
  absl::SleepFor(absl::Milliseconds(200));
  EXPECT_FALSE(relay_->connected());
  setenv("C4_PATH_WAIT_MS", "300", 1);
  ForgetKnobs();
  PathAdvice advice;
  Open(&advice);
  EXPECT_EQ(advice.epoch, 0u) << "nobody who is believed can advise";
  EXPECT_FALSE(former.Heard([](const auto& m) { return m.has_lease(); }));
  leader = std::make_unique<FakeC4p>(place, 12);
  SetMasters({former.address(), place});
  AwaitSession();
  leader->WaitFor([](const auto& m) { return m.has_request(); });
}

TEST_F(PathRelayTest, AProcessThatGoesReleasesItsConnections) {
  FakeC4p master;
  SetMaster(master.address());
  Start();
  AwaitSession();
  PathAdvice advice;
  Open(&advice);
  const std::string name =
      master.WaitFor([](const auto& m) { return m.has_request(); }).request().connection();
  selector_.reset();
  const v1::AgentToC4p use = master.WaitFor([](const auto& m) { return m.has_use(); });
  EXPECT_EQ(use.use().connection(), name);
  EXPECT_EQ(use.use().queue_pairs_size(), 0);
}

}  // namespace
}  // namespace c4::agent
