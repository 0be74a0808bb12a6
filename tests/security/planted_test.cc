// What another user of the node plants under names that the daemons use, and what strangers send to the doors
// that the floods leave out.
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "c4/v1/c4d.grpc.pb.h"
#include "c4/v1/c4p.grpc.pb.h"
#include "service/channel.h"
#include "tests/security/attack.h"
#include "tests/unit/service/certificates.h"

namespace c4::service_test {
namespace {

namespace fs = std::filesystem;
using service::Role;
using testing::HasSubstr;

constexpr uid_t kMallory = 23456;

// A process of another user that does one thing and then stays, until the object goes.
class Mallory {
 public:
  explicit Mallory(const std::function<int()>& act) {
    int ends[2];
    EXPECT_EQ(pipe2(ends, O_CLOEXEC), 0);
    child_ = fork();
    if (child_ == 0) {
      unsigned char done = 99;
      if (setresgid(kMallory, kMallory, kMallory) == 0 && setresuid(kMallory, kMallory, kMallory) == 0)
        done = static_cast<unsigned char>(act());
      if (write(ends[1], &done, 1) == 1) pause();
      _exit(0);
    }
    unsigned char done = 98;
    EXPECT_EQ(read(ends[0], &done, 1), 1);
    result = done;
    close(ends[0]);
    close(ends[1]);
  }
  ~Mallory() {
    kill(child_, SIGKILL);
    waitpid(child_, nullptr, 0);
  }
  Mallory(const Mallory&) = delete;
  Mallory& operator=(const Mallory&) = delete;
  int result = 0;

 private:
  pid_t child_ = -1;
};

class PlantedTest : public testing::Test {
 protected:
  void SetUp() override {
    if (geteuid() != 0) GTEST_SKIP() << "only root can play two users";
    ASSERT_EQ(chmod(scratch_.path().c_str(), 01777), 0);
    ASSERT_EQ(mkdir(RunDir().c_str(), 01777), 0);
    ASSERT_EQ(chmod(RunDir().c_str(), 01777), 0);
  }
  std::string File(const std::string& name) const { return scratch_.path() + "/" + name; }
  std::string RunDir() const { return File("run"); }
  std::unique_ptr<Process> StartAgent() const {
    return std::make_unique<Process>(
        std::vector<std::string>{Binary("c4a"), "--run-dir", RunDir(), "--http-address", "127.0.0.1:0"},
        std::vector<std::string>{}, File("agent"));
  }
  // It answers, whatever was planted.
  bool Listens() const {
    return Eventually(Seconds(10), [&] {
      const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
      sockaddr_un address{};
      address.sun_family = AF_UNIX;
      const std::string path = RunDir() + "/agent.sock";
      path.copy(address.sun_path, sizeof address.sun_path - 1);
      struct stat status {};
      const bool listens = stat(path.c_str(), &status) == 0 && status.st_uid == 0 &&
                           connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
      close(fd);
      return listens;
    });
  }
  ScratchDir scratch_;
};

TEST_F(PlantedTest, ALinkAsLockFileLeadsNowhere) {
  C4_ATTACK("squatting: a symbolic link as the agent's lock file");
  std::ofstream(File("victim")) << "precious";
  const Mallory mallory(
      [&] { return symlink(File("victim").c_str(), (RunDir() + "/agent.lock").c_str()) == 0 ? 0 : 1; });
  ASSERT_EQ(mallory.result, 0);
  const auto agent = StartAgent();
  EXPECT_TRUE(Listens()) << agent->Errors();
  std::string kept;
  std::ifstream(File("victim")) >> kept;
  EXPECT_EQ(kept, "precious");
  EXPECT_THAT(agent->Errors(), HasSubstr("had been planted by uid 23456"));
}

TEST_F(PlantedTest, ALockThatIsHeldKeepsNoAgentOut) {
  C4_ATTACK("squatting: a lock file of another user, locked");
  const Mallory mallory([&] {
    const int fd = open((RunDir() + "/agent.lock").c_str(), O_RDWR | O_CREAT, 0666);
    return flock(fd, LOCK_EX) == 0 ? 0 : 1;
  });
  ASSERT_EQ(mallory.result, 0);
  const auto agent = StartAgent();
  EXPECT_TRUE(Listens()) << agent->Errors();
  EXPECT_THAT(agent->Errors(), HasSubstr("had been planted by uid 23456"));
}

TEST_F(PlantedTest, TheAgentsLockIsNobodyElses) {
  C4_ATTACK("squatting: another user locks the agent's own lock file");
  const auto agent = StartAgent();
  ASSERT_TRUE(Listens());
  const Mallory mallory([&] { return open((RunDir() + "/agent.lock").c_str(), O_RDONLY) < 0 ? 0 : 1; });
  EXPECT_EQ(mallory.result, 0) << "he can open it, and hold its lock before the next agent";
}

TEST_F(PlantedTest, ATakenSocketNameIsTakenBack) {
  C4_ATTACK("squatting: the name of agent.sock");
  const Mallory mallory([&] {
    const int fd = socket(AF_UNIX, SOCK_SEQPACKET, 0);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    (RunDir() + "/agent.sock").copy(address.sun_path, sizeof address.sun_path - 1);
    return bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 && listen(fd, 5) == 0
               ? 0
               : 1;
  });
  ASSERT_EQ(mallory.result, 0);
  const auto agent = StartAgent();
  EXPECT_TRUE(Listens()) << agent->Errors();
}

TEST_F(PlantedTest, ARunDirectoryOfSomebodyElseIsTold) {
  C4_ATTACK("squatting: the run directory itself");
  ASSERT_EQ(chown(RunDir().c_str(), kMallory, kMallory), 0);
  const auto agent = StartAgent();
  EXPECT_TRUE(Listens());
  EXPECT_THAT(agent->Errors(), HasSubstr("belongs to uid 23456, who can remove and replace"));
}

TEST_F(PlantedTest, ASecretThatOthersCanReadIsRefused) {
  C4_ATTACK("stolen token: token and key files that others can read");
  for (const char* option : {"--token-file", "--key-file"}) {
    std::ofstream(File("secret")) << "c4t1.e30.AAAA\n";
    ASSERT_EQ(chmod(File("secret").c_str(), 0644), 0);
    const CommandResult refused = RunC4({"status", "--master", "127.0.0.1:1", option, File("secret")});
    EXPECT_NE(refused.exit_code, 0);
    EXPECT_THAT(refused.errors, HasSubstr("chmod 600 " + File("secret")));
  }
}

// By name of its program: what a job may choose, and everybody reads.
TEST_F(PlantedTest, NoNameReachesTheTerminalAsItIs) {
  C4_ATTACK("terminal: escape sequences in a program's and a job's name");
  const std::string program = File("perf\x1b[2J\x1b]0;owned\x07");
  fs::copy_file(Binary("all_reduce_perf"), program);
  const std::string library = fs::path(Binary("c4")).parent_path().parent_path().string() + "/lib";
  const CommandResult refused = RunC4({"run", "-n", "1", "--job", "j\x1b[31m", "--", "true"});
  EXPECT_THAT(refused.errors, testing::AllOf(HasSubstr("control characters"), Not(HasSubstr("\x1b"))));
  RunningJob job(2, {}, {program, "-b", "64K", "-e", "64K", "-N", "0", "--pause-ms", "5"},
                 {"LD_LIBRARY_PATH=" + library});
  ASSERT_TRUE(job.AwaitAtWork(5, Seconds(20)));
  for (const std::vector<std::string>& words :
       std::vector<std::vector<std::string>>{{"status"},
                                             {"status", "--json"},
                                             {"verdicts", "--all"},
                                             {"matrix"},
                                             {"status", "--job", "no\x1b[1msuch"}}) {
    std::vector<std::string> command = words;
    command.insert(command.end(), {"--run-dir", job.base_dir()});
    const CommandResult shown = RunC4(command);
    EXPECT_EQ((shown.output + shown.errors).find('\x1b'), std::string::npos)
        << words[0] << shown.output << shown.errors;
  }
  for (const char* log : {"/c4a.log", "/c4d_master.log"}) {
    std::stringstream text;
    text << std::ifstream(job.LogDir() + log).rdbuf();
    EXPECT_FALSE(text.str().empty());
    EXPECT_EQ(text.str().find('\x1b'), std::string::npos) << log;
  }
}

// It is asked by its address, or in the moment before agents have found it.
TEST_F(PlantedTest, AMasterWithoutAgentsDoesNotSayThatAllIsWell) {
  C4_ATTACK("second master: one that no agent has found is asked for verdicts");
  Process master({Binary("c4d_master"), "--job", "j", "--listen", "127.0.0.1:0", "--http-address",
                  "127.0.0.1:0", "--c4p", "off", "--directory", File("masters")},
                 {}, File("second"));
  ASSERT_TRUE(Eventually(Seconds(10), [&] { return fs::exists(File("masters/j.json")); })) << master.Errors();
  const std::string address = Json::parse(std::ifstream(File("masters/j.json")))["address"];
  const CommandResult asked = RunC4({"verdicts", "--master", address});
  EXPECT_EQ(asked.exit_code, 3);
  EXPECT_THAT(asked.output, HasSubstr("knows nothing of the job"));
  EXPECT_EQ(asked.output.find("no open verdict"), std::string::npos);
}

TEST_F(PlantedTest, AnotherUsersMasterOfTheJobIsNotAsked) {
  C4_ATTACK("second master: another user's, of the same job, in the same directory");
  AttackedJob attacked;
  ASSERT_EQ(chmod(attacked.job().base_dir().c_str(), 01777), 0);
  const std::string masters = attacked.job().base_dir() + "/masters";
  const Mallory mallory([&] {
    const pid_t child = fork();
    if (child != 0) return child > 0 ? 0 : 1;
    prctl(PR_SET_PDEATHSIG, SIGTERM);  // it goes with him, and takes its entry along
    const std::string program = Binary("c4d_master");
    const std::string job = attacked.name();
    const std::string store = File("his.db");
    const std::string audit = File("his.audit");
    const std::string log = File("his.log");
    execl(program.c_str(), program.c_str(), "--job", job.c_str(), "--listen", "127.0.0.1:0", "--http-address",
          "127.0.0.1:0", "--c4p", "off", "--directory", masters.c_str(), "--store", store.c_str(), "--audit",
          audit.c_str(), "--log-file", log.c_str(), nullptr);
    _exit(1);
  });
  EXPECT_TRUE(Eventually(Seconds(10), [&] {
    for (const auto& entry : fs::directory_iterator(masters)) {
      struct stat status {};
      if (stat(entry.path().c_str(), &status) == 0 && status.st_uid == kMallory) return true;
    }
    return false;
  })) << "his master did not publish itself";
  attacked.StoppedRankIsNamedDuring([] { std::this_thread::sleep_for(std::chrono::milliseconds(50)); });
}

TEST_F(PlantedTest, GarbageAtTheAgent) {
  C4_ATTACK("garbage: frames at agent.sock");
  AttackedJob attacked;
  const std::string path = attacked.run_dir() + "/agent.sock";
  unsigned seed = 7;
  attacked.StoppedRankIsNamedDuring([&] {
    const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    path.copy(address.sun_path, sizeof address.sun_path - 1);
    EXPECT_EQ(connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
    std::string frame(static_cast<size_t>(1 + rand_r(&seed) % 4000), '\0');
    for (char& c : frame) c = static_cast<char>(rand_r(&seed));
    (void)send(fd, frame.data(), frame.size(), MSG_NOSIGNAL);
    close(fd);
  });
}

TEST_F(PlantedTest, OversizeAndBrokenRequestsAtTheMaster) {
  Attack("oversize: an HTTP head of a megabyte");
  Attack("oversize: a request line of 64 KiB");
  Attack("garbage: an HTTP request that smuggles a second one");
  AttackedJob attacked;
  const std::string long_head =
      "GET /healthz HTTP/1.1\r\nHost: localhost\r\nX: " + std::string(1 << 20, 'x') + "\r\n\r\n";
  const std::string long_line = "GET /" + std::string(64 << 10, 'y') + " HTTP/1.1\r\nHost: localhost\r\n\r\n";
  const std::string smuggled =
      "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\nPOST /v1/smon/sessions HTTP/1.1\r\nHost: "
      "localhost\r\n\r\n";
  attacked.StoppedRankIsNamedDuring([&] {
    EXPECT_THAT(HttpAsk(attacked.http_address(), long_head), Not(testing::StartsWith("HTTP/1.1 200")));
    EXPECT_THAT(HttpAsk(attacked.http_address(), long_line), Not(testing::StartsWith("HTTP/1.1 200")));
    const std::string answer = HttpAsk(attacked.http_address(), smuggled);
    EXPECT_EQ(answer.find("HTTP/1.1", 5), std::string::npos) << answer;
  });
}

// The path master asks who an agent is before it believes whose host it speaks for.
TEST_F(PlantedTest, NobodyTakesAHostsPaths) {
  Attack("path hijack: a session for a host under another host's token");
  Attack("path hijack: a session under a reader's token");
  Attack("path hijack: a session without a token");
  const std::string key_file = File("cluster.key");
  ASSERT_EQ(RunC4({"pki", "key", key_file}).exit_code, 0);
  std::stringstream text;
  text << std::ifstream(key_file).rdbuf();
  const auto keys = service::ParseKeys(text.str(), key_file);
  ASSERT_TRUE(keys.ok());
  Process master({Binary("c4p_master"), "--listen", "127.0.0.1:0", "--http-address", "127.0.0.1:0",
                  "--directory", File("masters"), "--key-file", key_file},
                 {}, File("c4p"));
  const std::string entry = File("masters/c4p.json");
  ASSERT_TRUE(Eventually(Seconds(10), [&] { return fs::exists(entry); })) << master.Errors();
  const auto stub = v1::C4p::NewStub(service::MakeChannel(Json::parse(std::ifstream(entry))["address"], {}));
  for (const std::string& authorization :
       {std::string(), BearerOf(keys->front(), {.role = Role::kReader}),
        BearerOf(keys->front(), {.role = Role::kAgent, .host = "mallory"})}) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(5));
    if (!authorization.empty()) context.AddMetadata("authorization", authorization);
    const auto stream = stub->Session(&context);
    v1::AgentToC4p message;
    message.mutable_hello()->set_host("victim");
    stream->Write(message);
    v1::C4pToAgent answer;
    while (stream->Read(&answer)) continue;
    EXPECT_THAT(stream->Finish().error_code(),
                testing::AnyOf(grpc::StatusCode::PERMISSION_DENIED, grpc::StatusCode::UNAUTHENTICATED));
  }
  EXPECT_THAT(master.Errors(), HasSubstr("victim"));
}

// Over the wire: c4 itself would not even try with such a certificate.
TEST_F(PlantedTest, CertificatesOutOfTheirTimeAreRefused) {
  Attack("expired certificate: an operator's, at the master");
  Attack("expired certificate: an operator's that is not valid yet");
  const test::Certificate authority("authority");
  const test::Certificate server("server", &authority, {.uri = "c4://role/job-master/j"});
  const auto put = [&](const std::string& name, const std::string& text) {
    std::ofstream(File(name)) << text;
    chmod(File(name).c_str(), 0600);
  };
  put("ca.pem", authority.CertificatePem());
  put("server.pem", server.CertificatePem());
  put("server.key", server.KeyPem());
  Process master({Binary("c4d_master"), "--job", "j", "--listen", "127.0.0.1:0", "--http-address",
                  "127.0.0.1:0", "--c4p", "off", "--directory", File("masters"), "--tls-ca", File("ca.pem"),
                  "--tls-cert", File("server.pem"), "--tls-key", File("server.key")},
                 {}, File("tls"));
  const std::string entry = File("masters/j.json");
  ASSERT_TRUE(Eventually(Seconds(10), [&] { return fs::exists(entry); })) << master.Errors();
  const std::string address = Json::parse(std::ifstream(entry))["address"];
  const auto ask = [&](long from_s, long to_s) {
    const test::Certificate own("ann", &authority,
                                {.uri = "c4://role/operator/ann", .from_s = from_s, .to_s = to_s});
    const auto channel = grpc::CreateChannel(
        address, grpc::SslCredentials({authority.CertificatePem(), own.KeyPem(), own.CertificatePem()}));
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(5));
    v1::GetStatusReply reply;
    return v1::C4d::NewStub(channel)->GetStatus(&context, {}, &reply).ok();
  };
  EXPECT_TRUE(ask(-3600, 3600)) << "the way itself does not work: " << master.Errors();
  EXPECT_FALSE(ask(-7200, -3600));
  EXPECT_FALSE(ask(3600, 7200));
  EXPECT_THAT(master.Errors(), HasSubstr("certificate"));
}

}  // namespace
}  // namespace c4::service_test
