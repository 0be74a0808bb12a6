#include "service/http_server.h"

#include <httplib.h>
#include <utility>
#include <vector>

#include "service/address.h"
#include "service/http_listener.h"
#include "service/http_names.h"
#include "service/limits.h"
#include "service/text.h"

namespace c4::service {
namespace {

constexpr char kText[] = "text/plain; charset=utf-8";
constexpr char kMetricsText[] = "text/plain; version=0.0.4; charset=utf-8";

// Browsers name the page that a request comes from; a proxy may have put TLS before it.
bool FromElsewhere(const httplib::Request& request) {
  const std::string origin = request.get_header_value("Origin");
  const std::string host = request.get_header_value("Host");
  return !origin.empty() && origin != "http://" + host && origin != "https://" + host;
}

void Fill(HttpReply reply, httplib::Response* response) {
  response->status = reply.status;
  response->set_content(reply.body, reply.content_type);
  for (const auto& [name, value] : reply.headers) response->set_header(name, value);
}

constexpr char kNotOurName[] =
    "this host is not known here by the name that was asked for; ask by its address, or name it with "
    "--http-names";

}  // namespace

struct HttpServer::State {
  struct Route {
    std::string path;
    Handler handler;
    bool changes = false;  // POST
    size_t most_body = limits::kHttpBodyBytes;
    FileHandler file_handler = {};  // in the place of the other
  };

  std::function<absl::Status()> health;
  std::function<std::string()> metrics;
  std::vector<Route> routes;
  Gate gate;
  std::string names;
  HttpListener server;
  std::string address;
  uint16_t port = 0;

  void Serve(const Route& route, const httplib::Request& request, httplib::Response* response,
             HttpListener::More* more) const {
    const auto refuse = [response](int status, std::string_view why) {
      response->status = status;
      response->set_content(Concat(why, "\n"), kText);
    };
    if (!IsOurName(request.get_header_value("Host"), names)) return refuse(403, kNotOurName);
    if (route.changes && FromElsewhere(request)) {
      return refuse(403, "a page of another origin may change nothing here");
    }
    HttpRequest plain{.path = request.path,
                      .query = {},
                      .client = request.remote_addr,
                      .accept_encoding = request.get_header_value("Accept-Encoding"),
                      .if_none_match = request.get_header_value("If-None-Match")};
    for (const auto& [name, value] : request.params) plain.query[name] = value;
    CallFacts facts{.call = Concat(route.changes ? "POST " : "GET ", route.path),
                    .detail = request.path,
                    .authorization = request.get_header_value("Authorization"),
                    .peer = JoinHostPort(request.remote_addr, static_cast<uint16_t>(request.remote_port)),
                    .local = JoinHostPort(request.local_addr, static_cast<uint16_t>(request.local_port))};
    for (const auto& [name, value] : plain.query) facts.detail += Concat(" ", name, "=", value);
    const absl::StatusOr<Identity> caller = gate.Admit(facts);
    if (absl::IsUnauthenticated(caller.status())) {
      response->set_header("WWW-Authenticate", "Bearer");
      return refuse(401, std::string(caller.status().message()));
    }
    if (!caller.ok()) {
      return refuse(absl::IsPermissionDenied(caller.status()) ? 403 : 503,
                    std::string(caller.status().message()));
    }
    for (size_t i = 1; i < request.matches.size(); ++i) plain.parts.push_back(request.matches[i].str());
    plain.only_job = caller->job;
    if (route.file_handler) {
      more->body = [&route, plain = std::move(plain)](std::string file, httplib::Response& answer) {
        Fill(route.file_handler(plain, std::move(file)), &answer);
      };
      return;
    }
    HttpReply reply = route.handler(plain);
    more->stream = std::move(reply.stream);
    Fill(std::move(reply), response);
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

void HttpServer::PostFile(const std::string& path, size_t most_bytes, FileHandler handler) {
  state_->routes.push_back({path, nullptr, true, most_bytes, std::move(handler)});
}

absl::Status HttpServer::Start(const std::string& address, const Gate& gate, const std::string& names) {
  const absl::StatusOr<HostPort> parts = ParseHostPort(address);
  if (!parts.ok()) return parts.status();
  State& state = *state_;
  state.gate = gate;
  state.names = names;
  HttpListener& server = state.server;
  server.Get("/healthz", [&state](const httplib::Request&, httplib::Response& response, HttpListener::More*) {
    const absl::Status health = state.health();
    response.status = health.ok() ? 200 : 503;
    response.set_content(health.ok() ? "ok\n" : Concat(health.message(), "\n"), kText);
  });
  server.Get("/metrics",
             [&state](const httplib::Request& request, httplib::Response& response, HttpListener::More*) {
               if (!IsOurName(request.get_header_value("Host"), state.names)) {
                 response.status = 403;
                 return response.set_content(Concat(kNotOurName, "\n"), kText);
               }
               response.set_content(state.metrics(), kMetricsText);
             });
  for (const State::Route& route : state.routes) {
    const auto serve = [&state, &route](const httplib::Request& request, httplib::Response& response,
                                        HttpListener::More* more) {
      state.Serve(route, request, &response, more);
    };
    if (route.changes) {
      server.Post(route.path, route.most_body, serve);
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
