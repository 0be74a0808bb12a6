// daemon_load --grpc HOST:PORT --call NAME | --http HOST:PORT [--path PATH]: requests at a rate from many
// connections, for as long as told, and what they met. Of a daemon that a process of this machine runs
// (--pid) its memory is looked at as well, once a second.
//
// gRPC: so many connections that stay, a call with an empty request on one after the other, each when its
// moment has come; --key-file signs an operator's token. HTTP: a connection a request, as these servers want
// it, so many at a time. One line of JSON at the end.
#include <algorithm>
#include <arpa/inet.h>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <memory>
#include <mutex>
#include <sstream>
#include <stdexcept>
#include <string>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include <CLI/CLI.hpp>

#include "service/address.h"
#include "service/channel.h"
#include "service/token.h"

namespace {

using Clock = std::chrono::steady_clock;

struct Options {
  std::string grpc;
  std::string call = "c4.v1.C4d/ListVerdicts";
  std::string key_file;
  std::string job;
  std::string http;
  std::string path = "/healthz";
  int pid = 0;
  int connections = 200;
  double rate = 10'000;
  double seconds = 60;
};

// Of all requests.
class Tally {
 public:
  void Add(double ms, bool good) {
    const std::lock_guard lock(mutex_);
    if (good) {
      ms_.push_back(ms);
    } else {
      ++failed_;
    }
  }
  void Refuse(const std::string& why) {
    const std::lock_guard lock(mutex_);
    if (why_.empty()) why_ = why;
  }
  std::vector<double> ms_;
  uint64_t failed_ = 0;
  std::string why_;

 private:
  std::mutex mutex_;
};

double ResidentMib(int pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/statm");
  double total = 0;
  double resident = 0;
  file >> total >> resident;
  return resident * static_cast<double>(sysconf(_SC_PAGESIZE)) / (1 << 20);
}

double MsSince(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

// An operator's, for ten minutes; empty without a key.
std::string Authorization(const Options& options) {
  if (options.key_file.empty()) return "";
  std::stringstream text;
  text << std::ifstream(options.key_file).rdbuf();
  const auto keys = c4::service::ParseKeys(text.str(), options.key_file);
  if (!keys.ok()) {
    throw std::invalid_argument(std::string(keys.status().message()));
  }
  const int64_t now_s = time(nullptr);
  const auto token = c4::service::IssueToken(
      keys->front(), {.identity = {.role = c4::service::Role::kOperator, .job = options.job, .name = "load"},
                      .not_before_s = now_s - 60,
                      .expires_s = now_s + 600});
  return token.ok() ? "Bearer " + *token : "";
}

struct Call {
  grpc::ClientContext context;
  grpc::ByteBuffer request{nullptr, 0};
  grpc::ByteBuffer reply;
  Clock::time_point start;
};

void LoadGrpc(const Options& options, Tally* tally) {
  const std::string authorization = Authorization(options);
  std::vector<std::unique_ptr<grpc::GenericStub>> stubs;
  stubs.reserve(static_cast<size_t>(options.connections));
  for (int i = 0; i < options.connections; ++i) {
    stubs.push_back(std::make_unique<grpc::GenericStub>(c4::service::MakeChannel(options.grpc, {})));
  }
  const std::string method = "/" + options.call;
  std::atomic<int> out = 0;
  const Clock::time_point begin = Clock::now();
  const std::chrono::duration<double> period(1 / options.rate);
  const auto requests = static_cast<int64_t>(options.rate * options.seconds);
  for (int64_t i = 0; i < requests; ++i) {
    const auto due = begin + std::chrono::duration_cast<Clock::duration>(period * static_cast<double>(i));
    std::this_thread::sleep_until(due);
    if (MsSince(begin) > options.seconds * 1000) break;
    // What does not come back is not piled up on our side.
    while (out > 4 * options.connections) std::this_thread::sleep_for(std::chrono::microseconds(200));
    auto* const call = new Call;
    call->start = Clock::now();
    call->context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(10));
    if (!authorization.empty()) call->context.AddMetadata("authorization", authorization);
    ++out;
    stubs[static_cast<size_t>(i) % stubs.size()]->UnaryCall(&call->context, method, grpc::StubOptions(),
                                                            &call->request, &call->reply,
                                                            [call, tally, &out](const grpc::Status& status) {
                                                              tally->Add(MsSince(call->start), status.ok());
                                                              if (!status.ok())
                                                                tally->Refuse(status.error_message());
                                                              delete call;
                                                              --out;
                                                            });
  }
  while (out > 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

bool AskHttp(const sockaddr_in& address, const std::string& request) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return false;
  const timeval limit{.tv_sec = 10, .tv_usec = 0};
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  std::string answer;
  char buffer[16'384];
  if (connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 &&
      send(fd, request.data(), request.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(request.size())) {
    for (ssize_t bytes = 0; (bytes = recv(fd, buffer, sizeof buffer, 0)) > 0;)
      if (answer.size() < 64) answer.append(buffer, static_cast<size_t>(bytes));
  }
  close(fd);
  return answer.starts_with("HTTP/1.1 200");
}

void LoadHttp(const Options& options, Tally* tally) {
  const auto parts = c4::service::ParseHostPort(options.http);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  if (!parts.ok() || inet_pton(AF_INET, parts->host.c_str(), &address.sin_addr) != 1) {
    throw std::invalid_argument("--http takes an IPv4 address and a port");
  }
  address.sin_port = htons(parts->port);
  const std::string request = "GET " + options.path + " HTTP/1.1\r\nHost: localhost\r\n\r\n";
  const Clock::time_point begin = Clock::now();
  const std::chrono::duration<double> period(1 / options.rate);
  std::atomic<int64_t> next = 0;
  std::vector<std::thread> threads;
  threads.reserve(static_cast<size_t>(options.connections));
  for (int i = 0; i < options.connections; ++i) {
    threads.emplace_back([&] {
      for (;;) {
        const auto number = static_cast<double>(next++);
        if (number >= options.rate * options.seconds || MsSince(begin) > options.seconds * 1000) return;
        std::this_thread::sleep_until(begin + std::chrono::duration_cast<Clock::duration>(period * number));
        const Clock::time_point start = Clock::now();
        const bool good = AskHttp(address, request);
        tally->Add(MsSince(start), good);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

int Main(int argc, char** argv) {
  Options options;
  CLI::App app("requests at a rate to a daemon of C4");
  app.add_option("--grpc", options.grpc, "HOST:PORT of a gRPC server");
  app.add_option("--call", options.call, "the call")->capture_default_str();
  app.add_option("--key-file", options.key_file, "signs the token");
  app.add_option("--job", options.job, "that the token is for");
  app.add_option("--http", options.http, "ADDRESS:PORT of an HTTP server");
  app.add_option("--path", options.path, "what is asked for")->capture_default_str();
  app.add_option("--pid", options.pid, "the daemon's process, for its memory");
  app.add_option("--connections", options.connections, "at a time")
      ->capture_default_str()
      ->check(CLI::Range(1, 2000));
  app.add_option("--rate", options.rate, "requests a second")
      ->capture_default_str()
      ->check(CLI::Range(1.0, 1e6));
  app.add_option("--seconds", options.seconds, "how long")
      ->capture_default_str()
      ->check(CLI::Range(0.1, 3600.0));
  CLI11_PARSE(app, argc, argv);
  if (options.grpc.empty() == options.http.empty()) {
    fprintf(stderr, "daemon_load: give --grpc or --http\n");
    return 64;
  }
  Tally tally;
  std::atomic<bool> over = false;
  std::vector<double> mib;
  std::thread looker([&] {
    while (!over && options.pid > 0) {
      mib.push_back(ResidentMib(options.pid));
      for (int i = 0; i < 10 && !over; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
  });
  const Clock::time_point begin = Clock::now();
  if (options.http.empty()) {
    LoadGrpc(options, &tally);
  } else {
    LoadHttp(options, &tally);
  }
  const double seconds = MsSince(begin) / 1000;
  over = true;
  looker.join();
  std::sort(tally.ms_.begin(), tally.ms_.end());
  const auto quantile = [&](double share) {
    return tally.ms_.empty()
               ? 0.0
               : tally.ms_[static_cast<size_t>(share * static_cast<double>(tally.ms_.size() - 1))];
  };
  printf(
      "{\"per_second\":%.0f,\"answered\":%zu,\"failed\":%llu,\"median_ms\":%.2f,\"p99_ms\":%.2f,"
      "\"resident_mib_first\":%.1f,\"resident_mib_most\":%.1f,\"resident_mib_last\":%.1f}\n",
      static_cast<double>(tally.ms_.size()) / seconds, tally.ms_.size(),
      static_cast<unsigned long long>(tally.failed_), quantile(0.5), quantile(0.99),
      mib.empty() ? 0.0 : mib.front(), mib.empty() ? 0.0 : *std::max_element(mib.begin(), mib.end()),
      mib.empty() ? 0.0 : mib.back());
  if (!tally.why_.empty()) fprintf(stderr, "daemon_load: the first refusal: %s\n", tally.why_.c_str());
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return Main(argc, argv);
  } catch (const std::exception& error) {
    fprintf(stderr, "daemon_load: %s\n", error.what());
    return 64;
  }
}
