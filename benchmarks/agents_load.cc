// agents_load --master HOST:PORT --pid PID: what a large job's agents cost the master that runs as that
// process. One stream for each host of a synthetic job (load_agents.h), four batches a second each, in real
// time, by gRPC and with the credentials that are given; after a warm-up the CPU time of each of the
// master's threads is taken. One line of JSON: shares of a core by the threads' names, batches, bytes.
//
// Batches that a busy machine could not make in time are not made up for; "batches" tells. Exit code 1 when
// the master refused one.
#include <atomic>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <grpcpp/grpcpp.h>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <unistd.h>
#include <vector>

#include <CLI/CLI.hpp>

#include "benchmarks/load_agents.h"
#include "c4/v1/c4d.grpc.pb.h"
#include "service/channel.h"
#include "service/credentials.h"

namespace {

namespace v1 = c4::v1;
using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kBetween{250};

struct Options {
  c4::benchmarks::LoadShape shape{.hosts = 128};
  c4::service::SecurityOptions security;
  std::string master;
  std::string job = "load";
  std::string certificates;
  int pid = 0;
  double warm_up_s = 5;
  double seconds = 20;
};

// CPU seconds of a process's threads, by their names.
std::map<std::string, double> ThreadSeconds(int pid) {
  std::map<std::string, double> seconds;
  const std::string folder = "/proc/" + std::to_string(pid) + "/task";
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    std::ifstream file(entry.path() / "schedstat");
    std::ifstream name_file(entry.path() / "comm");
    std::string name;
    double ns = 0;
    if (file >> ns && std::getline(name_file, name)) seconds[name] += ns / 1e9;
  }
  return seconds;
}

struct Tally {
  std::atomic<bool> stop = false;
  std::atomic<uint64_t> batches = 0;
  std::atomic<uint64_t> bytes = 0;
  std::atomic<uint64_t> refused = 0;
};

// An agent speaks for its own host only, by token and by certificate.
c4::service::Credentials OfHost(const Options& options, uint32_t host) {
  const std::string name = c4::benchmarks::LoadHostName(host);
  c4::service::SecurityOptions security = options.security;
  if (!options.certificates.empty()) {
    const std::string own = options.certificates + "/" + name;
    security.tls = {
        .ca = options.certificates + "/authority/ca.pem", .cert = own + ".pem", .key = own + ".key"};
  }
  auto credentials =
      c4::service::Credentials::Load(security, {.role = c4::service::Role::kAgent, .host = name});
  if (!credentials.ok()) throw std::runtime_error(std::string(credentials.status().message()));
  return *std::move(credentials);
}

void RunAgent(const Options& options, const c4::service::Credentials& credentials, uint32_t host,
              c4::benchmarks::LoadAgents* agents, Tally* tally) {
  const auto channel =
      c4::service::MakeChannel(options.master, credentials, c4::service::Role::kJobMaster, options.job);
  const auto stub = v1::C4d::NewStub(channel);
  grpc::ClientContext context;
  c4::service::MasterAddress master(options.master);
  master.job = options.job;
  credentials.AddToken(&context, master);
  const auto stream = stub->StreamTelemetry(&context);
  // The hosts' moments are spread over the quarter of a second.
  auto next = Clock::now() + kBetween * host / options.shape.hosts;
  while (!tally->stop) {
    std::this_thread::sleep_until(next);
    next = std::max(next + kBetween, Clock::now());
    agents->Advance(host, Clock::now().time_since_epoch().count());
    v1::TelemetryReply reply;
    if (!stream->Write(agents->batch(host)) || !stream->Read(&reply)) {
      const grpc::Status status = stream->Finish();
      if (tally->refused++ == 0) fprintf(stderr, "agents_load: %s\n", status.error_message().c_str());
      return;
    }
    ++tally->batches;
    tally->bytes += agents->batch(host).ByteSizeLong();
  }
  context.TryCancel();
  stream->Finish();
}

int Main(int argc, char** argv) {
  Options options;
  CLI::App app("what a large job's agents cost its master");
  app.add_option("--master", options.master, "HOST:PORT of c4d_master")->required();
  app.add_option("--pid", options.pid, "its process")->required();
  app.add_option("--job", options.job, "its job")->capture_default_str();
  app.add_option("--hosts", options.shape.hosts)->capture_default_str();
  app.add_option("--ranks-per-host", options.shape.ranks_per_host)->capture_default_str();
  app.add_option("--queue-pairs", options.shape.queue_pairs, "of a connection")->capture_default_str();
  app.add_option("--warm-up", options.warm_up_s, "seconds")->capture_default_str();
  app.add_option("--seconds", options.seconds, "that are measured")->capture_default_str();
  app.add_option("--key-file", options.security.key_file, "signs the agents' tokens");
  app.add_option("--certificates", options.certificates,
                 "folder of each host's, node0.pem and node0.key and so on, and of authority/ca.pem");
  CLI11_PARSE(app, argc, argv);
  std::vector<c4::service::Credentials> credentials;
  for (uint32_t host = 0; host < options.shape.hosts; ++host) credentials.push_back(OfHost(options, host));

  c4::benchmarks::LoadAgents agents(options.shape);
  Tally tally;
  std::vector<std::thread> threads;
  threads.reserve(options.shape.hosts);
  for (uint32_t host = 0; host < options.shape.hosts; ++host) {
    threads.emplace_back([&, host] { RunAgent(options, credentials[host], host, &agents, &tally); });
  }
  std::this_thread::sleep_for(std::chrono::duration<double>(options.warm_up_s));
  const auto before = ThreadSeconds(options.pid);
  const uint64_t batches = tally.batches;
  const uint64_t bytes = tally.bytes;
  const auto begin = Clock::now();
  std::this_thread::sleep_for(std::chrono::duration<double>(options.seconds));
  const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  const auto after = ThreadSeconds(options.pid);
  const uint64_t batches_after = tally.batches;
  const uint64_t bytes_after = tally.bytes;
  tally.stop = true;
  for (std::thread& thread : threads) thread.join();

  double all = 0;
  std::string by_name;
  for (const auto& [name, cpu_s] : after) {
    const auto earlier = before.find(name);
    const double share = (cpu_s - (earlier == before.end() ? 0 : earlier->second)) / seconds;
    all += share;
    char text[128];
    snprintf(text, sizeof text, "%s\"%s\":%.4f", by_name.empty() ? "" : ",", name.c_str(), share);
    by_name += text;
  }
  printf(
      "{\"ranks\":%u,\"seconds\":%.1f,\"batches_per_s\":%.1f,\"megabytes_per_s\":%.2f,\"core_share\":%.4f,"
      "\"threads\":{%s}}\n",
      options.shape.hosts * options.shape.ranks_per_host, seconds,
      static_cast<double>(batches_after - batches) / seconds,
      static_cast<double>(bytes_after - bytes) / seconds / 1e6, all, by_name.c_str());
  return tally.refused == 0 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return Main(argc, argv);
  } catch (const std::exception& error) {
    fprintf(stderr, "agents_load: %s\n", error.what());
    return 64;
  }
}
