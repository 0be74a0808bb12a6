// exec, webhook and local: three ways for the same words.
#include <cerrno>
#include <chrono>
#include <cstring>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "c4d_master/alerts/messages.h"
#include "c4d_master/recovery/driver.h"
#include "c4d_master/recovery/kube_driver.h"
#include "c4d_master/recovery/slurm_driver.h"
#include "service/clock.h"
#include "service/file_handle.h"
#include "service/http_post.h"
#include "service/run_command.h"
#include "service/text.h"

namespace c4::c4d::recovery {
namespace {

using service::Concat;
using SteadyClock = std::chrono::steady_clock;

constexpr int kLookMs = 100;
constexpr size_t kMaxAnswer = size_t{1} << 20;

// Sends a text and gives the answer's. FailedPrecondition: it was refused.
using Exchange = std::function<absl::StatusOr<std::string>(const std::string&, uint64_t, absl::Duration,
                                                           const Driver::Stop&)>;

class TextDriver final : public Driver {
 public:
  TextDriver(std::string job, Exchange exchange) : job_(std::move(job)), exchange_(std::move(exchange)) {}

  DriverReply Run(const Command& command, absl::Duration timeout, const Stop& stop) override {
    const absl::StatusOr<std::string> answer =
        exchange_(RequestJson(job_, command), command.id, timeout, stop);
    if (answer.ok()) return ReadReply(*answer);
    return {.outcome = absl::IsFailedPrecondition(answer.status()) ? Event::Outcome::kRefused
                                                                   : Event::Outcome::kUnknown,
            .text = service::ToUtf8(std::string(answer.status().message()))};
  }

  absl::StatusOr<Inventory> Look(absl::Duration timeout, const Stop& stop) override {
    const absl::StatusOr<std::string> answer = exchange_(LookJson(job_), 0, timeout, stop);
    if (!answer.ok()) return answer.status();
    return ReadInventory(*answer);
  }

 private:
  const std::string job_;
  const Exchange exchange_;
};

absl::StatusOr<std::string> AskProgram(const std::vector<std::string>& words, const std::string& text,
                                       absl::Duration timeout, const Driver::Stop& stop) {
  std::string output;
  const absl::Status ran = service::RunCommand(words, text + "\n", timeout, stop, &output);
  if (!ran.ok()) return ran;
  return output;
}

absl::StatusOr<std::string> AskWebhook(const AlertTarget& target, const std::string& text, uint64_t number,
                                       absl::Duration timeout, const Driver::Stop& stop) {
  return service::HttpPost(
      {.url = target.url,
       .body = text,
       .headers = WebhookHeaders(number, target.secret, text, service::SystemClock().UnixNs()),
       .timeout = timeout,
       .allow_inside = target.allow_private,
       .ca_file = target.ca_file},
      stop);
}

// One line there, one line back.
absl::StatusOr<std::string> AskSocket(const std::string& path, const std::string& text,
                                      absl::Duration timeout, const Driver::Stop& stop) {
  const SteadyClock::time_point deadline = SteadyClock::now() + absl::ToChronoNanoseconds(timeout);
  const service::FileHandle fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (fd.get() < 0) return service::ErrnoStatus(errno, "cannot open a socket");
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  strncpy(address.sun_path, path.c_str(), sizeof address.sun_path - 1);
  if (connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    return service::ErrnoStatus(errno, Concat("cannot reach ", path));
  }
  const std::string line = text + "\n";
  if (send(fd.get(), line.data(), line.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(line.size())) {
    return service::ErrnoStatus(errno, Concat("cannot write to ", path));
  }
  std::string answer;
  while (answer.find('\n') == std::string::npos) {
    if (stop && stop()) return absl::CancelledError("cut off");
    if (SteadyClock::now() >= deadline)
      return absl::DeadlineExceededError(Concat(path, " did not answer in time"));
    if (answer.size() > kMaxAnswer)
      return absl::ResourceExhaustedError(Concat(path, " answers without an end"));
    pollfd entry = {fd.get(), POLLIN, 0};
    if (poll(&entry, 1, kLookMs) <= 0) continue;
    char buffer[4096];
    const ssize_t count = recv(fd.get(), buffer, sizeof buffer, 0);
    if (count == 0) return absl::UnavailableError(Concat(path, " ended without an answer"));
    if (count < 0 && errno != EAGAIN && errno != EINTR)
      return service::ErrnoStatus(errno, Concat("cannot read from ", path));
    if (count > 0) answer.append(buffer, static_cast<size_t>(count));
  }
  return answer;
}

}  // namespace

std::unique_ptr<Driver> MakeDriver(const DriverConfig& config, const std::string& job) {
  switch (config.kind) {
    case DriverConfig::Kind::kExec:
      return std::make_unique<TextDriver>(
          job, [words = config.command](const std::string& text, uint64_t, absl::Duration timeout,
                                        const Driver::Stop& stop) {
            return AskProgram(words, text, timeout, stop);
          });
    case DriverConfig::Kind::kWebhook:
      return std::make_unique<TextDriver>(
          job, [target = config.webhook](const std::string& text, uint64_t number, absl::Duration timeout,
                                         const Driver::Stop& stop) {
            return AskWebhook(target, text, number, timeout, stop);
          });
    case DriverConfig::Kind::kLocal:
      return std::make_unique<TextDriver>(
          job,
          [path = config.socket](const std::string& text, uint64_t, absl::Duration timeout,
                                 const Driver::Stop& stop) { return AskSocket(path, text, timeout, stop); });
    case DriverConfig::Kind::kSlurm:
      return MakeSlurmDriver(config.slurm, job);
    case DriverConfig::Kind::kKubernetes:
      return MakeKubeDriver(config.kubernetes, job);
    case DriverConfig::Kind::kNone:
      break;
  }
  return nullptr;
}

}  // namespace c4::c4d::recovery
