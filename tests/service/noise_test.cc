// Random bytes at every door of the daemons, the master's and the agent's TCP ports and the agent's control
// socket: both go on, the same processes, and still name a stopped rank.
#include <arpa/inet.h>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <random>
#include <set>
#include <signal.h>
#include <sstream>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "tests/service/harness.h"
#include "wire/control.h"

namespace c4::service_test {
namespace {

namespace fs = std::filesystem;

// The IPv4 and IPv6 ports on which a process listens.
std::set<uint16_t> PortsOf(pid_t pid) {
  std::set<std::string> sockets;
  std::error_code error;
  for (const fs::directory_entry& entry :
       fs::directory_iterator("/proc/" + std::to_string(pid) + "/fd", error)) {
    const std::string target = fs::read_symlink(entry.path(), error).string();
    if (target.starts_with("socket:[")) sockets.insert(target.substr(8, target.size() - 9));
  }
  std::set<uint16_t> ports;
  for (const char* table : {"/proc/net/tcp", "/proc/net/tcp6"}) {
    std::ifstream file(table);
    std::string line;
    while (std::getline(file, line)) {
      std::istringstream words(line);
      std::string number, local, remote, state, queues, timer, retransmits, uid, timeout, inode;
      words >> number >> local >> remote >> state >> queues >> timer >> retransmits >> uid >> timeout >>
          inode;
      constexpr char kListen[] = "0A";
      if (state != kListen || sockets.count(inode) == 0) continue;
      ports.insert(static_cast<uint16_t>(std::stoul(local.substr(local.rfind(':') + 1), nullptr, 16)));
    }
  }
  return ports;
}

class Noise {
 public:
  explicit Noise(uint64_t seed) : random_(seed) {}

  std::string Bytes(size_t most) {
    std::string bytes(1 + random_() % most, '\0');
    for (char& byte : bytes) byte = static_cast<char>(random_());
    return bytes;
  }

  // Something that begins as it should, and is then cut, changed or followed by noise.
  std::string Damaged(const std::string& right) {
    std::string bytes = right;
    for (uint64_t i = random_() % 4; i > 0 && !bytes.empty(); --i) {
      bytes[random_() % bytes.size()] = static_cast<char>(random_());
    }
    if (random_() % 2 == 0) bytes.resize(random_() % (bytes.size() + 1));
    return random_() % 2 == 0 ? bytes : bytes + Bytes(3000);
  }

 private:
  std::mt19937_64 random_;
};

// Sends, waits a moment for an answer, hangs up. What the other side does about it is its own affair.
void Send(int fd, const std::string& bytes) {
  (void)!send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
  pollfd wait{fd, POLLIN, 0};
  poll(&wait, 1, 20);
  close(fd);
}

bool SendTcp(uint16_t port, const std::string& bytes) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) {
    close(fd);
    return false;
  }
  Send(fd, bytes);
  return true;
}

bool SendControl(const std::string& path, const std::string& bytes) {
  const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  snprintf(address.sun_path, sizeof address.sun_path, "%s", path.c_str());
  if (connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) {
    close(fd);
    return false;
  }
  Send(fd, bytes);
  return true;
}

std::string Hello() {
  struct {
    wire::ControlFrame frame;
    wire::ControlHello hello;
  } packet{};
  packet.frame.header.magic = wire::kControlMagic;
  packet.frame.header.major = wire::kControlMajor;
  packet.frame.header.endian = wire::kEndianMark;
  packet.frame.header.header_bytes = sizeof(wire::ControlFrame);
  packet.frame.header.total_bytes = sizeof packet;
  packet.frame.type = wire::kControlHello;
  snprintf(packet.hello.segment_name, sizeof packet.hello.segment_name, "../../etc/passwd");
  return {reinterpret_cast<const char*>(&packet), sizeof packet};
}

TEST(NoiseTest, BothDaemonsGoOn) {
  constexpr uint64_t kSeed = 20;
  constexpr int kRounds = 25;
  RunningJob job(4, {},
                 {Binary("all_reduce_perf"), "-b", "256K", "-e", "256K", "-N", "0", "--pause-ms", "10"});
  ASSERT_TRUE(job.AwaitAtWork(20, Seconds(20)));
  const pid_t master = job.DaemonPid("c4d_master");
  const pid_t agent = job.DaemonPid("c4a");
  std::set<uint16_t> ports = PortsOf(master);
  EXPECT_EQ(ports.size(), 2U) << "gRPC and HTTP of the master";
  const std::set<uint16_t> of_agent = PortsOf(agent);
  EXPECT_EQ(of_agent.size(), 1U) << "HTTP of the agent";
  ports.insert(of_agent.begin(), of_agent.end());
  std::string socket_path;
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(job.base_dir())) {
    if (entry.path().filename() == wire::kControlSocketName) socket_path = entry.path();
  }
  ASSERT_FALSE(socket_path.empty());

  printf("seed %llu\n", static_cast<unsigned long long>(kSeed));
  Noise noise(kSeed);
  const std::string http =
      "GET /v1/verdicts?cleared=true HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\n";
  // The preface of HTTP/2, empty SETTINGS, and the head of a HEADERS frame that says 4 KiB.
  const std::string grpc = std::string("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n") + std::string(3, '\0') +
                           std::string("\x04") + std::string(5, '\0') +
                           std::string("\0\x10\0\x01\x04\0\0\0\x01", 9);
  for (int round = 0; round < kRounds; ++round) {
    for (const uint16_t port : ports) {
      EXPECT_TRUE(SendTcp(port, noise.Bytes(4000))) << port;
      EXPECT_TRUE(SendTcp(port, noise.Damaged(round % 2 == 0 ? http : grpc))) << port;
    }
    EXPECT_TRUE(SendControl(socket_path, noise.Bytes(wire::kControlMaxBytes)));
    EXPECT_TRUE(SendControl(socket_path, noise.Damaged(Hello())));
  }

  EXPECT_EQ(job.DaemonPid("c4d_master"), master);
  EXPECT_EQ(job.DaemonPid("c4a"), agent);
  EXPECT_EQ(job.Status()["ranks"].size(), 4U);
  EXPECT_EQ(RunningJob::Open(job.Verdicts()).size(), 0U);
  const pid_t stopped = job.Counters(2).pid;
  ASSERT_EQ(kill(stopped, SIGSTOP), 0);
  EXPECT_TRUE(Eventually(Seconds(15), [&] {
    const std::vector<Json> open = RunningJob::Open(job.Verdicts());
    return open.size() == 1 && open[0]["state"] == "confirmed" && open[0]["culprit"]["pid"] == stopped;
  }));
  kill(stopped, SIGCONT);
}

}  // namespace
}  // namespace c4::service_test
