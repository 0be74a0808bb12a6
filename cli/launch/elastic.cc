#include "cli/launch/elastic.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>
#include <utility>

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"

namespace c4::cli {
namespace {

using Json = nlohmann::json;

constexpr size_t kMaxLine = size_t{1} << 20;
constexpr std::chrono::milliseconds kPatience{1000};

std::string Dump(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string Refused(const std::string& why) {
  return Dump({{"outcome", "refused"}, {"text", why}});
}

std::string TextOf(const Json& json, const char* key) {
  const auto found = json.find(key);
  return found != json.end() && found->is_string() ? found->get<std::string>() : std::string();
}

uint64_t NumberOf(const Json& json, const char* key) {
  const auto found = json.find(key);
  return found != json.end() && found->is_number_unsigned() ? found->get<uint64_t>() : 0;
}

}  // namespace

int ElasticJob::Find(const std::string& host) const {
  const auto found = std::find(hosts_.begin(), hosts_.end(), host);
  return found == hosts_.end() ? -1 : static_cast<int>(found - hosts_.begin());
}

void ElasticJob::GoElsewhere(std::vector<int>* host_of_rank) {
  std::vector<int> used;
  for (const int host : *host_of_rank) {
    if (std::find(used.begin(), used.end(), host) == used.end()) used.push_back(host);
  }
  std::vector<int> fresh;
  for (int host = 0; host < static_cast<int>(hosts_.size()); ++host) {
    const bool is_used = std::find(used.begin(), used.end(), host) != used.end();
    if (!is_used && !isolated_.contains(host)) fresh.push_back(host);
  }
  fresh.resize(std::min(fresh.size(), used.size()));
  for (const int host : fresh) {
    const int gone = used[next_to_go_++ % used.size()];
    std::replace(host_of_rank->begin(), host_of_rank->end(), gone, host);
  }
}

std::string ElasticJob::Answer(const std::string& line, int incarnation, bool failed,
                               const DoRestart& restart) {
  const Json json = Json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return Refused("it is no JSON object");
  const std::string verb = TextOf(json, "verb");
  const auto uses = [this](int host) {
    return std::find(host_of_rank_.begin(), host_of_rank_.end(), host) != host_of_rank_.end();
  };
  if (verb == "look") {
    Json nodes = Json::array();
    for (size_t host = 0; host < hosts_.size(); ++host) {
      const int index = static_cast<int>(host);
      nodes.push_back({{"name", hosts_[host]},
                       {"state", isolated_.contains(index) ? "isolated" : "free"},
                       {"in_use", uses(index)}});
    }
    Json answer = {{"outcome", "done"}, {"nodes", std::move(nodes)}};
    if (failed) answer["failed"] = incarnation;
    return Dump(answer);
  }
  if (verb == "check") return Refused("`c4 run --elastic` has no check of hosts; give it back by hand");
  if (verb == "isolate" || verb == "give-back") {
    const int host = Find(TextOf(json, "node"));
    if (host < 0) return Refused(absl::StrCat("there is no host ", TextOf(json, "node")));
    if (verb == "isolate") {
      isolated_.insert(host);
    } else {
      isolated_.erase(host);
    }
    return Dump({{"outcome", "done"}});
  }
  if (verb != "restart") return Refused(absl::StrCat("there is no verb '", verb, "'"));
  const uint64_t command = NumberOf(json, "command");
  if (command != 0 && command == restarted_by_) return Dump({{"outcome", "done"}});  // asked again
  const uint64_t to = NumberOf(json, "to");
  if (to <= static_cast<uint64_t>(incarnation) || to > 1'000'000) {
    return Refused(absl::StrCat("incarnation ", to, " is not above ", incarnation, ", which runs"));
  }
  Restart wanted = {static_cast<int>(to), host_of_rank_};
  const Json replace = json.contains("replace") ? json["replace"] : Json::array();
  const uint64_t incident = NumberOf(json, "incident");
  if (incident != 0 && incident == incident_ && replace.empty()) GoElsewhere(&wanted.host_of_rank);
  for (const Json& item : replace) {
    const int node = item.is_object() ? Find(TextOf(item, "node")) : -1;
    const int backup = item.is_object() ? Find(TextOf(item, "backup")) : -1;
    if (node < 0 || backup < 0) return Refused("\"replace\" names a host that is not there");
    if (uses(backup) || isolated_.contains(backup))
      return Refused(absl::StrCat(hosts_[static_cast<size_t>(backup)], " is not free"));
    std::replace(wanted.host_of_rank.begin(), wanted.host_of_rank.end(), node, backup);
  }
  for (const int host : wanted.host_of_rank) {
    if (isolated_.contains(host)) {
      return Refused(
          absl::StrCat("ranks would run on ", hosts_[static_cast<size_t>(host)], ", which is isolated"));
    }
  }
  const absl::StatusOr<double> done = restart(wanted);
  if (!done.ok()) return Refused(std::string(done.status().message()));
  host_of_rank_ = wanted.host_of_rank;
  restarted_by_ = command;
  incident_ = incident;
  Json answer = {{"outcome", "done"}};
  if (*done > 0) answer["checkpoint_unix_s"] = *done;
  return Dump(answer);
}

absl::StatusOr<ElasticSocket> ElasticSocket::Listen(const std::string& path) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, " is too long for a socket; name a shorter --run-dir"));
  }
  path.copy(address.sun_path, path.size());
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return service::ErrnoStatus(errno, "cannot open a socket");
  unlink(path.c_str());
  const mode_t before = umask(0077);  // its user's master alone
  const bool bound = bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
  umask(before);
  if (!bound || listen(fd, 16) != 0) {
    absl::Status why = service::ErrnoStatus(errno, absl::StrCat("cannot listen at ", path));
    close(fd);
    return why;
  }
  return ElasticSocket(fd, path);
}

ElasticSocket::ElasticSocket(ElasticSocket&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)), path_(std::move(other.path_)) {}

ElasticSocket::~ElasticSocket() {
  if (fd_ < 0) return;
  close(fd_);
  unlink(path_.c_str());
}

void ElasticSocket::Serve(const std::function<std::string(const std::string&)>& answer) const {
  const int caller = accept4(fd_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
  if (caller < 0) return;
  const auto until = std::chrono::steady_clock::now() + kPatience;
  std::string line;
  while (line.find('\n') == std::string::npos && line.size() < kMaxLine &&
         std::chrono::steady_clock::now() < until) {
    pollfd entry = {caller, POLLIN, 0};
    if (poll(&entry, 1, 100) <= 0) continue;
    char buffer[4096];
    const ssize_t count = recv(caller, buffer, sizeof buffer, 0);
    if (count == 0) break;
    if (count > 0) line.append(buffer, static_cast<size_t>(count));
  }
  if (const size_t end = line.find('\n'); end != std::string::npos) {
    const std::string text = answer(line.substr(0, end)) + "\n";
    // As much as a socket takes at once: 200 kB, thousands of hosts.
    [[maybe_unused]] const ssize_t sent = send(caller, text.data(), text.size(), MSG_NOSIGNAL);
  }
  close(caller);
}

absl::StatusOr<std::string> ElasticRecoveryFile(const std::string& users_text, const std::string& socket) {
  Json json = {{"mode", "automatic"}};
  if (!users_text.empty()) {
    json = Json::parse(users_text, nullptr, /*allow_exceptions=*/false);
    if (!json.is_object()) return absl::InvalidArgumentError("--recovery: the file is no JSON object");
    if (json.contains("driver")) {
      return absl::InvalidArgumentError(
          "--recovery: with --elastic the driver is this command; leave \"driver\" out");
    }
  }
  json["driver"] = {{"local", socket}};
  json["check"] = false;  // there is none of emulated hosts
  if (!json.contains("times")) json["times"] = Json::object();
  if (json["times"].is_object() && !json["times"].contains("look_every_s")) json["times"]["look_every_s"] = 1;
  return Dump(json) + "\n";
}

}  // namespace c4::cli
