// Plans in a job that really learns: micro-batches dealt out anew, workers that change places. The agent is
// played by the test; the loss says whether anything was lost.
#include <arpa/inet.h>
#include <cinttypes>
#include <cstring>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <map>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "tests/service/harness.h"
#include "wire/control.h"

namespace c4::service_test {
namespace {

using ::testing::HasSubstr;
using wire::ControlPlan;
using wire::ControlPlanAnswer;
using wire::WorkerPlace;

// The agent of all ranks.
class PlanAgent {
 public:
  explicit PlanAgent(const std::string& run_dir)
      : listener_(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0)) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    const std::string path = run_dir + "/" + wire::kControlSocketName;
    strncpy(address.sun_path, path.c_str(), sizeof address.sun_path - 1);
    EXPECT_EQ(bind(listener_, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    EXPECT_EQ(listen(listener_, 16), 0);
  }
  ~PlanAgent() {
    for (const auto& [fd, pid] : clients_) close(fd);
    close(listener_);
  }
  PlanAgent(const PlanAgent&) = delete;
  PlanAgent& operator=(const PlanAgent&) = delete;

  // Hears them for a moment.
  void Listen() {
    std::vector<pollfd> entries = {{listener_, POLLIN, 0}};
    for (const auto& [fd, pid] : clients_) entries.push_back({fd, POLLIN, 0});
    if (poll(entries.data(), entries.size(), 50) <= 0) return;
    for (const pollfd& entry : entries) {
      if (entry.revents == 0) continue;
      if (entry.fd == listener_) {
        const int fd = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
        ucred peer{};
        socklen_t bytes = sizeof peer;
        getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &bytes);
        clients_[fd] = peer.pid;
      } else {
        Take(entry.fd);
      }
    }
  }
  void Send(pid_t pid, const ControlPlan& plan) {
    for (const auto& [fd, of] : clients_) {
      if (of != pid) continue;
      const auto packet = wire::MakeControlPacket(wire::kControlPlan, wire::ProcessIdentity{}, plan);
      EXPECT_EQ(send(fd, &packet, sizeof packet, MSG_NOSIGNAL), static_cast<ssize_t>(sizeof packet));
    }
  }

  std::map<pid_t, wire::ControlPlanStep> steps;  // the newest
  std::map<pid_t, std::vector<ControlPlanAnswer>> answers;

 private:
  void Take(int fd) {
    char packet[wire::kControlMaxBytes];
    const ssize_t bytes = recv(fd, packet, sizeof packet, 0);
    if (bytes < static_cast<ssize_t>(sizeof(wire::ControlFrame))) {
      close(fd);
      clients_.erase(fd);
      return;
    }
    wire::ControlFrame frame;
    memcpy(&frame, packet, sizeof frame);
    wire::HeaderFault fault = wire::HeaderFault::kOk;
    const auto size = static_cast<size_t>(bytes);
    if (frame.type == wire::kControlHello) {
      const auto welcome = wire::MakeControlPacket(wire::kControlWelcome, wire::ProcessIdentity{},
                                                   wire::ControlWelcome{1, wire::kLevelCoarse});
      send(fd, &welcome, sizeof welcome, MSG_NOSIGNAL);
    } else if (frame.type == wire::kControlPlanStep) {
      EXPECT_TRUE(wire::ReadControlBody(packet, size, &steps[clients_[fd]], &fault));
    } else if (frame.type == wire::kControlPlanAnswer) {
      ControlPlanAnswer answer{};
      EXPECT_TRUE(wire::ReadControlBody(packet, size, &answer, &fault));
      answers[clients_[fd]].push_back(answer);
    }
  }

  const int listener_;
  std::map<int, pid_t> clients_;
};

std::string FreePort() {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t bytes = sizeof address;
  EXPECT_EQ(bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  EXPECT_EQ(getsockname(fd, reinterpret_cast<sockaddr*>(&address), &bytes), 0);
  close(fd);
  return std::to_string(ntohs(address.sin_port));
}

// Four ranks: two replicas of two stages, eight micro-batches.
class LmPlansTest : public testing::Test {
 protected:
  static constexpr int kRanks = 4;

  void Start(int iterations) {
    const std::string port = FreePort();
    for (int rank = 0; rank < kRanks; ++rank) {
      ranks_.push_back(std::make_unique<Process>(
          std::vector<std::string>{Binary("lm_trainer"), "--pipeline", "2", "--width", "32", "--hidden", "64",
                                   "--sequence", "32", "--batch", "2", "--report-every", "1", "--device-ms",
                                   "10", "--iterations", std::to_string(iterations)},
          std::vector<std::string>{"RANK=" + std::to_string(rank), "WORLD_SIZE=4", "MASTER_ADDR=127.0.0.1",
                                   "MASTER_PORT=" + port, "C4_RUN_DIR=" + scratch_.path(), "C4_ENGINE=host",
                                   "C4_ALGORITHM=ring"},
          scratch_.path() + "/rank-" + std::to_string(rank)));
    }
  }
  bool Until(const std::function<bool()>& holds) {
    return Eventually(Seconds(100), [&] {
      agent_.Listen();
      return holds();
    });
  }
  bool AllWork() {
    return Until([this] { return agent_.steps.size() == kRanks; });
  }
  pid_t PidOf(int rank) const { return ranks_[static_cast<size_t>(rank)]->pid(); }
  // Its last answer to that plan: the state; 0: none yet.
  uint32_t StateOf(int rank, uint64_t plan) {
    uint32_t state = 0;
    for (const ControlPlanAnswer& answer : agent_.answers[PidOf(rank)]) {
      if (answer.plan == plan) state = answer.state;
    }
    return state;
  }
  void End() {
    for (const auto& rank : ranks_) {
      ASSERT_TRUE(Until([&] { return rank->Wait(Seconds(0.01)); })) << "a rank does not end";
      EXPECT_EQ(rank->exit_code(), 0) << rank->Errors();
    }
  }
  static WorkerPlace WorkerOf(int number) {
    WorkerPlace place = {};
    place.dp_rank = static_cast<uint16_t>(number / 2);
    place.stage = static_cast<uint16_t>(number % 2);
    place.dp_size = place.pp_size = 2;
    place.tp_size = place.cp_size = place.vpp_size = 1;
    return place;
  }
  // As long as nobody has changed places.
  static ControlPlan PlanFor(int rank, uint64_t number, uint32_t first_group) {
    const WorkerPlace place = WorkerOf(rank);
    const bool first = place.dp_rank == 0;
    return {number, 2,  8, first ? 0 : first_group, first ? first_group : 8 - first_group, place,
            place,  -1, -1};
  }
  static std::vector<double> LossesOf(const std::string& output) {
    std::vector<double> losses;
    for (size_t at = 0; (at = output.find(": loss ", at)) != std::string::npos; ++at) {
      losses.push_back(std::stod(output.substr(at + 7)));
    }
    return losses;
  }
  static std::string SummaryOf(const std::string& output) {
    const size_t at = output.find(" iterations, loss ");
    return at == std::string::npos ? "" : output.substr(at);
  }
  // Of the same job without plans.
  std::string Undisturbed(int iterations) {
    std::vector<std::string> command = {"run",
                                        "-n",
                                        "4",
                                        "--no-monitor",
                                        "--",
                                        Binary("lm_trainer"),
                                        "--pipeline",
                                        "2",
                                        "--width",
                                        "32",
                                        "--hidden",
                                        "64",
                                        "--sequence",
                                        "32",
                                        "--batch",
                                        "2",
                                        "--report-every",
                                        "1",
                                        "--iterations",
                                        std::to_string(iterations)};
    return RunC4(command, {"C4_ALGORITHM=ring"}, Seconds(100)).output;
  }

  const ScratchDir scratch_;
  PlanAgent agent_{scratch_.path()};
  std::vector<std::unique_ptr<Process>> ranks_;
};

TEST_F(LmPlansTest, MicroBatchesAreDealtOutAnewAndTheLossStaysWhatItWas) {
  Start(25);
  ASSERT_TRUE(AllWork());
  EXPECT_EQ(agent_.steps[PidOf(3)].group_micro_batches, 4u);
  EXPECT_EQ(agent_.steps[PidOf(3)].worker.dp_rank, 1);
  EXPECT_GE(agent_.steps[PidOf(0)].micro_batch_ns, 30'000'000u);  // forward and backward on the device
  for (int rank = 0; rank < kRanks; ++rank) agent_.Send(PidOf(rank), PlanFor(rank, 7, 6));
  for (int rank = 0; rank < kRanks; ++rank) {
    EXPECT_TRUE(Until([&] { return StateOf(rank, 7) == wire::kPlanDone; })) << rank;
  }
  EXPECT_TRUE(Until([&] { return agent_.steps[PidOf(3)].group_micro_batches == 2; }));
  End();
  const std::string output = ranks_[0]->Output();
  EXPECT_THAT(output, HasSubstr("6 of 8 micro-batches in the first replica"));
  const std::vector<double> losses = LossesOf(output);
  const std::vector<double> expected = LossesOf(Undisturbed(25));
  ASSERT_EQ(losses.size(), 25u);
  ASSERT_EQ(expected.size(), 25u);
  for (size_t i = 0; i < 25; ++i) EXPECT_NEAR(losses[i], expected[i], 1e-4) << i;
}

TEST_F(LmPlansTest, WorkersThatChangePlacesGoOnToTheBit) {
  Start(25);
  ASSERT_TRUE(AllWork());
  // The first replica's first stage and the second replica's last.
  for (int rank = 0; rank < kRanks; ++rank) {
    ControlPlan plan = PlanFor(rank, 9, 4);
    plan.strategy = 3;
    if (rank == 0 || rank == 3) {
      const int other = 3 - rank;
      plan = PlanFor(other, 9, 4);
      plan.strategy = 3;
      plan.now = WorkerOf(rank);
      plan.send_to = plan.receive_from = other;
    }
    agent_.Send(PidOf(rank), plan);
  }
  for (int rank = 0; rank < kRanks; ++rank) {
    EXPECT_TRUE(Until([&] { return StateOf(rank, 9) == wire::kPlanDone; })) << rank;
  }
  EXPECT_GT(agent_.answers[PidOf(0)].back().cost_ns, 0u);
  EXPECT_TRUE(Until([&] { return agent_.steps[PidOf(0)].worker.stage == 1; }));
  End();
  const std::string output = ranks_[0]->Output();
  const size_t at = output.find("places changed in ");
  ASSERT_NE(at, std::string::npos) << output;
  uint64_t before = 0;
  uint64_t after = 1;
  ASSERT_EQ(sscanf(output.c_str() + output.find("state ", at), "state %" SCNx64 " before, %" SCNx64, &before,
                   &after),
            2);
  EXPECT_EQ(before, after);
  EXPECT_EQ(SummaryOf(output), SummaryOf(Undisturbed(25)));
  EXPECT_NE(SummaryOf(output), "");
}

TEST_F(LmPlansTest, APlanForAnotherLayoutIsRefusedByNumberAndNobodyFollowsIt) {
  Start(25);
  ASSERT_TRUE(AllWork());
  for (int rank = 0; rank < kRanks; ++rank) {
    ControlPlan plan = PlanFor(rank, 5, 6);
    if (rank == 2) plan.now.dp_size = 4;
    agent_.Send(PidOf(rank), plan);
  }
  ASSERT_TRUE(Until([&] { return StateOf(2, 5) == wire::kPlanRefused; }));
  EXPECT_EQ(agent_.answers[PidOf(2)].back().reason, wire::kPlanLayout);
  EXPECT_TRUE(Until([&] { return StateOf(0, 5) == wire::kPlanHeard; }));
  End();
  EXPECT_NE(StateOf(0, 5), wire::kPlanDone);
  EXPECT_EQ(SummaryOf(ranks_[0]->Output()), SummaryOf(Undisturbed(25)));
}

}  // namespace
}  // namespace c4::service_test
