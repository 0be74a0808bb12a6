#include "service/http_server.h"

#include <httplib.h>
#include <utility>
#include <vector>

#include "service/address.h"
#include "service/http_listener.h"
#include "service/text.h"

namespace c4::service {
namespace {

constexpr char kText[] = "text/plain; charset=utf-8";
constexpr char kMetricsText[] = "text/plain; version=0.0.4; charset=utf-8";

// Browsers name the page that a request comes from.
bool FromElsewhere(const httplib::Request& request) {
  const std::string origin = request.get_header_value("Origin");
  return !origin.empty() && origin != "http://" + request.get_header_value("Host");
}

}  // namespace

struct HttpServer::State {
  struct Route {
    std::string path;
    Handler handler;
    bool changes = false;  // POST
  };

  std::function<absl::Status()> health;
  std::function<std::string()> metrics;
  std::vector<Route> routes;
  Credentials credentials;
  HttpListener server;
  std::string address;
  uint16_t port = 0;

  void Serve(const Route& route, const httplib::Request& request, httplib::Response* response) const {
    const auto refuse = [response](int status, std::string_view why) {
      response->status = status;
      response->set_content(Concat(why, "\n"), kText);
    };
    const absl::Status allowed = credentials.CheckAuthorization(request.get_header_value("Authorization"));
    if (!allowed.ok()) {
      response->set_header("WWW-Authenticate", "Bearer");
      return refuse(401, std::string(allowed.message()));
    }
    if (route.changes && FromElsewhere(request)) {
      return refuse(403, "a page of another origin may change nothing here");
    }
    HttpRequest plain{.path = request.path, .query = {}};
    for (const auto& [name, value] : request.params) plain.query[name] = value;
    for (size_t i = 1; i < request.matches.size(); ++i) plain.parts.push_back(request.matches[i].str());
    const HttpReply reply = route.handler(plain);
    response->status = reply.status;
    response->set_content(reply.body, reply.content_type);
  }
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
  state_->routes.push_back({path, std::move(handler), false});
}

void HttpServer::Post(const std::string& path, Handler handler) {
  state_->routes.push_back({path, std::move(handler), true});
}

absl::Status HttpServer::Start(const std::string& address, const Credentials& credentials) {
  const absl::StatusOr<HostPort> parts = ParseHostPort(address);
  if (!parts.ok()) return parts.status();
  State& state = *state_;
  state.credentials = credentials;
  HttpListener& server = state.server;
  server.Get("/healthz", [&state](const httplib::Request&, httplib::Response& response) {
    const absl::Status health = state.health();
    response.status = health.ok() ? 200 : 503;
    response.set_content(health.ok() ? "ok\n" : Concat(health.message(), "\n"), kText);
  });
  server.Get("/metrics", [&state](const httplib::Request&, httplib::Response& response) {
    response.set_content(state.metrics(), kMetricsText);
  });
  for (const State::Route& route : state.routes) {
    const auto serve = [&state, &route](const httplib::Request& request, httplib::Response& response) {
      state.Serve(route, request, &response);
    };
    if (route.changes) {
      server.Post(route.path, serve);
    } else {
      server.Get(route.path, serve);
    }
  }

  const absl::StatusOr<uint16_t> port = server.Start(parts->host, parts->port);
  if (!port.ok()) {
    return absl::Status(port.status().code(),
                        Concat("cannot listen on ", address,
                               " for HTTP (choose another --http-address): ", port.status().message()));
  }
  state.port = *port;
  state.address = JoinHostPort(parts->host, state.port);
  return absl::OkStatus();
}

void HttpServer::Stop() {
  state_->server.Stop();
}

uint16_t HttpServer::port() const {
  return state_->port;
}
const std::string& HttpServer::address() const {
  return state_->address;
}

}  // namespace c4::service
