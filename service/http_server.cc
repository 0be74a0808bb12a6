#include "service/http_server.h"

#include <cerrno>
#include <httplib.h>
#include <pthread.h>
#include <sys/socket.h>
#include <thread>
#include <utility>
#include <vector>

#include "service/address.h"
#include "service/text.h"

namespace c4::service {
namespace {

constexpr size_t kThreads = 4;
constexpr size_t kMaxRequestBytes = 64 * 1024;
constexpr time_t kTimeoutSeconds = 5;  // of a client that is silent in the middle
constexpr char kText[] = "text/plain; charset=utf-8";
constexpr char kMetricsText[] = "text/plain; version=0.0.4; charset=utf-8";

// httplib's own default shares ports (SO_REUSEPORT): two daemons on one would go unnoticed.
void OwnPortOnly(socket_t fd) {
  const int yes = 1;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
}

}  // namespace

struct HttpServer::State {
  std::function<absl::Status()> health;
  std::function<std::string()> metrics;
  std::vector<std::pair<std::string, Handler>> routes;
  Credentials credentials;
  httplib::Server server;
  std::thread thread;
  std::string address;
  uint16_t port = 0;
};

HttpServer::HttpServer(std::function<absl::Status()> health, std::function<std::string()> metrics)
    : state_(std::make_unique<State>()) {
  state_->health = std::move(health);
  state_->metrics = std::move(metrics);
}

HttpServer::~HttpServer() {
  Stop();
}

void HttpServer::Get(const std::string& path, Handler handler) {
  state_->routes.emplace_back(path, std::move(handler));
}

absl::Status HttpServer::Start(const std::string& address, const Credentials& credentials) {
  const absl::StatusOr<HostPort> parts = ParseHostPort(address);
  if (!parts.ok()) return parts.status();
  State& state = *state_;
  state.credentials = credentials;
  httplib::Server& server = state.server;
  server.new_task_queue = [] { return new httplib::ThreadPool(kThreads); };
  server.set_socket_options(OwnPortOnly);
  server.set_payload_max_length(kMaxRequestBytes);
  server.set_read_timeout(kTimeoutSeconds);
  server.set_write_timeout(kTimeoutSeconds);
  server.set_keep_alive_timeout(1);  // an idle connection holds one of the few threads

  server.Get("/healthz", [&state](const httplib::Request&, httplib::Response& response) {
    const absl::Status health = state.health();
    response.status = health.ok() ? 200 : 503;
    response.set_content(health.ok() ? "ok\n" : Concat(health.message(), "\n"), kText);
  });
  server.Get("/metrics", [&state](const httplib::Request&, httplib::Response& response) {
    response.set_content(state.metrics(), kMetricsText);
  });
  for (const auto& [path, handler] : state.routes) {
    server.Get(path, [&state, run = handler](const httplib::Request& request, httplib::Response& response) {
      const absl::Status allowed =
          state.credentials.CheckAuthorization(request.get_header_value("Authorization"));
      if (!allowed.ok()) {
        response.status = 401;
        response.set_header("WWW-Authenticate", "Bearer");
        response.set_content(Concat(allowed.message(), "\n"), kText);
        return;
      }
      HttpRequest plain{.path = request.path, .query = {}};
      for (const auto& [name, value] : request.params) plain.query[name] = value;
      const HttpReply reply = run(plain);
      response.status = reply.status;
      response.set_content(reply.body, reply.content_type);
    });
  }

  errno = 0;
  int port = parts->port;
  bool bound = false;
  if (port == 0) {
    port = server.bind_to_any_port(parts->host);
    bound = port > 0;
  } else {
    bound = server.bind_to_port(parts->host, port);
  }
  if (!bound) {
    const int error = errno != 0 ? errno : EADDRNOTAVAIL;
    return ErrnoStatus(error,
                       Concat("cannot listen on ", address, " for HTTP (choose another --http-address)"));
  }
  state.port = static_cast<uint16_t>(port);
  state.address = JoinHostPort(parts->host, state.port);
  state.thread = std::thread([&server] {
    pthread_setname_np(pthread_self(), "c4-http");
    server.listen_after_bind();
  });
  // stop() before the loop has begun would be lost.
  while (!server.is_running()) std::this_thread::yield();
  return absl::OkStatus();
}

void HttpServer::Stop() {
  if (!state_->thread.joinable()) return;
  state_->server.stop();
  state_->thread.join();
}

uint16_t HttpServer::port() const {
  return state_->port;
}
const std::string& HttpServer::address() const {
  return state_->address;
}

}  // namespace c4::service
