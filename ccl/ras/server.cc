#include "ccl/ras/server.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <limits>
#include <list>
#include <mutex>
#include <netinet/in.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "ccl/base/caught.h"
#include "ccl/base/clock.h"
#include "ccl/base/fork.h"
#include "ccl/base/identity.h"
#include "ccl/base/kernel.h"
#include "ccl/base/knobs.h"
#include "ccl/base/log.h"
#include "ccl/base/thread.h"
#include "ccl/ras/gathering.h"
#include "ccl/ras/session.h"

namespace c4::ras {
namespace {

constexpr size_t kMostClients = 32;
constexpr uint64_t kSecondNs = 1000000000;
constexpr uint64_t kSilentNs = 60 * kSecondNs;  // a client that says and takes nothing for so long is closed
constexpr uint64_t kShortageNs = kSecondNs;
constexpr useconds_t kPauseUs = 100000;
constexpr size_t kMostDatagrams = 64;  // that are read of a socket in one go

// Somebody who has connected to the port.
struct Client {
  Fd fd;
  Session session;
  std::string out;
  std::unique_ptr<Gathering> gathering;
  bool again = false;   // a communicator that it asks in is gone: from the beginning
  bool closes = false;  // once `out` is sent
  uint64_t heard_ns = 0;
};

// "localhost" is the only name that is known.
Result PortAddress(SocketAddress* address) {
  std::string text = KnobText(Knob::NCCL_RAS_ADDR);
  constexpr std::string_view kLocal = "localhost:";
  if (text.compare(0, kLocal.size(), kLocal) == 0) text = "127.0.0.1:" + text.substr(kLocal.size());
  return ParseAddress(text, address);
}

// With the port shared, as NCCL does.
Result ListenShared(const SocketAddress& address, Fd* listener) {
  listener->Reset(socket(address.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const int on = 1;
  if (!listener->valid() || setsockopt(listener->get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0 ||
      setsockopt(listener->get(), SOL_SOCKET, SO_REUSEPORT, &on, sizeof on) != 0 ||
      bind(listener->get(), reinterpret_cast<const sockaddr*>(&address.storage), address.length) != 0 ||
      listen(listener->get(), 64) != 0) {
    const int error = errno;
    listener->Reset();
    return Fail(ncclSystemError, "%s", ErrnoText(error).c_str());
  }
  return Ok();
}

class Server {
 public:
  void Register(std::shared_ptr<const Member> member);
  void Unregister(const std::shared_ptr<const Member>& member);
  void LeavePort();

 private:
  Result Start();
  void Wake() const;
  void Run();
  void Turn();
  int WaitMs() const;
  void OpenPort();
  void Accept();
  void ReadClient(Client* client);
  void Begin(Client* client, uint64_t now_ns);
  void WriteClient(Client* client);
  void Answer(Client* client);
  void ReadDatagrams(const std::shared_ptr<const Member>& member);
  void ReadErrors(const std::shared_ptr<const Member>& member);
  void TellOf(const Member& member, const Ask& ask);

  std::mutex life_mutex_;  // held while the thread is started or ended
  Thread thread_;
  Fd wake_;

  std::mutex mutex_;  // guards what follows, and is held by the thread but while it waits
  Gathering::Members members_;
  bool ends_ = false;
  bool vendor_ = false;
  bool opened_ = false;  // the port was tried
  Fd listener_;
  uint64_t accepts_from_ns_ = 0;  // there was no descriptor for who connected: later again
  std::list<Client> clients_;
  wire::ProcessIdentity own_{};
};

void Server::Wake() const {
  const uint64_t one = 1;
  const ssize_t ignored = write(wake_.get(), &one, sizeof one);
  (void)ignored;  // full means that it is awake
}

Result Server::Start() {
  wake_.Reset(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake_.valid()) return Fail(ncclSystemError, "cannot make an eventfd: %s", ErrnoText(errno).c_str());
  ends_ = opened_ = false;
  own_ = CurrentProcess();
  return thread_.Start("c4-ras", [this] { Run(); });
}

void Server::Register(std::shared_ptr<const Member> member) {
  const std::lock_guard<std::mutex> life(life_mutex_);
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    members_.push_back(std::move(member));
  }
  if (thread_.started()) return Wake();
  if (const Result result = Start(); !result.ok()) {
    C4_INFO("nobody answers NCCL's RAS here: %s", result.message().c_str());
  }
}

void Server::Unregister(const std::shared_ptr<const Member>& member) {
  const std::lock_guard<std::mutex> life(life_mutex_);
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (std::erase(members_, member) == 0) return;
    for (Client& client : clients_) client.again = client.gathering != nullptr;
    ends_ = members_.empty();
  }
  if (!thread_.started()) return;
  Wake();
  if (!ends_) return;
  thread_.Join();
  clients_.clear();
  listener_.Reset();
  wake_.Reset();
}

void Server::LeavePort() {
  const std::lock_guard<std::mutex> life(life_mutex_);
  const std::lock_guard<std::mutex> lock(mutex_);
  vendor_ = true;
  listener_.Reset();
}

void Server::OpenPort() {
  opened_ = true;
  SocketAddress address;
  Result result = PortAddress(&address);
  if (result.ok()) result = ListenShared(address, &listener_);
  if (!result.ok()) {
    C4_INFO("NCCL_RAS_ADDR=%s: nobody listens there for NCCL's RAS: %s",
            KnobText(Knob::NCCL_RAS_ADDR).c_str(), result.message().c_str());
  }
}

void Server::Run() {
  for (;;) {
    const Result result = Caught([this] { return Turn(), Ok(); });
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      if (ends_) return;
      if (!result.ok()) clients_.clear();
    }
    if (result.ok()) continue;
    C4_WARN("RAS: %s; its clients are closed", result.message().c_str());
    usleep(kPauseUs);  // so that there may be memory again
  }
}

int Server::WaitMs() const {
  const uint64_t now_ns = MonotonicNs();
  uint64_t next_ns = std::numeric_limits<uint64_t>::max();
  if (now_ns < accepts_from_ns_) next_ns = accepts_from_ns_;
  for (const Client& client : clients_) {
    next_ns = std::min(next_ns, client.heard_ns + kSilentNs);
    if (client.gathering != nullptr) next_ns = std::min(next_ns, client.gathering->next_ns());
  }
  if (next_ns == std::numeric_limits<uint64_t>::max()) return -1;
  return next_ns <= now_ns ? 0
                           : static_cast<int>(std::min<uint64_t>((next_ns - now_ns) / 1000000 + 1, 60000));
}

void Server::Turn() {
  std::vector<pollfd> polls;
  std::vector<std::shared_ptr<const Member>> members;
  std::vector<Client*> clients;
  int listener = -1;
  int wait_ms = 0;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!opened_ && !vendor_) OpenPort();
    members = members_;  // their sockets stay open as long as they are waited for
    const bool accepts = clients_.size() < kMostClients && MonotonicNs() >= accepts_from_ns_;
    listener = accepts ? listener_.get() : -1;
    polls.push_back({wake_.get(), POLLIN, 0});
    polls.push_back({listener, POLLIN, 0});
    for (const auto& member : members) polls.push_back({member->socket.get(), POLLIN, 0});
    for (Client& client : clients_) {
      clients.push_back(&client);
      const bool reads = client.gathering == nullptr && !client.closes;
      polls.push_back({client.fd.get(),
                       static_cast<short>((reads ? POLLIN : POLLRDHUP) | (client.out.empty() ? 0 : POLLOUT)),
                       0});
    }
    wait_ms = WaitMs();
  }
  (void)poll(polls.data(), polls.size(), wait_ms);
  const std::lock_guard<std::mutex> lock(mutex_);
  if (ends_) return;
  if (polls[0].revents != 0) {
    uint64_t times = 0;
    const ssize_t ignored = read(wake_.get(), &times, sizeof times);
    (void)ignored;
  }
  if (polls[1].revents != 0 && listener_.get() == listener) Accept();
  for (size_t i = 0; i < members.size(); ++i) {
    const short events = polls[2 + i].revents;
    // One that has left meanwhile is not spoken for.
    if (events == 0 || std::find(members_.begin(), members_.end(), members[i]) == members_.end()) continue;
    if ((events & POLLERR) != 0) ReadErrors(members[i]);
    if ((events & POLLIN) != 0) ReadDatagrams(members[i]);
  }
  for (size_t i = 0; i < clients.size(); ++i) {
    const short events = polls[2 + members.size() + i].revents;
    if ((events & (POLLRDHUP | POLLERR | POLLHUP)) != 0 && clients[i]->gathering != nullptr) {
      clients[i]->fd.Reset();  // it has gone before its report came
    } else if ((events & (POLLIN | POLLHUP | POLLERR)) != 0) {
      ReadClient(clients[i]);
    }
  }
  const uint64_t now_ns = MonotonicNs();
  for (Client& client : clients_) {
    if (client.again) Begin(&client, now_ns);
    if (client.gathering != nullptr) {
      client.heard_ns = now_ns;
      client.gathering->Ask(now_ns);
      if (client.gathering->over(now_ns)) Answer(&client);
    }
    WriteClient(&client);
    if (client.heard_ns + kSilentNs < now_ns) client.fd.Reset();
  }
  clients_.remove_if([](const Client& client) { return !client.fd.valid(); });
}

void Server::Accept() {
  Fd accepted;
  SocketAddress peer;
  bool any = false;
  bool shortage = false;
  const Result result = TryAccept(listener_.get(), &accepted, &peer, &any, &shortage);
  if (shortage) accepts_from_ns_ = MonotonicNs() + kShortageNs;
  if (!result.ok() || !any) return;
  Client& client = clients_.emplace_back();
  client.fd = std::move(accepted);
  client.heard_ns = MonotonicNs();
}

void Server::ReadClient(Client* client) {
  char bytes[4096];
  const ssize_t got = recv(client->fd.get(), bytes, sizeof bytes, MSG_DONTWAIT);
  if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) client->fd.Reset();
  if (got <= 0) return;
  client->heard_ns = MonotonicNs();
  if (client->session.Take({bytes, static_cast<size_t>(got)}, &client->out)) Begin(client, client->heard_ns);
  client->closes = client->closes || client->session.failed();
}

void Server::Begin(Client* client, uint64_t now_ns) {
  uint64_t query = 0;
  if (!FillRandom(&query, sizeof query)) query = now_ns;
  client->gathering = std::make_unique<Gathering>(members_, own_, query, client->session.timeout_s(), now_ns);
  client->again = false;
}

void Server::Answer(Client* client) {
  const Report report = client->gathering->Finish(MonotonicNs());
  client->out +=
      client->session.json() ? ToJson(report, time(nullptr)) : ToText(report, client->session.verbose());
  client->gathering.reset();
  client->closes = true;
}

void Server::WriteClient(Client* client) {
  while (client->fd.valid() && !client->out.empty()) {
    const ssize_t sent =
        send(client->fd.get(), client->out.data(), client->out.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (sent <= 0) return client->fd.Reset();
    client->heard_ns = MonotonicNs();
    client->out.erase(0, static_cast<size_t>(sent));
  }
  if (client->closes) client->fd.Reset();
}

void Server::ReadDatagrams(const std::shared_ptr<const Member>& member) {
  for (size_t i = 0; i < kMostDatagrams; ++i) {
    char bytes[kMostBytes + 1];
    const ssize_t got = recv(member->socket.get(), bytes, sizeof bytes, MSG_DONTWAIT);
    if (got < 0 && errno == ECONNREFUSED) continue;  // of a question; ReadErrors hears of which
    if (got < 0) return;
    const auto size = static_cast<size_t>(got);
    if (IsAsk(bytes, size, member->communicator_id, member->rank, member->key)) {
      Ask ask;
      memcpy(&ask, bytes, sizeof ask);
      TellOf(*member, ask);
    } else if (IsTell(bytes, size, member->communicator_id, member->rank, member->key)) {
      for (Client& client : clients_) {
        if (client.gathering != nullptr) client.gathering->Take(*member, bytes, size);
      }
    }
  }
}

// To whom the rank is known to be, wherever the question came from.
void Server::TellOf(const Member& member, const Ask& ask) {
  if (ask.from_rank >= member.peers.size()) return;
  const SocketAddress& to = member.peers[ask.from_rank].place;
  if (to.port() == 0) return;
  for (size_t first = 0; first < members_.size(); first += kMostRecords) {
    const size_t records = std::min(kMostRecords, members_.size() - first);
    char bytes[kMostBytes] = {};
    Tell tell{};
    FillHeader(kTellMagic, records, own_, &tell);
    tell.communicator_id = member.communicator_id;
    tell.query = ask.query;
    tell.from_rank = member.rank;
    tell.to_rank = ask.from_rank;
    tell.total = static_cast<uint32_t>(members_.size());
    tell.records = static_cast<uint32_t>(records);
    memcpy(bytes, &tell, sizeof tell);
    for (size_t i = 0; i < records; ++i) {
      const State state = members_[first + i]->state();
      memcpy(bytes + sizeof tell + i * sizeof state, &state, sizeof state);
    }
    const size_t size = sizeof tell + records * sizeof(State);
    Sign<Tell>(bytes, size, member.key);
    // What gets lost is asked for again.
    const ssize_t ignored = sendto(member.socket.get(), bytes, size, MSG_NOSIGNAL | MSG_DONTWAIT,
                                   reinterpret_cast<const sockaddr*>(&to.storage), to.length);
    (void)ignored;
  }
}

// What the kernel says of datagrams that found nobody.
void Server::ReadErrors(const std::shared_ptr<const Member>& member) {
  for (size_t i = 0; i < kMostDatagrams; ++i) {
    SocketAddress to;
    char bytes[sizeof(Ask)];
    char control[512];
    iovec piece{bytes, sizeof bytes};
    msghdr message{};
    message.msg_name = &to.storage;
    message.msg_namelen = sizeof to.storage;
    message.msg_iov = &piece;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    if (recvmsg(member->socket.get(), &message, MSG_ERRQUEUE | MSG_DONTWAIT) < 0) return;
    to.length = message.msg_namelen;
    for (cmsghdr* part = CMSG_FIRSTHDR(&message); part != nullptr; part = CMSG_NXTHDR(&message, part)) {
      const bool of_error = (part->cmsg_level == IPPROTO_IP && part->cmsg_type == IP_RECVERR) ||
                            (part->cmsg_level == IPPROTO_IPV6 && part->cmsg_type == IPV6_RECVERR);
      uint32_t error = 0;  // the first field of what the kernel writes
      if (!of_error || part->cmsg_len < CMSG_LEN(sizeof error)) continue;
      memcpy(&error, CMSG_DATA(part), sizeof error);
      if (error != ECONNREFUSED) continue;
      for (Client& client : clients_) {
        if (client.gathering != nullptr) client.gathering->Refused(*member, to);
      }
    }
  }
}

std::mutex server_mutex;
Server* server = nullptr;  // never deleted: its thread may run at the end of the process

// In the child of a fork the threads of its parent are not there: it has a server of its own. `makes` false:
// nullptr where there is none yet, and nothing is thrown.
Server* OfProcess(bool makes) {
  static uint64_t forks = 0;
  const std::lock_guard<std::mutex> lock(server_mutex);
  if (server != nullptr && forks == Forks()) return server;
  if (!makes) return nullptr;
  server = new Server;
  forks = Forks();
  return server;
}

}  // namespace

Result OpenSocket(const SocketAddress& place, Fd* socket) {
  const int family = place.storage.ss_family;
  socket->Reset(::socket(family, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const int on = 1;
  if (!socket->valid() ||
      setsockopt(socket->get(), family == AF_INET6 ? IPPROTO_IPV6 : IPPROTO_IP,
                 family == AF_INET6 ? IPV6_RECVERR : IP_RECVERR, &on, sizeof on) != 0 ||
      bind(socket->get(), reinterpret_cast<const sockaddr*>(&place.storage), place.length) != 0) {
    const int error = errno;
    socket->Reset();
    return Fail(ncclSystemError, "no datagrams at %s: %s", place.ToString().c_str(),
                ErrnoText(error).c_str());
  }
  return Ok();
}

bool IsWanted() {
  return KnobNumber(Knob::NCCL_RAS_ENABLE) != 0;
}

void Register(std::shared_ptr<const Member> member) {
  const Result result = Caught([&] { return OfProcess(true)->Register(std::move(member)), Ok(); });
  if (!result.ok()) C4_INFO("a communicator is in no report of NCCL's RAS: %s", result.message().c_str());
}

void Unregister(const std::shared_ptr<const Member>& member) {
  if (Server* const known = OfProcess(false)) known->Unregister(member);
}

void LeavePortToVendor() {
  (void)Caught([] { return OfProcess(true)->LeavePort(), Ok(); });
}

}  // namespace c4::ras
