#include "c4a/control_server.h"

#include <fstream>
#include <gmock/gmock.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include "c4a/options.h"
#include "tests/unit/service/temporary_directory.h"

namespace c4::agent {
namespace {

using testing::HasSubstr;

struct Hello {
  wire::ControlFrame frame;
  wire::ControlHello body;
};

Hello MakeHello(const std::string& segment) {
  Hello hello{};
  hello.frame.header.magic = wire::kControlMagic;
  hello.frame.header.major = wire::kControlMajor;
  hello.frame.header.endian = wire::kEndianMark;
  hello.frame.header.header_bytes = sizeof(wire::ControlFrame);
  hello.frame.header.total_bytes = sizeof hello;
  hello.frame.type = wire::kControlHello;
  strncpy(hello.body.segment_name, segment.c_str(), sizeof hello.body.segment_name - 1);
  return hello;
}

sockaddr_un SocketAddress(const std::string& run_dir) {
  const std::string path = run_dir + "/" + wire::kControlSocketName;
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof address.sun_path - 1);
  return address;
}

// The library's side, by hand.
class Client {
 public:
  explicit Client(const std::string& run_dir) : fd_(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0)) {
    const sockaddr_un address = SocketAddress(run_dir);
    connected_ = connect(fd_, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
  }
  ~Client() { close(fd_); }
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  bool connected() const { return connected_; }
  int fd() const { return fd_; }
  void Send(const void* data, size_t bytes) {
    EXPECT_EQ(send(fd_, data, bytes, MSG_NOSIGNAL), static_cast<ssize_t>(bytes));
  }
  void SendHello(const std::string& segment = "1-a.c4seg") {
    const Hello hello = MakeHello(segment);
    Send(&hello, sizeof hello);
  }
  // The next packet; empty when the other side has closed. Fails after five seconds of silence.
  std::string Receive() {
    pollfd entry{fd_, POLLIN, 0};
    if (poll(&entry, 1, 5000) != 1) {
      ADD_FAILURE() << "no answer";
      return {};
    }
    char packet[wire::kControlMaxBytes];
    const ssize_t bytes = recv(fd_, packet, sizeof packet, 0);
    return bytes > 0 ? std::string(packet, static_cast<size_t>(bytes)) : std::string();
  }
  // Type and level of the next frame.
  std::pair<uint32_t, uint32_t> ReceiveLevel() {
    const std::string packet = Receive();
    wire::HeaderFault fault = wire::HeaderFault::kOk;
    const void* body = wire::ControlBody(packet.data(), packet.size(), 8, &fault);
    if (body == nullptr) return {0, 0};
    wire::ControlFrame frame;
    memcpy(&frame, packet.data(), sizeof frame);
    uint32_t words[2];
    memcpy(words, body, sizeof words);
    return {frame.type, frame.type == wire::kControlWelcome ? words[1] : words[0]};
  }

 private:
  const int fd_;
  bool connected_ = false;
};

class ControlTest : public testing::Test {
 protected:
  ControlOptions Options() {
    return {.run_dir = directory_.path(),
            .agent_version = 7,
            .level = wire::kLevelCoarse,
            .check_files_ms = 20,
            .on_hello = [this](const ControlPeer& peer, const std::string& name) {
              hello_pid_ = peer.pid;
              hello_uid_ = peer.uid;
              if (name == "1-a.c4seg") ++hellos_;
            }};
  }
  bool Serves() {
    Client client(directory_.path());
    if (!client.connected()) return false;
    client.SendHello("x.c4seg");
    return client.ReceiveLevel().first == wire::kControlWelcome;
  }

  test::TemporaryDirectory directory_;
  std::atomic<uint32_t> hello_pid_ = 0;
  std::atomic<uint32_t> hello_uid_ = 0;
  std::atomic<int> hellos_ = 0;
};

TEST_F(ControlTest, WelcomesAndTellsLevels) {
  ControlServer server(Options());
  ASSERT_TRUE(server.Start().ok());
  struct stat status {};
  ASSERT_EQ(stat(directory_.File("agent.sock").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0666u);  // ranks of all users
  Client client(directory_.path());
  client.SendHello();
  EXPECT_EQ(client.ReceiveLevel(), std::pair(uint32_t{wire::kControlWelcome}, uint32_t{wire::kLevelCoarse}));
  EXPECT_EQ(hello_pid_, static_cast<uint32_t>(getpid()));
  EXPECT_EQ(hello_uid_, getuid());
  EXPECT_EQ(hellos_, 1);
  server.SetLevel(wire::kLevelFine);
  EXPECT_EQ(client.ReceiveLevel(), std::pair(uint32_t{wire::kControlLevel}, uint32_t{wire::kLevelFine}));
  Client late(directory_.path());
  late.SendHello();
  EXPECT_EQ(late.ReceiveLevel().second, wire::kLevelFine);
}

TEST_F(ControlTest, WhatIsSaidOfPlansComesWithTheProcessAndAfterAHello) {
  ControlOptions options = Options();
  std::atomic<uint64_t> plan{0};
  std::atomic<int64_t> step{0};
  options.on_plan_answer = [&](uint32_t pid, const wire::ControlPlanAnswer& answer) {
    if (pid == static_cast<uint32_t>(getpid())) plan = answer.plan;
  };
  options.on_plan_step = [&](uint32_t, const wire::ControlPlanStep& told) { step = told.step; };
  ControlServer server(options);
  ASSERT_TRUE(server.Start().ok());
  const auto send = [](Client& client, wire::ControlType type, const auto& body) {
    const auto packet = wire::MakeControlPacket(type, wire::ProcessIdentity{}, body);
    client.Send(&packet, sizeof packet);
  };
  Client silent(directory_.path());
  send(silent, wire::kControlPlanAnswer, wire::ControlPlanAnswer{5, wire::kPlanDone, 0, 0});
  EXPECT_TRUE(silent.Receive().empty());
  Client client(directory_.path());
  client.SendHello();
  client.ReceiveLevel();
  send(client, wire::kControlPlanAnswer, wire::ControlPlanAnswer{6, wire::kPlanDone, 0, 0});
  wire::ControlPlanStep told{};
  told.step = 17;
  send(client, wire::kControlPlanStep, told);
  for (int i = 0; i < 1000 && step == 0; ++i) usleep(5000);
  EXPECT_EQ(plan, 6u);
  EXPECT_EQ(step, 17);
  send(client, wire::kControlPlanStep, uint64_t{1});  // cut short
  EXPECT_TRUE(client.Receive().empty());
}

// As another user than root, on this thread alone.
class AsUser {
 public:
  AsUser() { EXPECT_EQ(syscall(SYS_setresuid, -1, getuid() == 0 ? 65534 : -1, -1), 0); }
  ~AsUser() { EXPECT_EQ(syscall(SYS_setresuid, -1, getuid(), -1), 0); }
  AsUser(const AsUser&) = delete;
  AsUser& operator=(const AsUser&) = delete;
};

// A process that says hello under somebody else's segment would get that one's levels and paths.
TEST_F(ControlTest, NobodySaysHelloForAnotherUsersSegment) {
  if (getuid() != 0) GTEST_SKIP() << "needs root, to be two users";
  ControlServer server(Options());
  ASSERT_TRUE(server.Start().ok());
  ASSERT_EQ(chmod(directory_.path().c_str(), 0755), 0);
  std::ofstream(directory_.File("1-a.c4seg")) << "a segment of root's";
  std::ofstream(directory_.File("2-b.c4seg")) << "a segment of nobody's";
  ASSERT_EQ(chown(directory_.File("2-b.c4seg").c_str(), 65534, 65534), 0);
  const AsUser nobody;
  Client forger(directory_.path());
  forger.SendHello("1-a.c4seg");
  EXPECT_EQ(forger.Receive(), "");
  EXPECT_EQ(hellos_, 0);
  Client own(directory_.path());
  own.SendHello("2-b.c4seg");
  EXPECT_EQ(own.ReceiveLevel().first, wire::kControlWelcome);
}

TEST_F(ControlTest, AUserHasOnlySoManyConnections) {
  ASSERT_EQ(chmod(directory_.path().c_str(), 0755), 0);
  ControlOptions options = Options();
  options.most_of_uid = 3;
  ControlServer server(std::move(options));
  ASSERT_TRUE(server.Start().ok());
  {
    const AsUser user;
    std::vector<std::unique_ptr<Client>> clients;
    for (int i = 0; i < 3; ++i) {
      clients.push_back(std::make_unique<Client>(directory_.path()));
      clients.back()->SendHello();
      EXPECT_EQ(clients.back()->ReceiveLevel().first, wire::kControlWelcome);
    }
    Client fourth(directory_.path());
    EXPECT_EQ(fourth.Receive(), "");
    clients.pop_back();
    // Its place is free again once the server has seen it go.
    const Hello hello = MakeHello("x.c4seg");
    bool served = false;
    for (int i = 0; i < 100 && !served; ++i) {
      Client again(directory_.path());
      pollfd entry{again.fd(), POLLIN, 0};
      char packet[wire::kControlMaxBytes];
      served = send(again.fd(), &hello, sizeof hello, MSG_NOSIGNAL) > 0 && poll(&entry, 1, 1000) == 1 &&
               recv(again.fd(), packet, sizeof packet, 0) > 0;
      if (!served) usleep(10'000);
    }
    EXPECT_TRUE(served);
  }
  if (getuid() == 0) {
    EXPECT_TRUE(Serves());
  }
}

// A connection that cannot be accepted stays readable.
TEST_F(ControlTest, WithoutDescriptorsItWaitsAndDoesNotSpin) {
  ControlServer server(Options());
  ASSERT_TRUE(server.Start().ok());
  rlimit old{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &old), 0);
  const rlimit few = {.rlim_cur = 100, .rlim_max = old.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
  const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  std::vector<int> fill;
  for (int copy = 0; (copy = dup(fd)) >= 0;) fill.push_back(copy);
  const sockaddr_un address = SocketAddress(directory_.path());
  EXPECT_EQ(connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  const auto busy = [] {
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    return static_cast<double>(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           1e-6 * static_cast<double>(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
  };
  const double before = busy();
  usleep(500'000);
  EXPECT_LT(busy() - before, 0.1);
  for (const int copy : fill) close(copy);
  EXPECT_TRUE(Serves());
  close(fd);
  setrlimit(RLIMIT_NOFILE, &old);
}

TEST_F(ControlTest, MalformedFramesCloseThatClientOnly) {
  ControlServer server(Options());
  ASSERT_TRUE(server.Start().ok());
  Client good(directory_.path());
  good.SendHello();
  EXPECT_EQ(good.ReceiveLevel().first, wire::kControlWelcome);
  std::vector<std::string> packets;
  const auto spoil = [&](const auto& change) {
    Hello hello = MakeHello("1-a.c4seg");
    change(&hello);
    packets.emplace_back(reinterpret_cast<const char*>(&hello), sizeof hello);
  };
  packets.emplace_back("x");
  packets.emplace_back(wire::kControlMaxBytes + 1, 'x');
  packets.emplace_back(std::string(200, '\0'));
  spoil([](Hello* h) { h->frame.header.magic ^= 1; });
  spoil([](Hello* h) { h->frame.header.major = 2; });
  spoil([](Hello* h) { h->frame.header.total_bytes += 1; });
  spoil([](Hello* h) { h->frame.header.header_bytes = 0xffffffff; });
  spoil([](Hello* h) { strcpy(h->body.segment_name, "../a.c4seg"); });
  spoil([](Hello* h) { strcpy(h->body.segment_name, "agent.sock"); });
  spoil([](Hello* h) { memset(h->body.segment_name, 'n', sizeof h->body.segment_name); });
  for (size_t bytes = 1; bytes < sizeof(Hello); bytes += 17) {
    const Hello hello = MakeHello("1-a.c4seg");
    packets.emplace_back(reinterpret_cast<const char*>(&hello), bytes);
  }
  for (const std::string& packet : packets) {
    Client bad(directory_.path());
    bad.Send(packet.data(), packet.size());
    EXPECT_EQ(bad.Receive(), "") << packet.size();
  }
  server.SetLevel(wire::kLevelOff);
  EXPECT_EQ(good.ReceiveLevel(), std::pair(uint32_t{wire::kControlLevel}, uint32_t{wire::kLevelOff}));
}

TEST_F(ControlTest, FramesOfALaterVersionAreIgnored) {
  ControlServer server(Options());
  ASSERT_TRUE(server.Start().ok());
  Client client(directory_.path());
  Hello later = MakeHello("1-a.c4seg");
  later.frame.type = 4711;
  client.Send(&later, sizeof later);
  client.SendHello();
  EXPECT_EQ(client.ReceiveLevel().first, wire::kControlWelcome);
}

TEST_F(ControlTest, AClientThatDoesNotReadHoldsNobodyUp) {
  ControlServer server(Options());
  ASSERT_TRUE(server.Start().ok());
  Client asleep(directory_.path());
  asleep.SendHello();
  for (int i = 0; i < 3000; ++i) {
    server.SetLevel(i % 2 == 0 ? wire::kLevelFine : wire::kLevelCoarse);
    if (i % 100 == 0) usleep(1000);
  }
  EXPECT_TRUE(Serves());
}

TEST_F(ControlTest, OneAgentPerRunDirectory) {
  ControlServer first(Options());
  ASSERT_TRUE(first.Start().ok());
  ControlServer second(Options());
  const absl::Status status = second.Start();
  EXPECT_TRUE(absl::IsAlreadyExists(status));
  EXPECT_THAT(std::string(status.message()), HasSubstr(std::to_string(getpid())));
  second.Stop();
  EXPECT_TRUE(Serves());  // the second one did not take anything away from the first
  first.Stop();
  EXPECT_FALSE(std::filesystem::exists(directory_.File("agent.sock")));
  ControlServer third(Options());
  EXPECT_TRUE(third.Start().ok());
}

// What a killed agent leaves: a socket that nobody listens on, and a lock file without a lock.
TEST_F(ControlTest, TheSocketOfADeadAgentIsReplaced) {
  const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  const sockaddr_un address = SocketAddress(directory_.path());
  ASSERT_EQ(bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  close(fd);
  directory_.Write("agent.lock", "99999999\n");
  ControlServer server(Options());
  ASSERT_TRUE(server.Start().ok());
  EXPECT_TRUE(Serves());
}

TEST_F(ControlTest, FilesThatSomebodyRemovedAreMadeAnew) {
  ControlServer server(Options());
  ASSERT_TRUE(server.Start().ok());
  std::filesystem::remove(directory_.File("agent.sock"));
  std::filesystem::remove(directory_.File("agent.lock"));
  bool back = false;
  for (int i = 0; i < 300 && !back; ++i) {
    usleep(10'000);
    back = std::filesystem::exists(directory_.File("agent.sock")) && Serves();
  }
  EXPECT_TRUE(back);
  ControlServer second(Options());
  EXPECT_FALSE(second.Start().ok());
}

TEST_F(ControlTest, ATooLongPathIsAnErrorThatSaysSo) {
  ControlOptions options = Options();
  options.run_dir = directory_.File(std::string(120, 'd'));
  std::filesystem::create_directory(options.run_dir);
  ControlServer server(options);
  EXPECT_THAT(std::string(server.Start().message()), HasSubstr("--run-dir"));
}

TEST(AgentSettings, TheTableHoldsWhatTheManualSays) {
  AgentOptions options = DefaultAgentOptions();
  const auto settings = AgentSettings(&options);
  const auto environment = [](const char* name) -> const char* {
    return std::string_view(name) == "C4_RUN_DIR" ? "/run/c4" : nullptr;
  };
  ASSERT_TRUE(
      service::ParseConfig(AgentProgram(), settings, {"--report-interval-ms", "500"}, environment).ok());
  EXPECT_EQ(options.run_dir, "/run/c4");
  EXPECT_EQ(options.scan_interval_ms, 100);
  EXPECT_EQ(options.report_interval_ms, 500);
  EXPECT_EQ(options.record_level, "coarse");
  EXPECT_EQ(options.keep_dead_s, 600);
  EXPECT_EQ(options.common.http_address, "127.0.0.1:15140");
}

}  // namespace
}  // namespace c4::agent
