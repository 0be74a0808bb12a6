#include "service/ingress.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include <utility>

#include "service/limits.h"
#include "service/listen.h"
#include "service/log.h"
#include "service/text.h"

namespace c4::service {
namespace {

constexpr size_t kBufferBytes = 64 << 10;
constexpr int kLookMs = 20;          // how often held-back bytes are asked about again
constexpr int64_t kTellMs = 10'000;  // between two lines about connections that were cut
// With TLS, answers of the handshake and of the protocol itself add to what is to be sent: a peer that does
// not read them is not read either.
constexpr size_t kMostUnsentBytes = 4 * kBufferBytes;
constexpr rlim_t kWantedDescriptors = 16'384;
constexpr rlim_t kOtherDescriptors = 256;  // files, HTTP, the library's own
constexpr char kMark[] = "c4-ingress/";
constexpr uint64_t kListenKey = 0;
constexpr uint64_t kWakeKey = 1;

// Three descriptors a connection; the soft limit is raised as far as the hard one allows.
size_t MostConnections() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return 128;
  if (limit.rlim_cur < kWantedDescriptors && limit.rlim_cur < limit.rlim_max) {
    rlimit raised = limit;
    raised.rlim_cur = std::min(kWantedDescriptors, limit.rlim_max);
    if (setrlimit(RLIMIT_NOFILE, &raised) == 0) limit = raised;
  }
  const rlim_t spare =
      limit.rlim_cur > 2 * kOtherDescriptors ? limit.rlim_cur - kOtherDescriptors : limit.rlim_cur / 2;
  return std::clamp<size_t>(spare / 3, 1, limits::kGrpcConnections);
}

// The end that the library does not have gets the peer's address for a name: it is what the library calls the
// peer. The number keeps the name free, as nobody listens there it leads nowhere.
void NameEnd(int fd, const std::string& peer, uint64_t id) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string name = Concat(kMark, peer, "/", getpid(), ".", id);
  if (name.size() + 1 >= sizeof address.sun_path) return;
  memcpy(address.sun_path + 1, name.data(), name.size());
  // Where somebody has taken it, the call's peer has no address, and is refused what takes one.
  (void)bind(fd, reinterpret_cast<const sockaddr*>(&address),
             static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size()));
}

// "ADDRESS:PORT/PID.NUMBER" of a name that NameEnd gave; empty for others.
std::string NameBehindIngress(std::string_view grpc_peer) {
  const std::string mark = std::string("unix-abstract:") + kMark;
  std::string plain;  // of the URI; only its own marks are encoded
  for (size_t i = 0; i < grpc_peer.size(); ++i) {
    const std::string_view code = grpc_peer.substr(i, 3);
    const bool known = code == "%5B" || code == "%5D" || code == "%00" || code == "%3A" || code == "%2F";
    plain += known ? static_cast<char>(std::stoi(std::string(code.substr(1)), nullptr, 16)) : grpc_peer[i];
    if (known) i += 2;
  }
  return plain.starts_with(mark) ? plain.substr(mark.size()) : "";
}

}  // namespace

std::string AddressBehindIngress(std::string_view grpc_peer) {
  const std::string name = NameBehindIngress(grpc_peer);
  const size_t end = name.find('/');
  return end == std::string::npos ? "" : name.substr(0, end);
}

std::vector<std::string> PeerCertificates::UrisOf(std::string_view grpc_peer) const {
  const std::string name = NameBehindIngress(grpc_peer);
  uint64_t connection = 0;
  const size_t dot = name.rfind('.');
  if (dot == std::string::npos) return {};
  const char* const end = name.data() + name.size();
  if (std::from_chars(name.data() + dot + 1, end, connection).ptr != end) return {};
  const std::scoped_lock lock(mutex_);
  const auto at = uris_.find(connection);
  return at == uris_.end() ? std::vector<std::string>() : at->second;
}

void PeerCertificates::Set(uint64_t connection, std::vector<std::string> uris) {
  const std::scoped_lock lock(mutex_);
  uris_[connection] = std::move(uris);
}

void PeerCertificates::Erase(uint64_t connection) {
  const std::scoped_lock lock(mutex_);
  uris_.erase(connection);
}

struct Ingress::Flow {
  int from = -1;
  int to = -1;
  std::string held;      // read, and not yet passed on
  size_t may_pass = 0;   // of it
  bool ended = false;    // nothing more comes
  bool shut = false;     // and the other side was told
  bool waits = false;    // for the meter
  bool full = false;     // `to` takes no more for now
  int64_t stuck_ms = 0;  // since when; 0: it is not
};

struct Ingress::Link {
  Link(uint64_t its_id, Http2Totals* totals, PeerCertificates* its_certificates)
      : id(its_id), meter(totals), certificates(its_certificates) {}
  ~Link() {
    close(in.from);
    close(in.to);
    if (library_end >= 0) close(library_end);
    if (tls != nullptr) certificates->Erase(id);
  }
  const uint64_t id;
  std::string peer;
  int64_t since_ms = 0;
  Http2Meter meter;
  PeerCertificates* const certificates;
  std::unique_ptr<TlsSession> tls;  // nullptr: it speaks in clear
  int library_end = -1;             // until the library has it
  Flow in;                          // from the peer
  Flow out;                         // to it
  uint32_t peer_events = 0;
  uint32_t own_events = 0;
};

absl::StatusOr<std::unique_ptr<Ingress>> Ingress::Open(const std::string& host, uint16_t port) {
  const absl::StatusOr<Listener> listener = ListenTcp(host, port);
  if (!listener.ok()) return listener.status();
  return std::unique_ptr<Ingress>(new Ingress(listener->fd, listener->port));
}

Ingress::Ingress(int listen_fd, uint16_t port) : listen_fd_(listen_fd), port_(port) {}

Ingress::~Ingress() {
  Stop();
  if (listen_fd_ >= 0) close(listen_fd_);
  if (epoll_fd_ >= 0) close(epoll_fd_);
  if (wake_fd_ >= 0) close(wake_fd_);
}

absl::Status Ingress::Start(std::unique_ptr<TlsServer> tls, std::function<void(int)> serve) {
  tls_ = std::move(tls);
  scratch_.resize(kBufferBytes);
  serve_ = std::move(serve);
  most_ = MostConnections();
  epoll_fd_ = epoll_create1(EPOLL_CLOEXEC);
  wake_fd_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  epoll_event wake{.events = EPOLLIN, .data = {.u64 = kWakeKey}};
  if (epoll_fd_ < 0 || wake_fd_ < 0 || epoll_ctl(epoll_fd_, EPOLL_CTL_ADD, wake_fd_, &wake) != 0) {
    return ErrnoStatus(errno, "cannot make the descriptors that connections are waited for with");
  }
  thread_ = std::thread([this] { Run(); });
  return absl::OkStatus();
}

void Ingress::Stop() {
  if (!thread_.joinable()) return;
  stop_ = true;
  eventfd_write(wake_fd_, 1);
  thread_.join();
  links_.clear();
}

void Ingress::Run() {
  pthread_setname_np(pthread_self(), "c4-ingress");
  std::array<epoll_event, 256> events{};
  int64_t looked_ms = 0;
  while (!stop_) {
    const bool accept = !closing_ && MonotonicMs() >= accept_again_ms_;
    if (accept != accepting_) {
      epoll_event event{.events = EPOLLIN, .data = {.u64 = kListenKey}};
      epoll_ctl(epoll_fd_, accept ? EPOLL_CTL_ADD : EPOLL_CTL_DEL, listen_fd_, &event);
      accepting_ = accept;
    }
    const int count = epoll_wait(epoll_fd_, events.data(), static_cast<int>(events.size()), kLookMs);
    for (int i = 0; i < count; ++i) {
      const uint64_t key = events[static_cast<size_t>(i)].data.u64;
      if (key == kListenKey) {
        Accept();
      } else if (key != kWakeKey) {
        // Both ends of a link have the same key: it may be over since.
        const auto at = links_.find(key >> 1);
        if (at == links_.end()) continue;
        // The peer is gone in both directions; with bytes held back this would be reported for ever.
        const bool gone = (events[static_cast<size_t>(i)].events & (EPOLLHUP | EPOLLERR)) != 0;
        if (gone && (key & 1) == 0) {
          links_.erase(at);
        } else {
          Serve(at->second.get());
        }
      }
    }
    const int64_t now_ms = MonotonicMs();
    if (now_ms - looked_ms < kLookMs) continue;
    looked_ms = now_ms;
    LookAtTime(now_ms);
  }
}

void Ingress::Accept() {
  for (int i = 0; i < 64; ++i) {
    const int fd = accept4(listen_fd_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd >= 0) {
      Admit(fd);
    } else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
      // The pending connection stays readable: without a pause this would be a loop.
      accept_again_ms_ = MonotonicMs() + 100;
      return Tell("", "descriptors have run out");
    } else if (errno != EINTR && errno != ECONNABORTED) {
      return;
    }
  }
}

void Ingress::Admit(int fd) {
  const std::string peer = NumericPeer(fd);
  if (links_.size() >= most_) {
    // One that has said nothing yet makes room; else the newest is turned away.
    const auto silent = std::find_if(links_.begin(), links_.end(),
                                     [](const auto& entry) { return !entry.second->meter.greeted(); });
    if (silent == links_.end()) {
      close(fd);
      return Tell(peer, Concat("there are ", most_, " connections"));
    }
    Cut(silent->second.get(), "says nothing while others wait");
  }
  std::array<int, 2> pair{};
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair.data()) != 0) {
    close(fd);
    return Tell(peer, "descriptors have run out");
  }
  const int yes = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
  auto link = std::make_unique<Link>(++next_id_, &totals_, certificates_.get());
  link->peer = peer;
  link->since_ms = MonotonicMs();
  link->in.from = link->out.to = fd;
  link->in.to = link->out.from = pair[0];
  link->library_end = pair[1];
  NameEnd(pair[0], peer, link->id);
  if (tls_ != nullptr) {
    link->tls = tls_->NewSession(link->since_ms);
    if (link->tls == nullptr) return Tell(peer, "there is no memory for TLS");
  }
  for (const int end : {fd, pair[0]}) {
    epoll_event event{.events = EPOLLIN, .data = {.u64 = link->id << 1 | (end == fd ? 0U : 1U)}};
    epoll_ctl(epoll_fd_, EPOLL_CTL_ADD, end, &event);
  }
  link->peer_events = link->own_events = EPOLLIN;
  Link* const added = link.get();
  links_[added->id] = std::move(link);
  if (added->tls == nullptr) serve_(std::exchange(added->library_end, -1));
  Serve(added);
}

bool Ingress::TakeSealed(Link* link, std::string_view bytes) {
  TlsSession& tls = *link->tls;
  const bool goes_on = tls.Take(bytes, &link->in.held, &link->out.held);
  link->out.may_pass = link->out.held.size();
  if (!tls.fault().empty()) {
    // An alert, which says why.
    (void)send(link->out.to, link->out.held.data(), link->out.held.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    Tell(link->peer, tls.fault());
    return false;
  }
  if (!goes_on) link->in.ended = true;
  if (link->library_end >= 0 && tls.established()) {
    certificates_->Set(link->id, tls.uris());
    serve_(std::exchange(link->library_end, -1));
  }
  return true;
}

bool Ingress::Fill(Link* link, Flow* flow) {
  if (flow == &link->in && link->out.held.size() > kMostUnsentBytes) return true;
  const ssize_t bytes = recv(flow->from, scratch_.data(), scratch_.size(), MSG_DONTWAIT);
  if (bytes < 0) return errno == EAGAIN || errno == EINTR;
  flow->ended = bytes == 0;
  const std::string_view read(scratch_.data(), static_cast<size_t>(bytes));
  if (link->tls == nullptr) {
    flow->held = read;
  } else if (flow == &link->in) {
    return read.empty() || TakeSealed(link, read);
  } else if (read.empty()) {
    link->tls->End(&flow->held);
  } else if (!link->tls->Put(read, &flow->held)) {
    Tell(link->peer, "there is no memory for TLS");
    return false;
  }
  return true;
}

bool Ingress::Pump(Link* link, Flow* flow) {
  const bool metered = flow == &link->in;
  flow->full = false;
  flow->waits = false;
  // A few rounds only: the others have their turn.
  for (int round = 0; round < 4; ++round) {
    if (flow->held.empty() && !flow->ended) {
      if (!Fill(link, flow)) return false;
      flow->may_pass = metered ? 0 : flow->held.size();
    }
    if (metered && flow->may_pass < flow->held.size()) {
      const std::string_view rest = std::string_view(flow->held).substr(flow->may_pass);
      flow->may_pass += link->meter.Pass(rest, MonotonicMs());
      if (link->meter.fault() != nullptr) {
        Tell(link->peer, link->meter.fault());
        return false;
      }
    }
    if (flow->may_pass > 0) {
      const ssize_t sent = send(flow->to, flow->held.data(), flow->may_pass, MSG_DONTWAIT | MSG_NOSIGNAL);
      if (sent < 0 && errno != EAGAIN && errno != EINTR) return false;
      if (sent > 0) {
        flow->held.erase(0, static_cast<size_t>(sent));
        flow->may_pass -= static_cast<size_t>(sent);
        flow->stuck_ms = 0;
      }
      flow->full = flow->may_pass > 0;
      if (flow->full && flow->stuck_ms == 0) flow->stuck_ms = MonotonicMs();
    }
    flow->waits = !flow->full && !flow->held.empty();
    if (flow->full || flow->waits) return true;
    if (flow->ended) {
      if (!flow->shut) shutdown(flow->to, SHUT_WR);
      flow->shut = true;
      return true;
    }
    if (flow->held.capacity() > 0 && flow->held.empty() && round > 0) break;
  }
  return true;
}

void Ingress::Serve(Link* link) {
  const bool goes_on = Pump(link, &link->in) && Pump(link, &link->out);
  if (!goes_on || link->out.shut) {  // the library has closed it
    links_.erase(link->id);
    return;
  }
  Watch(link);
}

void Ingress::Watch(Link* link) {
  const Flow& in = link->in;
  const Flow& out = link->out;
  const auto wanted = [](const Flow& reads, const Flow& writes) {
    const bool read = !reads.ended && reads.held.empty() && writes.held.size() <= kMostUnsentBytes;
    return (read ? uint32_t{EPOLLIN} : 0U) | (writes.full ? uint32_t{EPOLLOUT} : 0U);
  };
  const auto set = [&](int fd, uint64_t side, uint32_t events, uint32_t* now) {
    if (*now == events) return;
    // An end that is over would report that as long as it is watched.
    if (side == 1 && events == 0 && out.ended) epoll_ctl(epoll_fd_, EPOLL_CTL_DEL, fd, nullptr);
    if (side == 1 && out.ended) return;  // it is gone: nobody takes what comes in
    epoll_event event{.events = events, .data = {.u64 = link->id << 1 | side}};
    epoll_ctl(epoll_fd_, EPOLL_CTL_MOD, fd, &event);
    *now = events;
  };
  set(in.from, 0, wanted(in, out), &link->peer_events);
  set(in.to, 1, wanted(out, in), &link->own_events);
}

void Ingress::Cut(Link* link, const char* why) {
  Tell(link->peer, why);
  links_.erase(link->id);
}

void Ingress::LookAtTime(int64_t now_ms) {
  std::vector<Link*> waiting;
  std::vector<std::pair<Link*, const char*>> over;
  for (const auto& [id, link] : links_) {
    const auto stuck = [&](const Flow& flow) {
      return flow.full && now_ms - flow.stuck_ms > limits::kGrpcStuckMs;
    };
    if (!link->meter.greeted() && now_ms - link->since_ms > limits::kGrpcHandshakeMs) {
      over.emplace_back(link.get(), "has said nothing for too long");
    } else if (stuck(link->out)) {
      over.emplace_back(link.get(), "does not read what it asked for");
    } else if (link->in.waits) {
      waiting.push_back(link.get());
    }
  }
  for (const auto& [link, why] : over) Cut(link, why);
  // Another one is first each time: the tokens of all are few.
  if (!waiting.empty()) {
    const auto first =
        waiting.begin() + static_cast<ptrdiff_t>(static_cast<size_t>(now_ms / kLookMs) % waiting.size());
    std::rotate(waiting.begin(), first, waiting.end());
  }
  for (Link* const link : waiting) Serve(link);
}

void Ingress::Tell(const std::string& peer, std::string_view why) {
  ++untold_;
  const int64_t now_ms = MonotonicMs();
  if (told_ms_ != 0 && now_ms - told_ms_ < kTellMs) return;
  LogWarning("a gRPC connection", peer.empty() ? "" : " of ", peer, " is cut: ", why,
             untold_ > 1 ? Concat(" (", untold_, " since the last such line)") : "");
  told_ms_ = now_ms;
  untold_ = 0;
}

}  // namespace c4::service
