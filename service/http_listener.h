// The small HTTP/1.1 server below HttpServer. It reads a request's head within a size and a time, and
// never a body: one that is too long, or comes with a GET, is refused unread. Each connection carries
// one request. One thread waits for all clients, so a slow client holds up no other; beyond the most
// clients, the slowest is cut for the newest. Handlers run on a few threads of their own, /healthz
// before the others. The waiting thread feeds the streams. One thread sets the server up, starts it and
// stops it.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "service/status.h"

namespace httplib {
struct Request;
struct Response;
}  // namespace httplib

namespace c4::service {

class HttpListener {
 public:
  using Stream = std::function<bool(std::string* more)>;  // HttpStream of http_server.h
  using Handler = std::function<void(const httplib::Request&, httplib::Response&, Stream*)>;

  HttpListener();
  ~HttpListener();  // stops
  HttpListener(const HttpListener&) = delete;
  HttpListener& operator=(const HttpListener&) = delete;

  // REQUIRES: before Start. `path` is matched whole, as a regular expression; the first that fits counts.
  void Get(const std::string& path, Handler handler);
  void Post(const std::string& path, Handler handler);

  // Returns the port.
  absl::StatusOr<uint16_t> Start(const std::string& host, uint16_t port);
  void Stop();  // handlers under way are waited for; their replies are dropped

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace c4::service
