#include "tests/security/attack.h"

#include <arpa/inet.h>
#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <signal.h>
#include <sstream>
#include <sys/socket.h>
#include <unistd.h>

#include "service/address.h"

namespace c4::service_test {
namespace {

constexpr int kRanks = 4;
constexpr int kVictim = 2;
// Longer than a verdict settles whose communicator is not seen whole.
constexpr Seconds kClears(15);
// A promise of the product.
constexpr Seconds kSuspectLimit(5);

std::string Whole(const std::string& path) {
  std::stringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

}  // namespace

AttackedJob::AttackedJob(const std::vector<std::string>& more_options,
                         const std::function<void(const std::string& base_dir)>& prepare)
    : job_(kRanks, more_options,
           {Binary("all_reduce_perf"), "-b", "256K", "-e", "256K", "-N", "0", "--pause-ms", "5"}, {},
           prepare) {
  EXPECT_TRUE(job_.AwaitAtWork(20, Seconds(20)));
  master_ = job_.MasterEntry();
}

std::string AttackedJob::run_dir() const {
  return std::filesystem::path(master_["key_file"].get<std::string>()).parent_path().string();
}

service::TokenKey AttackedJob::Key() const {
  const auto keys = service::ParseKeys(Whole(run_dir() + "/job.key"), "job.key");
  EXPECT_TRUE(keys.ok()) << keys.status();
  return keys.ok() ? keys->front() : service::TokenKey();
}

std::string AttackedJob::Log(const std::string& daemon) const {
  return Whole(job_.LogDir() + "/" + daemon + ".log");
}

std::string AttackedJob::Audit() const {
  return Whole(AuditFile());
}

void AttackedJob::StoppedRankIsNamedDuring(const std::function<void()>& attack) {
  std::atomic<bool> over = false;
  std::atomic<int> attacks = 0;
  std::thread attacker([&] {
    while (!over) {
      attack();
      ++attacks;
    }
  });
  EXPECT_TRUE(Eventually(Seconds(20), [&] { return attacks > 0; }));
  const pid_t pid = job_.Counters(kVictim).pid;
  if (pid <= 0) {
    over = true;
    attacker.join();
    FAIL() << "rank " << kVictim << " has no segment any more";
  }
  const auto onset = Clock::now();
  EXPECT_EQ(kill(pid, SIGSTOP), 0);
  const bool named = Eventually(Seconds(15), [&] {
    const std::vector<Json> open = RunningJob::Open(job_.Verdicts());
    for (const Json& verdict : open) EXPECT_EQ(verdict["culprit"]["rank"], kVictim) << verdict.dump(2);
    return !open.empty();
  });
  EXPECT_TRUE(named) << job_.Status().dump(2) << Log("c4d_master");
  EXPECT_LE(Seconds(Clock::now() - onset), kSuspectLimit);
  EXPECT_EQ(kill(pid, SIGCONT), 0);
  EXPECT_TRUE(Eventually(kClears, [&] { return RunningJob::Open(job_.Verdicts()).empty(); }))
      << job_.Verdicts().dump(2);
  over = true;
  attacker.join();
}

std::string Attack(const std::string& name) {
  EXPECT_NE(name.find(": "), std::string::npos) << "\"" << name << "\": the form is \"KIND: what exactly\"";
  printf("attack: %s\n", name.c_str());
  return name;
}

std::string BearerOf(const service::TokenKey& key, const service::Identity& identity, int64_t from_s,
                     int64_t to_s) {
  const int64_t now_s = time(nullptr);
  const auto token = service::IssueToken(
      key, {.identity = identity, .not_before_s = now_s + from_s, .expires_s = now_s + to_s});
  EXPECT_TRUE(token.ok()) << token.status();
  return "Bearer " + token.value_or("");
}

service::TokenKey NewKey() {
  return service::ParseKeys(*service::NewKeyLine(), "new")->front();
}

std::string HttpAsk(const std::string& address, const std::string& request) {
  const auto parts = service::ParseHostPort(address);
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(parts->port);
  inet_pton(AF_INET, parts->host.c_str(), &to.sin_addr);
  const timeval limit = {.tv_sec = 10, .tv_usec = 0};
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  std::string answer;
  if (connect(fd, reinterpret_cast<sockaddr*>(&to), sizeof to) == 0 &&
      send(fd, request.data(), request.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(request.size())) {
    std::array<char, 4096> part;
    for (ssize_t n = 0; (n = recv(fd, part.data(), part.size(), 0)) > 0;)
      answer.append(part.data(), static_cast<size_t>(n));
  }
  close(fd);
  return answer;
}

size_t PeakKib(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/status");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("VmHWM:")) return std::stoul(line.substr(6));
  }
  return 0;
}

std::string Script(const std::string& name) {
  const char* const source = getenv("C4_SOURCE_DIR");  // NOLINT(concurrency-mt-unsafe): one thread
  return std::string(source == nullptr ? "." : source) + "/tests/security/" + name;
}

}  // namespace c4::service_test
