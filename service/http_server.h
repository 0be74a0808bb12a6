// The HTTP side of a daemon: /healthz (200 "ok", or 503 and a sentence), /metrics (Prometheus' text) and
// further routes. A POST that a page of another origin sent is refused, and so is every request that asks for
// another host than ours (DNS rebinding): whoever looks at that page may reach our port. Handlers run on the
// server's own threads, several at a time: they must be safe for that, and must not throw. Each of the
// further routes goes through the gate by its name in the table of calls (authorize.h; "Authorization: Bearer
// …"); health and metrics are open to everybody. Plain HTTP: bind it to loopback or put a proxy in front. Set
// up and stopped by one thread; the destructor stops.
//
// A reply may be a stream instead of a body (HttpReply::stream): what it has to say is sent as it comes,
// until it ends, the client leaves, or the client does not take what was said (limits::kHttpStreamBytes).
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "service/gate.h"
#include "service/status.h"

namespace c4::service {

struct HttpRequest {
  std::string path;
  std::map<std::string, std::string> query;  // the last of a name counts
  std::vector<std::string> parts = {};       // what the groups of the route's expression matched
  std::string client = {};                   // its numeric address
  std::string only_job = {};                 // that the caller may see; empty: any
  std::string accept_encoding = {};          // these as the headers say
  std::string if_none_match = {};
};

// Asked some times a second for what is to be sent next, which it puts into `more`; false: it is over. Never
// waits. Called by one thread, which all streams share.
using HttpStream = std::function<bool(std::string* more)>;

struct HttpReply {
  int status = 200;
  std::string body;
  std::string content_type = "application/json";
  std::vector<std::pair<std::string, std::string>> headers = {};
  HttpStream stream = {};  // after the body, which is then its beginning
};

class HttpServer {
 public:
  using Handler = std::function<HttpReply(const HttpRequest&)>;
  using FileHandler = std::function<HttpReply(const HttpRequest&, std::string file)>;

  // `health`: OK, or why not. `metrics`: the text of /metrics.
  HttpServer(std::function<absl::Status()> health, std::function<std::string()> metrics);
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  // REQUIRES: before Start. `path` is matched whole, as a regular expression.
  void Get(const std::string& path, Handler handler);
  // What is to be done stands in the path and the query; a body is not read.
  void Post(const std::string& path, Handler handler);
  // The body is a file of at most `most_bytes`: read once the caller may send it, and wholly in memory.
  void PostFile(const std::string& path, size_t most_bytes, FileHandler handler);

  // `address` is host:port; port 0: any. Fails with the address and the reason in the message.
  // `names`: by commas, under which it may be asked for besides numeric addresses and this host's own name.
  absl::Status Start(const std::string& address, const Gate& gate, const std::string& names = {});
  void Stop();

  uint16_t port() const;
  const std::string& address() const;  // host as given, port as bound

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace c4::service
