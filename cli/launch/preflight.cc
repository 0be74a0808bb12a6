#include "cli/launch/preflight.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <map>
#include <mutex>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <optional>
#include <poll.h>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "c4a/testers.h"
#include "cli/base/child.h"
#include "cli/exit_codes.h"
#include "cli/launch/preflight_hub.h"
#include "cli/text/validation_text.h"
#include "service/address.h"

namespace c4::cli {
namespace {

constexpr absl::Duration kTesterLife = absl::Seconds(600);
constexpr absl::Duration kTryAgain = absl::Milliseconds(100);

// "/dev/nvidia0" and on.
size_t CountGpus() {
  size_t count = 0;
  std::error_code error;
  while (std::filesystem::exists(absl::StrCat("/dev/nvidia", count), error) && count < 64) ++count;
  return count;
}

std::vector<agent::Testers::Spec> SpecsOf(const PreflightOptions& options) {
  const auto self = static_cast<uint32_t>(getpid());
  const size_t gpus = CountGpus();
  std::vector<agent::Testers::Spec> specs;
  if (!options.gpu.empty()) {
    specs.push_back({0, self, options.gpu});
  } else if (gpus == 0) {
    specs.push_back({0, self, "none"});
  } else if (options.ranks > 1) {
    specs.push_back({0, self, absl::StrCat(static_cast<size_t>(options.local_rank) % gpus)});
  } else {
    for (size_t gpu = 0; gpu < gpus; ++gpu)
      specs.push_back({static_cast<uint32_t>(gpu), self, absl::StrCat(gpu)});
  }
  return specs;
}

int Connect(const service::HostPort& where) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const std::string port = absl::StrCat(where.port);
  if (getaddrinfo(where.host.c_str(), port.c_str(), &hints, &found) != 0) return -1;
  int fd = -1;
  for (const addrinfo* at = found; at != nullptr && fd < 0; at = at->ai_next) {
    fd = socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || connect(fd, at->ai_addr, at->ai_addrlen) == 0) continue;
    close(fd);
    fd = -1;
  }
  freeaddrinfo(found);
  if (fd < 0) return -1;
  const int on = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  return fd;
}

// One rank: its testers say to rank 0 what they have to say, and hear what they are to do.
class Member {
 public:
  explicit Member(const PreflightOptions& options) : options_(options) {}
  ~Member() {
    if (fd_ >= 0) close(fd_);
  }
  Member(const Member&) = delete;
  Member& operator=(const Member&) = delete;

  // The exit code that rank 0 gives; Unavailable where it cannot be reached, or leaves.
  absl::StatusOr<int> Run() {
    const absl::StatusOr<service::HostPort> where = service::ParseHostPort(options_.rendezvous);
    if (!where.ok()) return where.status();
    const absl::Time end = absl::Now() + absl::Seconds(options_.join_s);
    while ((fd_ = Connect(*where)) < 0 && absl::Now() < end) absl::SleepFor(kTryAgain);
    if (fd_ < 0) {
      return absl::UnavailableError(
          absl::StrCat("rank 0 is not reached at ", options_.rendezvous, ": ", strerror(errno)));
    }
    const std::vector<agent::Testers::Spec> specs = SpecsOf(options_);
    Say(absl::StrCat("join ", options_.rank, " ", specs.size(), " ", service::HostName()));
    agent::Testers testers("", [this](uint32_t id, const tester::Answer& answer) {
      Say(absl::StrCat(id, " ", tester::ToLine(answer)));
    });
    testers.Prepare(specs, kTesterLife);
    std::string text;
    char piece[4096];
    for (ssize_t bytes = 0; (bytes = recv(fd_, piece, sizeof piece, 0)) > 0;) {
      text.append(piece, static_cast<size_t>(bytes));
      for (size_t at = 0; (at = text.find('\n')) != std::string::npos; text.erase(0, at + 1)) {
        const std::string line = text.substr(0, at);
        int code = 0;
        if (line.starts_with("end ") && absl::SimpleAtoi(line.substr(4), &code)) return code;
        Pass(line, &testers);
      }
    }
    return absl::UnavailableError("rank 0 has left before it said how the preflight ended");
  }

 private:
  static void Pass(const std::string& line, agent::Testers* testers) {
    const size_t blank = line.find(' ');
    uint32_t id = 0;
    if (blank == std::string::npos || !absl::SimpleAtoi(line.substr(0, blank), &id)) return;
    if (const absl::StatusOr<tester::Order> order = tester::ParseOrder(line.substr(blank + 1)); order.ok()) {
      testers->Order(id, *order);
    }
  }
  void Say(const std::string& text) {
    const std::lock_guard lock(mutex_);
    const std::string line = text + "\n";
    const ssize_t ignored = send(fd_, line.data(), line.size(), MSG_NOSIGNAL);
    (void)ignored;
  }

  const PreflightOptions options_;
  int fd_ = -1;
  std::mutex mutex_;
};

struct Launcher {
  const char* rank;
  const char* ranks;
  const char* local_rank;
};
constexpr Launcher kLaunchers[] = {
    {"RANK", "WORLD_SIZE", "LOCAL_RANK"},
    {"SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID"},
    {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"},
    {"PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"}};

bool Number(const std::vector<std::string>& environment, const char* name, int* number) {
  const std::optional<std::string> value = EnvironmentValue(environment, name);
  return value.has_value() && absl::SimpleAtoi(*value, number) && *number >= 0;
}

}  // namespace

absl::Status FillFromLauncher(const std::vector<std::string>& environment, PreflightOptions* options) {
  for (const Launcher& launcher : kLaunchers) {
    int rank = 0;
    int ranks = 0;
    if (!Number(environment, launcher.rank, &rank) || !Number(environment, launcher.ranks, &ranks)) continue;
    if (options->rank < 0) options->rank = rank;
    if (options->ranks <= 0) options->ranks = ranks;
    int local = 0;
    if (Number(environment, launcher.local_rank, &local)) options->local_rank = local;
    break;
  }
  if (options->ranks <= 0 && options->rank < 0) {
    options->rank = 0;
    options->ranks = 1;
  }
  if (options->rank < 0 || options->rank >= options->ranks) {
    return absl::InvalidArgumentError(
        absl::StrCat("rank ", options->rank, " of ", options->ranks,
                     ": give both --node-rank and --nodes, or start it by a launcher "
                     "that says so (c4 run, srun, mpirun, torchrun)"));
  }
  if (!options->rendezvous.empty()) {
    const absl::StatusOr<service::HostPort> where = service::ParseHostPort(options->rendezvous);
    if (!where.ok()) return absl::InvalidArgumentError(where.status().message());
    return absl::OkStatus();
  }
  const std::optional<std::string> host = EnvironmentValue(environment, "MASTER_ADDR");
  const std::optional<std::string> port = EnvironmentValue(environment, "MASTER_PORT");
  if (host.has_value() && port.has_value()) {
    options->rendezvous = host->find(':') != std::string::npos && !host->starts_with("[")
                              ? absl::StrCat("[", *host, "]:", *port)
                              : absl::StrCat(*host, ":", *port);
  }
  if (options->rendezvous.empty() && options->ranks > 1) {
    return absl::InvalidArgumentError(
        "where is rank 0? Give --rendezvous HOST:PORT, or set MASTER_ADDR and MASTER_PORT");
  }
  if (options->rendezvous.empty()) options->rendezvous = "127.0.0.1:0";
  return absl::OkStatus();
}

absl::StatusOr<v1::Validation> RunPreflight(const PreflightOptions& given, int* exit_code) {
  PreflightOptions options = given;
  if (options.rank > 0) {
    const absl::StatusOr<int> code = Member(options).Run();
    if (!code.ok()) return code.status();
    *exit_code = *code;
    return v1::Validation();
  }
  PreflightHub hub(options);
  if (const absl::Status listens = hub.Listen(); !listens.ok()) return listens;
  options.rendezvous = hub.address();
  absl::Status own;
  std::thread member([&] { own = Member(options).Run().status(); });
  v1::Validation validation = hub.Run();
  *exit_code = ValidationExitCode(validation);
  hub.End(*exit_code);
  member.join();
  return validation;
}

}  // namespace c4::cli
