#include "service/http_post.h"

#include <chrono>
#include <httplib.h>
#include <thread>

#include "absl/strings/match.h"
#include "service/address.h"
#include "service/text.h"
#include "service/wakeup.h"

namespace c4::service {
namespace {

constexpr char kScheme[] = "http://";
constexpr uint16_t kHttpPort = 80;
constexpr absl::Duration kLook = absl::Milliseconds(100);
constexpr int kRequestTimeout = 408;
constexpr int kTooManyRequests = 429;

struct Url {
  HostPort place;
  std::string path;
};

absl::StatusOr<Url> ParseUrl(const std::string& url) {
  if (absl::StartsWith(url, "https://")) {
    return absl::InvalidArgumentError(
        Concat(url,
               " wants TLS, which is not supported; give an http:// address (of a relay on this machine), "
               "or a command that sends it"));
  }
  if (!absl::StartsWith(url, kScheme)) {
    return absl::InvalidArgumentError(
        Concat("\"", ToUtf8(url), "\" is no address; give http://host:port/path"));
  }
  for (const char c : url) {
    // A line end would become a header of the request.
    if (static_cast<unsigned char>(c) <= ' ' || c == '\x7f') {
      return absl::InvalidArgumentError(
          Concat("\"", ToUtf8(url), "\" holds a blank or a control character; write it as %20 or the like"));
    }
  }
  const std::string rest = url.substr(sizeof kScheme - 1);
  const size_t slash = rest.find('/');
  const std::string host = rest.substr(0, slash);
  if (host.find_first_of("?#@") != std::string::npos) {
    return absl::InvalidArgumentError(Concat("\"", host, "\" is no host:port; give http://host:port/path"));
  }
  Url result;
  result.path = slash == std::string::npos ? "/" : rest.substr(slash);
  const bool has_port = host.rfind(':') != std::string::npos && host.back() != ']';
  const absl::StatusOr<HostPort> place = ParseHostPort(has_port ? host : Concat(host, ":", kHttpPort));
  if (!place.ok()) return place.status();
  if (place->host.empty() || place->port == 0) {
    return absl::InvalidArgumentError(
        Concat("\"", host, "\" names no host and port; give http://host:port/path"));
  }
  result.place = *place;
  return result;
}

}  // namespace

absl::Status CheckHttpUrl(const std::string& url) {
  return ParseUrl(url).status();
}

absl::Status HttpPostJson(const std::string& url, const std::string& json, absl::Duration timeout,
                          const std::function<bool()>& stop) {
  const absl::StatusOr<Url> parsed = ParseUrl(url);
  if (!parsed.ok()) return parsed.status();
  httplib::Client client(parsed->place.host, parsed->place.port);
  const auto limit = absl::ToChronoMicroseconds(timeout);
  client.set_connection_timeout(limit);
  client.set_read_timeout(limit);
  client.set_write_timeout(limit);
  client.set_keep_alive(false);
  // The client's own limits are of each wait: a receiver that sends a byte now and then would hold us for
  // ever.
  const auto deadline = std::chrono::steady_clock::now() + limit;
  Wakeup answered;
  std::thread watcher([&] {
    while (!answered.WaitFor(kLook)) {
      if ((stop && stop()) || std::chrono::steady_clock::now() >= deadline) client.stop();
    }
  });
  const httplib::Result answer = client.Post(parsed->path.c_str(), json, "application/json");
  answered.Notify();
  watcher.join();
  if (!answer && stop && stop()) return absl::CancelledError(Concat("the POST to ", url, " was cut off"));
  if (!answer) {
    return absl::UnavailableError(Concat(url, " did not answer (", httplib::to_string(answer.error()), ")"));
  }
  if (answer->status >= 200 && answer->status < 300) return absl::OkStatus();
  const std::string said = Concat(url, " answered with ", answer->status, " ", answer->reason);
  const bool for_good = answer->status >= 400 && answer->status < 500 && answer->status != kRequestTimeout &&
                        answer->status != kTooManyRequests;
  return for_good ? absl::FailedPreconditionError(said) : absl::UnavailableError(said);
}

}  // namespace c4::service
