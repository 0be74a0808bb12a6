// Another user of the node: what he plants in the shared directory of masters, and what he can reach.
#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "c4/v1/c4d.grpc.pb.h"
#include "service/channel.h"
#include "service/grpc_server.h"
#include "tests/security/attack.h"

namespace c4::service_test {
namespace {

using testing::HasSubstr;

constexpr uid_t kMallory = 23456;

// As Mallory, in a process of his own; what he could do is its exit status.
template <typename Act>
int AsMallory(const Act& act) {
  const pid_t child = fork();
  if (child == 0) {
    if (setresgid(kMallory, kMallory, kMallory) != 0 || setresuid(kMallory, kMallory, kMallory) != 0)
      _exit(99);
    _exit(act());
  }
  int status = 0;
  return waitpid(child, &status, 0) == child && WIFEXITED(status) ? WEXITSTATUS(status) : 98;
}

// A master that notes what it is shown.
class Thief final : public v1::C4d::Service {
 public:
  grpc::Status StreamTelemetry(grpc::ServerContext* context,
                               grpc::ServerReaderWriter<v1::TelemetryReply, v1::TelemetryBatch>*) override {
    ++calls;
    if (context->client_metadata().contains("authorization")) ++tokens;
    return {grpc::StatusCode::UNAVAILABLE, "gone"};
  }
  std::atomic<int> calls = 0;
  std::atomic<int> tokens = 0;
};

class OtherUsersTest : public testing::Test {
 protected:
  void SetUp() override {
    if (geteuid() != 0) GTEST_SKIP() << "only root can play two users";
    masters_ = scratch_.path() + "/masters";
    ASSERT_EQ(chmod(scratch_.path().c_str(), 01777), 0);
    ASSERT_EQ(mkdir(masters_.c_str(), 01777), 0);
    ASSERT_EQ(chmod(masters_.c_str(), 01777), 0);
  }
  void Plant(const std::string& file, const std::string& content, mode_t mode = 0644) const {
    const std::string path = masters_ + "/" + file;
    std::ofstream(path) << content;
    ASSERT_EQ(chmod(path.c_str(), mode), 0);
    ASSERT_EQ(chown(path.c_str(), kMallory, kMallory), 0);
  }
  static std::string Entry(const std::string& job, const std::string& address) {
    return "{\"job\":\"" + job + "\",\"address\":\"" + address + "\",\"epoch\":1,\"pid\":1,\"host\":\"x\"}";
  }
  ScratchDir scratch_;
  std::string masters_;
};

TEST_F(OtherUsersTest, APlantedEntryNeitherStopsAJobNorTakesItsTelemetry) {
  Thief thief;
  grpc::Service* const services[] = {&thief};
  const auto server = service::GrpcServer::Start("127.0.0.1:0", service::Gate(), services);
  ASSERT_TRUE(server.ok());
  Attack("squatting: the entry of a job in the directory of masters");
  Attack("squatting: an entry that all may write");
  Attack("squatting: an entry that nobody else may read");
  Attack("squatting: the entry of the path master");
  Attack("garbage: a torn entry in the directory of masters");
  for (const mode_t mode : {0644, 0666, 0600}) {
    Plant("wanted.json", Entry("wanted", (*server)->address()), mode);
    Plant("c4p.json", Entry("c4p", (*server)->address()), mode);
    Plant("other.json", "{\"job\": \"foo", mode);
    Process job({Binary("c4"), "run", "-n", "2", "--job", "wanted", "--run-dir", scratch_.path(), "--c4p",
                 "--", Binary("all_reduce_perf"), "-b", "64K", "-e", "64K", "-N", "0", "--pause-ms", "5"},
                {}, scratch_.path() + "/job");
    Json status;
    EXPECT_TRUE(Eventually(Seconds(20),
                           [&] {
                             const CommandResult asked =
                                 RunC4({"status", "--json", "--job", "wanted", "--run-dir", scratch_.path()});
                             status = Json::parse(asked.output, nullptr, false);
                             return status.is_object() && status.contains("ranks") &&
                                    status["ranks"].size() == 2;
                           }))
        << status.dump(2) << job.Errors();
    EXPECT_THAT(RunC4({"paths", "--run-dir", scratch_.path()}).errors, Not(HasSubstr("did not answer")));
    job.Signal(SIGINT);
    EXPECT_TRUE(job.Wait(Seconds(20)));
  }
  EXPECT_EQ(thief.calls, 0);
}

// Root's agent with the cluster's token; the job is Mallory's own, so that his entry is believed for it.
TEST_F(OtherUsersTest, RootsAgentGivesHisMasterNothingThatIsGoodElsewhere) {
  Thief thief;
  grpc::Service* const services[] = {&thief};
  const auto server = service::GrpcServer::Start("127.0.0.1:0", service::Gate(), services);
  ASSERT_TRUE(server.ok());
  const std::string key = scratch_.path() + "/cluster.key";
  ASSERT_EQ(RunC4({"pki", "key", key}).exit_code, 0);
  C4_ATTACK("stolen token: a job's own master asks root's agent for the cluster's");
  // He names root's own key file as that of his master.
  Plant("his.json", "{\"job\":\"his\",\"address\":\"" + (*server)->address() +
                        "\",\"epoch\":1,\"key_file\":\"" + key + "\"}");
  Process agent(
      {Binary("c4a"), "--run-dir", scratch_.path(), "--http-address", "127.0.0.1:0", "--key-file", key}, {},
      scratch_.path() + "/agent");
  ASSERT_TRUE(
      Eventually(Seconds(10), [&] { return std::filesystem::exists(scratch_.path() + "/agent.sock"); }));
  ASSERT_EQ(mkdir((scratch_.path() + "/w").c_str(), 0777), 0);
  const std::string library =
      std::filesystem::path(Binary("c4")).parent_path().parent_path().string() + "/lib";
  EXPECT_EQ(AsMallory([&] {
              setenv("LD_LIBRARY_PATH", library.c_str(), 1);
              setenv("C4_RUN_DIR", scratch_.path().c_str(), 1);
              setenv("C4_JOB_ID", "his", 1);
              setenv("C4_ENGINE", "host", 1);
              const std::string program = Binary("all_reduce_perf");
              const std::string command = program + " -b 64K -e 64K -n 200 --pause-ms 20 >/dev/null 2>&1";
              return system(command.c_str()) == 0 ? 0 : 1;
            }),
            0);
  EXPECT_TRUE(Eventually(Seconds(10), [&] { return thief.calls > 0; })) << agent.Errors();
  EXPECT_EQ(thief.tokens, 0);
}

TEST_F(OtherUsersTest, HeReachesNeitherTheKeyNorTheMaster) {
  AttackedJob attacked;
  const std::string key = attacked.run_dir() + "/job.key";
  const std::string address = attacked.http_address();
  Attack("stolen token: another user reads the job's key");
  Attack("role confusion: another user of the node reads what is the job's");
  Attack("alert abuse: another user of the node silences an alert");
  EXPECT_EQ(AsMallory([&] { return access(key.c_str(), R_OK) == 0 ? 1 : 0; }), 0) << "he reads the job's key";
  const auto code_of = [&](const std::string& method, const std::string& path) {
    return AsMallory([&] {
      const std::string answer =
          HttpAsk(address, method + " " + path + " HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
      return answer.starts_with("HTTP/1.1 401") ? 41 : answer.starts_with("HTTP/1.1 200") ? 20 : 0;
    });
  };
  EXPECT_EQ(code_of("GET", "/healthz"), 20);
  for (const char* path : {"/v1/status", "/v1/verdicts", "/v1/alerts"}) EXPECT_EQ(code_of("GET", path), 41);
  EXPECT_EQ(code_of("POST", "/v1/alerts/silences?match=rule=slow&seconds=9"), 41);
  EXPECT_THAT(attacked.Log("c4d_master"), HasSubstr("a token is required here"));
}

}  // namespace
}  // namespace c4::service_test
