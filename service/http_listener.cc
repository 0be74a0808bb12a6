#include "service/http_listener.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <condition_variable>
#include <deque>
#include <httplib.h>
#include <map>
#include <mutex>
#include <poll.h>
#include <pthread.h>
#include <regex>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

#include "service/address.h"
#include "service/http_request.h"
#include "service/limits.h"
#include "service/listen.h"
#include "service/text.h"

namespace c4::service {
namespace {

constexpr size_t kPieceBytes = 16 << 10;
constexpr int kAcceptsARound = 64;

void SplitAddress(const std::string& address, std::string* host, int* port) {
  const absl::StatusOr<HostPort> parts = ParseHostPort(address);
  if (!parts.ok()) return;
  *host = parts->host;
  *port = parts->port;
}

std::string_view Reason(int status) {
  switch (status) {
    case 200:
      return "OK";
    case 202:
      return "Accepted";
    case 400:
      return "Bad Request";
    case 401:
      return "Unauthorized";
    case 403:
      return "Forbidden";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 304:
      return "Not Modified";
    case 413:
      return "Content Too Large";
    case 429:
      return "Too Many Requests";
    case 431:
      return "Request Header Fields Too Large";
    case 502:
      return "Bad Gateway";
    case 503:
      return "Service Unavailable";
    default:
      return "See the Number";
  }
}

// ParseRequestHead has looked at it: a number, or nothing.
size_t BodyBytes(const httplib::Request& request) {
  const std::string length = request.get_header_value("Content-Length");
  size_t bytes = 0;
  std::from_chars(length.data(), length.data() + length.size(), bytes);
  return bytes;
}

// Of a stream the end of the connection is the end of the body.
std::string Text(const httplib::Response& response, bool head_only, bool streams = false) {
  std::string text = Concat("HTTP/1.1 ", response.status, " ", Reason(response.status), "\r\n");
  if (!streams) text += Concat("Content-Length: ", response.body.size(), "\r\n");
  text += "Connection: close\r\n";
  for (const auto& [name, value] : response.headers) {
    if (name == "Connection" || name == "Content-Length") continue;
    text += Concat(name, ": ", value, "\r\n");
  }
  text += "\r\n";
  return head_only ? text : text + response.body;
}

}  // namespace

struct HttpListener::State {
  enum class Phase { kHead, kServed, kBody, kReply, kStream, kDrain };
  struct Client {
    uint64_t id = 0;
    Phase phase = Phase::kHead;
    int64_t until_ms = 0;
    std::string bytes;      // of the head, then of the body, then of the reply
    size_t body_bytes = 0;  // that the head announces
    size_t drained = 0;
    Stream stream;
    Body body;  // of phase kBody
  };
  struct Route {
    bool post;
    size_t most_body;
    std::regex path;
    Handler handler;
  };
  struct Job {
    int fd = -1;
    uint64_t id = 0;
    httplib::Request request;
    Body body = {};  // the rest of a request whose body is there
    std::string bytes = {};
  };
  struct Done {
    int fd = -1;
    uint64_t id = 0;
    std::string reply;
    More more;
  };

  std::vector<Route> routes;
  size_t most_body = limits::kHttpBodyBytes;  // of any route
  int listen_fd = -1;
  int wake_fd = -1;
  std::map<int, Client> clients;  // by descriptor; the waiting thread's own
  uint64_t next_id = 1;
  int64_t accept_again_ms = 0;
  std::atomic<bool> stop = false;
  std::thread waiter;
  std::vector<std::thread> workers;
  std::mutex mutex;  // guards what follows
  std::condition_variable work;
  std::deque<Job> jobs;
  std::vector<Done> done;
  bool ending = false;

  void Wait();
  void Accept();
  bool MakeRoom();
  bool Touch(int fd, Client* client);
  bool ReadHead(int fd, Client* client);
  bool ReadBody(int fd, Client* client);
  bool Reply(int fd, Client* client);
  bool Drain(int fd, Client* client);
  bool Flow(int fd, Client* client);
  void FeedStreams();
  void Begin(Client* client, Stream stream);
  void BeginBody(Client* client, Body body);
  void Give(Job job, bool first);
  void Answer(Client* client, std::string text);
  void TakeDone();
  void Work();
  httplib::Response Handle(httplib::Request* request, More* more) const;
};

// Every client that is not with a handler is the server's to cut; the one whose time is up first has had
// most.
bool HttpListener::State::MakeRoom() {
  auto oldest = clients.end();
  for (auto at = clients.begin(); at != clients.end(); ++at) {
    if (at->second.phase == Phase::kServed) continue;
    if (oldest == clients.end() || at->second.until_ms < oldest->second.until_ms) oldest = at;
  }
  if (oldest == clients.end()) return false;
  close(oldest->first);
  clients.erase(oldest);
  return true;
}

void HttpListener::State::Accept() {
  for (int i = 0; i < kAcceptsARound; ++i) {
    const int fd = accept4(listen_fd, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0) {
      const bool scarce = errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM;
      if (scarce && !MakeRoom()) accept_again_ms = MonotonicMs() + 100;
      if (scarce || (errno != EINTR && errno != ECONNABORTED)) return;
      continue;
    }
    if (clients.size() >= limits::kHttpConnections && !MakeRoom()) {
      close(fd);
      continue;
    }
    Client& client = clients[fd];
    client.id = next_id++;
    client.until_ms = MonotonicMs() + limits::kHttpHeadMs;
    // Who has already said all is served, however many others dawdle.
    if (!Touch(fd, &client)) {
      close(fd);
      clients.erase(fd);
    }
  }
}

bool HttpListener::State::Touch(int fd, Client* client) {
  switch (client->phase) {
    case Phase::kHead:
      return ReadHead(fd, client);
    case Phase::kServed:
      return true;
    case Phase::kBody:
      return ReadBody(fd, client);
    case Phase::kReply:
      return Reply(fd, client);
    case Phase::kStream:
      return Flow(fd, client);
    case Phase::kDrain:
      return Drain(fd, client);
  }
  return false;
}

bool HttpListener::State::ReadHead(int fd, Client* client) {
  char piece[kPieceBytes];
  const ssize_t bytes = recv(fd, piece, sizeof piece, MSG_DONTWAIT);
  if (bytes < 0) return errno == EAGAIN || errno == EINTR;
  if (bytes == 0) return false;
  client->bytes.append(piece, static_cast<size_t>(bytes));
  const size_t end = client->bytes.find("\r\n\r\n");
  httplib::Response refusal;
  if (end == std::string::npos || end > limits::kHttpHeadBytes) {
    if (client->bytes.size() <= limits::kHttpHeadBytes) return true;
    refusal.status = 431;
    Answer(client, Text(refusal, false));
    return Reply(fd, client);
  }
  Job job{.fd = fd, .id = client->id, .request = {}};
  refusal.status = ParseRequestHead(std::string_view(client->bytes).substr(0, end), most_body, &job.request);
  if (refusal.status != 0) {
    Answer(client, Text(refusal, false));
    return Reply(fd, client);
  }
  SplitAddress(NumericPeer(fd), &job.request.remote_addr, &job.request.remote_port);
  SplitAddress(NumericLocal(fd), &job.request.local_addr, &job.request.local_port);
  client->phase = Phase::kServed;
  client->body_bytes = BodyBytes(job.request);
  client->bytes.erase(0, end + 4);
  const bool first = job.request.path == "/healthz";
  Give(std::move(job), first);
  return true;
}

void HttpListener::State::Give(Job job, bool first) {
  const std::lock_guard lock(mutex);
  if (first) {
    jobs.push_front(std::move(job));
  } else {
    jobs.push_back(std::move(job));
  }
  work.notify_one();
}

bool HttpListener::State::ReadBody(int fd, Client* client) {
  while (client->bytes.size() < client->body_bytes) {
    char piece[kPieceBytes];
    const ssize_t bytes = recv(fd, piece, sizeof piece, MSG_DONTWAIT);
    if (bytes < 0) return errno == EAGAIN || errno == EINTR;
    if (bytes == 0) return false;
    client->bytes.append(piece, static_cast<size_t>(bytes));
  }
  client->bytes.resize(client->body_bytes);
  client->phase = Phase::kServed;
  Give({.fd = fd,
        .id = client->id,
        .request = {},
        .body = std::exchange(client->body, nullptr),
        .bytes = std::exchange(client->bytes, {})},
       false);
  return true;
}

void HttpListener::State::Answer(Client* client, std::string text) {
  client->phase = Phase::kReply;
  client->bytes = std::move(text);
  client->until_ms = MonotonicMs() + limits::kHttpReplyMs;
}

bool HttpListener::State::Reply(int fd, Client* client) {
  const ssize_t sent = send(fd, client->bytes.data(), client->bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  if (sent < 0) return errno == EAGAIN || errno == EINTR;
  client->bytes.erase(0, static_cast<size_t>(sent));
  if (!client->bytes.empty()) return true;
  // Closed with something unread, the connection would be reset, and the reply with it.
  shutdown(fd, SHUT_WR);
  client->phase = Phase::kDrain;
  client->until_ms = MonotonicMs() + limits::kHttpDrainMs;
  return Drain(fd, client);
}

// What a stream has said, as far as the client takes it. What the client says is of no interest but for its
// end.
bool HttpListener::State::Flow(int fd, Client* client) {
  char piece[kPieceBytes];
  const ssize_t heard = recv(fd, piece, sizeof piece, MSG_DONTWAIT);
  if (heard == 0 || (heard < 0 && errno != EAGAIN && errno != EINTR)) return false;
  if (heard > 0) client->drained += static_cast<size_t>(heard);
  if (client->drained > limits::kHttpBodyBytes) return false;
  if (client->bytes.empty()) return true;
  const ssize_t sent = send(fd, client->bytes.data(), client->bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  if (sent < 0) return errno == EAGAIN || errno == EINTR;
  client->bytes.erase(0, static_cast<size_t>(sent));
  if (sent > 0) client->until_ms = MonotonicMs() + limits::kHttpStreamStuckMs;
  return true;
}

void HttpListener::State::Begin(Client* client, Stream stream) {
  const auto streams = std::count_if(clients.begin(), clients.end(),
                                     [](const auto& entry) { return entry.second.phase == Phase::kStream; });
  if (static_cast<size_t>(streams) >= limits::kHttpStreams) {
    httplib::Response refusal;
    refusal.status = 503;
    refusal.set_content("too many streams are open here already\n", "text/plain");
    return Answer(client, Text(refusal, false));
  }
  client->phase = Phase::kStream;
  client->stream = std::move(stream);
  client->until_ms = MonotonicMs() + limits::kHttpStreamStuckMs;
}

void HttpListener::State::BeginBody(Client* client, Body body) {
  const auto bodies = std::count_if(clients.begin(), clients.end(),
                                    [](const auto& entry) { return entry.second.phase == Phase::kBody; });
  if (static_cast<size_t>(bodies) >= limits::kHttpBodies) {
    httplib::Response refusal;
    refusal.status = 503;
    refusal.set_content("others are sending files already; try again in a moment\n", "text/plain");
    return Answer(client, Text(refusal, false));
  }
  client->phase = Phase::kBody;
  client->body = std::move(body);
  client->until_ms = MonotonicMs() + limits::kHttpBodyMs;
}

void HttpListener::State::FeedStreams() {
  const int64_t now_ms = MonotonicMs();
  for (auto at = clients.begin(); at != clients.end();) {
    auto& [fd, client] = *at;
    bool goes_on = true;
    if (client.phase == Phase::kStream) {
      const bool idle = client.bytes.empty();
      const bool over = !client.stream(&client.bytes);
      if (idle) client.until_ms = now_ms + limits::kHttpStreamStuckMs;
      goes_on = client.bytes.size() <= limits::kHttpStreamBytes;
      if (goes_on && over) {
        client.phase = Phase::kReply;  // what is left, and the end
        client.stream = nullptr;
      } else if (goes_on && !client.bytes.empty()) {
        goes_on = Flow(fd, &client);
      }
    }
    if (goes_on) {
      ++at;
      continue;
    }
    close(fd);
    at = clients.erase(at);
  }
}

bool HttpListener::State::Drain(int fd, Client* client) {
  char piece[kPieceBytes];
  const ssize_t bytes = recv(fd, piece, sizeof piece, MSG_DONTWAIT);
  if (bytes < 0) return errno == EAGAIN || errno == EINTR;
  client->drained += static_cast<size_t>(bytes);
  // Also somewhat more than any route takes: most clients send all of it before they see why it is refused.
  return bytes > 0 && client->drained <= 2 * most_body + kPieceBytes;
}

void HttpListener::State::TakeDone() {
  std::vector<Done> ready;
  {
    const std::lock_guard lock(mutex);
    ready.swap(done);
  }
  for (Done& item : ready) {
    const auto at = clients.find(item.fd);
    if (at == clients.end() || at->second.id != item.id) continue;
    if (item.more.body) {
      BeginBody(&at->second, std::move(item.more.body));
    } else {
      Answer(&at->second, std::move(item.reply));
      if (item.more.stream) Begin(&at->second, std::move(item.more.stream));
    }
    if (Touch(at->first, &at->second)) continue;
    close(at->first);
    clients.erase(at);
  }
}

void HttpListener::State::Wait() {
  pthread_setname_np(pthread_self(), "c4-http");
  std::vector<pollfd> entries;
  while (!stop) {
    entries.assign({{wake_fd, POLLIN, 0}, {MonotonicMs() >= accept_again_ms ? listen_fd : -1, POLLIN, 0}});
    for (const auto& [fd, client] : clients) {
      const bool waits = client.phase != Phase::kServed;
      const bool flows = client.phase == Phase::kStream && !client.bytes.empty();
      const bool says = client.phase == Phase::kReply || flows;
      entries.push_back(
          {waits ? fd : -1, static_cast<short>(says ? POLLOUT | (flows ? POLLIN : 0) : POLLIN), 0});
    }
    if (poll(entries.data(), entries.size(), 100) < 0 && errno != EINTR) {
      accept_again_ms = MonotonicMs() + 100;
      continue;
    }
    if (entries[0].revents != 0) {
      eventfd_t ignored = 0;
      eventfd_read(wake_fd, &ignored);
    }
    for (size_t i = 2; i < entries.size(); ++i) {
      if (entries[i].revents == 0) continue;
      const auto at = clients.find(entries[i].fd);
      if (at == clients.end() || Touch(at->first, &at->second)) continue;
      close(at->first);
      clients.erase(at);
    }
    TakeDone();
    FeedStreams();
    if (entries[1].revents != 0) Accept();
    const int64_t now_ms = MonotonicMs();
    std::erase_if(clients, [&](const auto& entry) {
      const bool over = entry.second.phase != Phase::kServed && now_ms > entry.second.until_ms;
      if (over) close(entry.first);
      return over;
    });
  }
}

httplib::Response HttpListener::State::Handle(httplib::Request* request, More* more) const {
  httplib::Response response;
  response.status = 404;
  const bool post = request->method == "POST";
  if (!post && request->method != "GET" && request->method != "HEAD") {
    response.status = 405;
    return response;
  }
  for (const Route& route : routes) {
    if (route.post != post || !std::regex_match(request->path, request->matches, route.path)) continue;
    response.status = 200;
    if (post && BodyBytes(*request) > route.most_body) {
      response.status = 413;
    } else {
      route.handler(*request, response, more);
    }
    break;
  }
  return response;
}

void HttpListener::State::Work() {
  pthread_setname_np(pthread_self(), "c4-http-work");
  std::unique_lock lock(mutex);
  for (;;) {
    work.wait(lock, [this] { return ending || !jobs.empty(); });
    if (ending) return;
    Job job = std::move(jobs.front());
    jobs.pop_front();
    lock.unlock();
    Done result{.fd = job.fd, .id = job.id, .reply = {}, .more = {}};
    const bool head_only = job.request.method == "HEAD";
    httplib::Response response;
    if (job.body) {
      response.status = 200;
      job.body(std::move(job.bytes), response);
    } else {
      response = Handle(&job.request, &result.more);
    }
    if (head_only) result.more.stream = nullptr;
    result.reply = Text(response, head_only, result.more.stream != nullptr);
    lock.lock();
    done.push_back(std::move(result));
    eventfd_write(wake_fd, 1);
  }
}

HttpListener::HttpListener() : state_(std::make_unique<State>()) {}

HttpListener::~HttpListener() {
  Stop();
}

void HttpListener::Get(const std::string& path, Handler handler) {
  state_->routes.push_back({false, 0, std::regex(path), std::move(handler)});
}

void HttpListener::Post(const std::string& path, size_t most_body, Handler handler) {
  state_->most_body = std::max(state_->most_body, most_body);
  state_->routes.push_back({true, most_body, std::regex(path), std::move(handler)});
}

absl::StatusOr<uint16_t> HttpListener::Start(const std::string& host, uint16_t port) {
  const absl::StatusOr<Listener> listener = ListenTcp(host, port);
  if (!listener.ok()) return listener.status();
  State& state = *state_;
  state.listen_fd = listener->fd;
  state.wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (state.wake_fd < 0) return ErrnoStatus(errno, "cannot make an eventfd");
  state.waiter = std::thread([&state] { state.Wait(); });
  for (int i = 0; i < limits::kHttpWorkers; ++i) state.workers.emplace_back([&state] { state.Work(); });
  return listener->port;
}

void HttpListener::Stop() {
  State& state = *state_;
  if (state.waiter.joinable()) {
    state.stop = true;
    eventfd_write(state.wake_fd, 1);
    state.waiter.join();
    {
      const std::lock_guard lock(state.mutex);
      state.ending = true;
    }
    state.work.notify_all();
    for (std::thread& worker : state.workers) worker.join();
    state.workers.clear();
  }
  for (const auto& [fd, client] : state.clients) close(fd);
  state.clients.clear();
  for (int* const fd : {&state.listen_fd, &state.wake_fd}) {
    if (*fd >= 0) close(*fd);
    *fd = -1;
  }
}

}  // namespace c4::service
