#include "service/http_post.h"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <fcntl.h>
#include <httplib.h>
#include <memory>
#include <mutex>
#include <netdb.h>
#include <openssl/x509_vfy.h>
#include <optional>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "service/address.h"
#include "service/inside_address.h"
#include "service/text.h"
#include "service/wakeup.h"

namespace c4::service {
namespace {

using SteadyClock = std::chrono::steady_clock;
using SteadyTime = SteadyClock::time_point;

constexpr char kHttp[] = "http://";
constexpr char kHttps[] = "https://";
constexpr uint16_t kHttpPort = 80;
constexpr uint16_t kHttpsPort = 443;
constexpr absl::Duration kLook = absl::Milliseconds(100);
constexpr int kFirstError = 400;
constexpr int kRequestTimeout = 408;
constexpr int kTooManyRequests = 429;

struct Url {
  bool tls = false;
  HostPort place;
  std::string path;
};

absl::StatusOr<Url> ParseUrl(const std::string& url) {
  Url result;
  result.tls = absl::StartsWith(url, kHttps);
  if (!result.tls && !absl::StartsWith(url, kHttp)) {
    return absl::InvalidArgumentError(
        Concat("\"", ToUtf8(url), "\" is no address; give https://host:port/path"));
  }
  for (const char c : url) {
    // A line end would become a header of the request.
    if (static_cast<unsigned char>(c) <= ' ' || c == '\x7f') {
      return absl::InvalidArgumentError(
          Concat("\"", ToUtf8(url), "\" holds a blank or a control character; write it as %20 or the like"));
    }
  }
  const std::string rest = url.substr((result.tls ? sizeof kHttps : sizeof kHttp) - 1);
  const size_t slash = rest.find('/');
  const std::string host = rest.substr(0, slash);
  if (host.find_first_of("?#@") != std::string::npos) {
    return absl::InvalidArgumentError(Concat("\"", host, "\" is no host:port; give https://host:port/path"));
  }
  result.path = slash == std::string::npos ? "/" : rest.substr(slash);
  const bool has_port = host.rfind(':') != std::string::npos && host.back() != ']';
  const uint16_t usual = result.tls ? kHttpsPort : kHttpPort;
  const absl::StatusOr<HostPort> place = ParseHostPort(has_port ? host : Concat(host, ":", usual));
  if (!place.ok()) return place.status();
  if (place->host.empty() || place->port == 0) {
    return absl::InvalidArgumentError(
        Concat("\"", host, "\" names no host and port; give https://host:port/path"));
  }
  result.place = *place;
  return result;
}

// Of a url as it is to be shown: what follows '?' may be a secret.
std::string Shown(const std::string& url) {
  return ToUtf8(url.substr(0, url.find('?')));
}

absl::Status MayGo(const std::string& url, bool tls, IpAddress address, bool allow_inside) {
  const bool inside = IsInside(address);
  if (inside && !allow_inside) {
    return absl::FailedPreconditionError(
        Concat(Shown(url), " is at ", IpText(address),
               ", an address of this machine or of a private network, to which nothing is sent unless "
               "\"allow_private\": true says that it is meant"));
  }
  if (!inside && !tls) {
    return absl::FailedPreconditionError(
        Concat(Shown(url), " is at ", IpText(address),
               ", outside, to which nothing is sent in clear; give its https:// address"));
  }
  return absl::OkStatus();
}

// getaddrinfo knows no time limit, so that it has a thread of its own, which nobody waits for past the
// deadline.
absl::StatusOr<std::vector<IpAddress>> Resolve(const std::string& host, SteadyTime deadline,
                                               const std::function<bool()>& stop) {
  if (const std::optional<IpAddress> literal = ParseIp(host)) return std::vector<IpAddress>{*literal};
  struct Lookup {
    std::mutex mutex;
    std::condition_variable done_changed;
    bool done = false;
    int code = 0;
    std::vector<IpAddress> addresses;
  };
  const auto lookup = std::make_shared<Lookup>();
  std::thread([lookup, host] {
    addrinfo hints{};
    hints.ai_family = AF_UNSPEC;
    hints.ai_socktype = SOCK_STREAM;
    hints.ai_flags = AI_ADDRCONFIG;
    addrinfo* found = nullptr;
    const int code = getaddrinfo(host.c_str(), nullptr, &hints, &found);
    const std::lock_guard lock(lookup->mutex);
    for (const addrinfo* item = found; item != nullptr; item = item->ai_next) {
      lookup->addresses.push_back(AddressOf(item->ai_addr));
    }
    if (found != nullptr) freeaddrinfo(found);
    lookup->code = code;
    lookup->done = true;
    lookup->done_changed.notify_one();
  }).detach();
  std::unique_lock lock(lookup->mutex);
  while (!lookup->done) {
    if (stop && stop()) return absl::CancelledError("cut off");
    if (SteadyClock::now() >= deadline) {
      return absl::UnavailableError(Concat("the name ", host, " could not be resolved in time"));
    }
    lookup->done_changed.wait_for(lock, absl::ToChronoMilliseconds(kLook));
  }
  if (lookup->code != 0 || lookup->addresses.empty()) {
    return absl::UnavailableError(
        Concat("the name ", host, " cannot be resolved: ", gai_strerror(lookup->code)));
  }
  return lookup->addresses;
}

// The socket of a connection, by a descriptor of our own: the client's may be another's by the time that it
// is to be shut down.
class HeldSocket {
 public:
  ~HeldSocket() {
    if (fd_ >= 0) close(fd_);
  }
  void Hold(int fd) {
    const std::lock_guard lock(mutex_);
    if (fd_ >= 0) close(fd_);
    fd_ = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    if (shut_) shutdown(fd_, SHUT_RDWR);
  }
  void Shut() {
    const std::lock_guard lock(mutex_);
    shut_ = true;
    if (fd_ >= 0) shutdown(fd_, SHUT_RDWR);
  }

 private:
  std::mutex mutex_;
  int fd_ = -1;
  bool shut_ = false;
};

std::string WhyNot(httplib::Error error, long verify_result) {
  if (error == httplib::Error::SSLServerVerification) {
    const std::string why = verify_result == X509_V_OK
                                ? std::string("it does not name that host")
                                : std::string(X509_verify_cert_error_string(verify_result));
    return Concat("its certificate does not hold: ", why);
  }
  if (error == httplib::Error::SSLConnection) return "no TLS came about";
  if (error == httplib::Error::SSLLoadingCerts) return "the file of authorities cannot be read";
  if (error == httplib::Error::Connection) return "no connection came about";
  return httplib::to_string(error);
}

}  // namespace

absl::Status CheckHttpUrl(const std::string& url, bool allow_inside) {
  const absl::StatusOr<Url> parsed = ParseUrl(url);
  if (!parsed.ok()) return parsed.status();
  if (const std::optional<IpAddress> literal = ParseIp(parsed->place.host)) {
    const absl::Status may = MayGo(url, parsed->tls, *literal, allow_inside);
    if (!may.ok()) return absl::InvalidArgumentError(may.message());
  }
  if (!parsed->tls && !allow_inside) {
    return absl::InvalidArgumentError(
        Concat(Shown(url),
               " is without TLS; give an https:// address, or \"allow_private\": true for one of "
               "this machine or a private network"));
  }
  return absl::OkStatus();
}

absl::StatusOr<HttpAnswer> HttpCall(const HttpPostRequest& request, const std::function<bool()>& stop) {
  const absl::StatusOr<Url> url = ParseUrl(request.url);
  if (!url.ok()) return url.status();
  const auto limit = absl::ToChronoMicroseconds(request.timeout);
  const SteadyTime deadline = SteadyClock::now() + limit;
  const absl::StatusOr<std::vector<IpAddress>> addresses = Resolve(url->place.host, deadline, stop);
  if (!addresses.ok()) return Annotate(addresses.status(), Shown(request.url));
  for (const IpAddress address : *addresses) {
    C4_RETURN_IF_NOT_OK(MayGo(request.url, url->tls, address, request.allow_inside));
  }

  std::unique_ptr<httplib::ClientImpl> client;
  httplib::SSLClient* tls = nullptr;
  if (url->tls) {
    auto made = std::make_unique<httplib::SSLClient>(url->place.host, url->place.port);
    tls = made.get();
    tls->enable_server_certificate_verification(true);
    if (!request.ca_file.empty()) tls->set_ca_cert_path(request.ca_file);
    client = std::move(made);
  } else {
    client = std::make_unique<httplib::ClientImpl>(url->place.host, url->place.port);
  }
  client->set_hostname_addr_map({{url->place.host, IpText(addresses->front())}});
  client->set_connection_timeout(limit);
  client->set_read_timeout(limit);
  client->set_write_timeout(limit);
  client->set_keep_alive(false);
  client->set_follow_location(false);
  client->set_decompress(false);
  HeldSocket held;
  client->set_socket_options([&held](int fd) { held.Hold(fd); });

  httplib::Request post;
  post.method = request.method;
  post.path = url->path;
  post.body = request.body;
  for (const auto& [name, value] : request.headers) post.headers.emplace(name, value);
  if (request.method != "GET") post.headers.emplace("Content-Type", request.content_type);
  HttpAnswer answer;
  bool announces_trailer = false;
  const auto take_head = [&answer, &announces_trailer](const httplib::Response& response) {
    answer.status = response.status;
    answer.reason = response.reason;
    announces_trailer = response.has_header("Trailer");
    uint32_t seconds = 0;
    if (absl::SimpleAtoi(response.get_header_value("Retry-After"), &seconds)) {
      answer.retry_after = absl::Seconds(seconds);
    }
    return true;
  };
  post.response_handler = take_head;
  post.content_receiver = [&answer, most = request.max_answer_bytes](const char* data, size_t bytes, uint64_t,
                                                                     uint64_t) {
    answer.body.append(data, std::min(bytes, most - std::min(most, answer.body.size())));
    return answer.body.size() < most;
  };
  // The client's own limits are of each wait: a receiver that sends a byte now and then would hold us for
  // ever.
  Wakeup answered;
  std::thread watcher([&] {
    while (!answered.WaitFor(kLook)) {
      if ((stop && stop()) || SteadyClock::now() >= deadline) held.Shut();
    }
  });
  const httplib::Result result = client->send(post);
  answered.Notify();
  watcher.join();
  if (!result && stop && stop()) {
    return absl::CancelledError(Concat("the ", request.method, " to ", Shown(request.url), " was cut off"));
  }
  if (!result && answer.body.size() >= request.max_answer_bytes) {
    return absl::UnavailableError(
        Concat(Shown(request.url), " answers with more than ", request.max_answer_bytes, " bytes"));
  }
  // httplib takes a trailer behind the last chunk for a broken answer; gRPC's JSON gateway sends one with
  // each error.
  if (!result && result.error() == httplib::Error::Read && announces_trailer &&
      answer.status >= kFirstError) {
    return answer;
  }
  if (!result) {
    const bool late = SteadyClock::now() >= deadline;
    return absl::UnavailableError(
        Concat(Shown(request.url), " did not answer",
               late ? Concat(" within ", absl::FormatDuration(request.timeout)) : "", " (",
               WhyNot(result.error(), tls == nullptr ? X509_V_OK : tls->get_openssl_verify_result()), ")"));
  }
  (void)take_head(*result);
  return answer;
}

absl::StatusOr<std::string> HttpPost(const HttpPostRequest& request, const std::function<bool()>& stop) {
  absl::StatusOr<HttpAnswer> answer = HttpCall(request, stop);
  if (!answer.ok()) return answer.status();
  const int status = answer->status;
  if (status >= 200 && status < 300) return std::move(answer->body);
  std::string said = Concat(Shown(request.url), " answered with ", status, " ", ToUtf8(answer->reason));
  if (status >= 300 && status < 400) {
    return absl::FailedPreconditionError(
        Concat(said, "; redirects are not followed, give the address that is meant"));
  }
  if (!answer->body.empty()) said = Concat(said, ": ", ToUtf8(answer->body.substr(0, 200)));
  const bool for_good =
      status >= 400 && status < 500 && status != kRequestTimeout && status != kTooManyRequests;
  return for_good ? absl::FailedPreconditionError(said) : absl::UnavailableError(said);
}

}  // namespace c4::service
