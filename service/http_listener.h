// The small HTTP/1.1 server below HttpServer. It reads a request's head within a size and a time. A body it
// reads only where a handler, having seen the head, asks for it: few at a time, each within the size that its
// route allows and a time. One that is too long, or that comes with a GET, is refused before a byte of it is
// taken. Each connection carries one request. One thread waits for all clients, so slow ones hold no other
// up; when there are as many as may be, the one that dawdles longest is cut for the newest. Handlers run on a
// few threads of their own, /healthz before the others. Streams are fed by the waiting thread, and take no
// other one. Set up, started and stopped by one thread.
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
  using Body = std::function<void(std::string body, httplib::Response&)>;
  // What a handler may ask for beyond its response, one of them at most: a stream after it, or to see the
  // request's body first, with which the response is then made.
  struct More {
    Stream stream;
    Body body;
  };
  using Handler = std::function<void(const httplib::Request&, httplib::Response&, More*)>;

  HttpListener();
  ~HttpListener();  // stops
  HttpListener(const HttpListener&) = delete;
  HttpListener& operator=(const HttpListener&) = delete;

  // REQUIRES: before Start. `path` is matched whole, as a regular expression; the first that fits counts.
  void Get(const std::string& path, Handler handler);
  // A body of up to `most_body` bytes may come along.
  void Post(const std::string& path, size_t most_body, Handler handler);

  // Returns the port.
  absl::StatusOr<uint16_t> Start(const std::string& host, uint16_t port);
  void Stop();  // handlers under way are waited for; their replies are dropped

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace c4::service
