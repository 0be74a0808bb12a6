#include "c4a/control_server.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "service/log.h"
#include "service/printable.h"
#include "service/text.h"

namespace c4::agent {
namespace {

using service::Concat;
using service::ErrnoStatus;

constexpr char kLockName[] = "agent.lock";
constexpr size_t kMaxClients = 4096;  // fewer where descriptors are scarce
constexpr int kAcceptsARound = 64;
constexpr int64_t kGreetMs = 5'000;  // for a new client to say hello
constexpr int64_t kPauseMs = 100;    // when descriptors have run out
constexpr rlim_t kOtherDescriptors = 256;
constexpr int kBacklog = 128;
constexpr size_t kMaxTold = 1000;

int64_t NowMs() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<int64_t>(now.tv_sec) * 1000 + now.tv_nsec / 1'000'000;
}

// The soft limit is raised as far as the hard one allows: segments and /proc are read with descriptors too.
size_t MostClients() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return 256;
  const rlim_t wanted = std::min<rlim_t>(kMaxClients + 2 * kOtherDescriptors, limit.rlim_max);
  if (limit.rlim_cur < wanted) {
    rlimit raised = limit;
    raised.rlim_cur = wanted;
    if (setrlimit(RLIMIT_NOFILE, &raised) == 0) limit = raised;
  }
  const rlim_t spare =
      limit.rlim_cur > 2 * kOtherDescriptors ? limit.rlim_cur - kOtherDescriptors : limit.rlim_cur / 2;
  return std::min<size_t>(kMaxClients, spare);
}

template <typename Body>
bool Send(int fd, const wire::ProcessIdentity& identity, wire::ControlType type, const Body& body) {
  const auto packet = wire::MakeControlPacket(type, identity, body);
  return send(fd, &packet, sizeof packet, MSG_DONTWAIT | MSG_NOSIGNAL) == static_cast<ssize_t>(sizeof packet);
}

// Whether `path` still names the file that `fd` has open.
bool StillThere(const std::string& path, int fd) {
  struct stat named {};
  struct stat opened {};
  return lstat(path.c_str(), &named) == 0 && fstat(fd, &opened) == 0 && named.st_dev == opened.st_dev &&
         named.st_ino == opened.st_ino;
}

bool IsSocket(const std::string& path) {
  struct stat named {};
  return lstat(path.c_str(), &named) == 0 && S_ISSOCK(named.st_mode);
}

void CloseAndForget(int* fd) {
  if (*fd >= 0) close(*fd);
  *fd = -1;
}

// What another user has put under a name of ours, root takes away; others find out at their open.
void RemoveForeign(const std::string& path) {
  struct stat status {};
  if (lstat(path.c_str(), &status) != 0 || (status.st_uid == geteuid() && S_ISREG(status.st_mode))) return;
  if (unlink(path.c_str()) != 0) return;
  service::LogWarning(path, " had been planted by uid ", status.st_uid, " and was removed");
}

}  // namespace

ControlServer::ControlServer(ControlOptions options)
    : options_(std::move(options)),
      lock_path_(options_.run_dir + "/" + kLockName),
      socket_path_(options_.run_dir + "/" + wire::kControlSocketName),
      level_(options_.level) {}

ControlServer::~ControlServer() {
  Stop();
}

absl::Status ControlServer::Start() {
  C4_RETURN_IF_NOT_OK(TakeLock());
  C4_RETURN_IF_NOT_OK(Listen());
  most_clients_ = MostClients();
  wake_fd_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (wake_fd_ < 0) return ErrnoStatus(errno, "cannot make an eventfd");
  thread_ = std::thread([this] { Run(); });
  return absl::OkStatus();
}

void ControlServer::Stop() {
  if (thread_.joinable()) {
    stop_ = true;
    eventfd_write(wake_fd_, 1);
    thread_.join();
    unlink(socket_path_.c_str());
  }
  for (const auto& [fd, client] : by_fd_) close(fd);
  by_fd_.clear();
  of_uid_.clear();
  clients_ = 0;
  CloseAndForget(&listen_fd_);
  CloseAndForget(&wake_fd_);
  CloseAndForget(&lock_fd_);  // gives the lock back; the file stays, as removing it would be a race
}

// The kernel gives the lock back when an agent dies, however it dies.
absl::Status ControlServer::TakeLock() {
  RemoveForeign(lock_path_);
  // Nobody else's to open: whoever can read it could hold its lock, and keep the next agent out.
  const int fd = open(lock_path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (fd < 0) {
    return ErrnoStatus(errno, Concat("cannot open ", lock_path_, ": has another user made it? Remove it, or ",
                                     "choose another --run-dir"));
  }
  if (fchmod(fd, 0600) != 0)
    service::LogDebug(lock_path_, " is of an earlier version and stays as open as it was");
  if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
    const int error = errno;
    char holder[32] = "";
    const ssize_t bytes = pread(fd, holder, sizeof holder - 1, 0);
    close(fd);
    if (error != EWOULDBLOCK) return ErrnoStatus(error, Concat("cannot lock ", lock_path_));
    return absl::AlreadyExistsError(Concat(
        "another agent", bytes > 0 ? Concat(" (process ", atoi(holder), ")") : "", " serves ",
        options_.run_dir, ": one agent per run directory; end that one ", "or choose another --run-dir"));
  }
  const std::string pid = Concat(getpid(), "\n");
  if (ftruncate(fd, 0) != 0 || pwrite(fd, pid.data(), pid.size(), 0) < 0) {
    service::LogDebug("the process id could not be written to ", lock_path_);
  }
  CloseAndForget(&lock_fd_);
  lock_fd_ = fd;
  return absl::OkStatus();
}

absl::Status ControlServer::Listen() {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (socket_path_.size() >= sizeof address.sun_path) {
    return absl::InvalidArgumentError(Concat(socket_path_, " is too long for a socket's name (",
                                             sizeof address.sun_path, " bytes): choose a shorter --run-dir"));
  }
  memcpy(address.sun_path, socket_path_.c_str(), socket_path_.size());
  CloseAndForget(&listen_fd_);
  // We hold the lock: whoever bound this name before is no more.
  if (unlink(socket_path_.c_str()) != 0 && errno != ENOENT) {
    return ErrnoStatus(errno, Concat("cannot replace ", socket_path_));
  }
  listen_fd_ = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (listen_fd_ < 0) return ErrnoStatus(errno, "cannot make a socket");
  if (bind(listen_fd_, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 ||
      chmod(socket_path_.c_str(), 0666) != 0 || listen(listen_fd_, kBacklog) != 0) {
    return ErrnoStatus(errno, Concat("cannot listen on ", socket_path_));
  }
  return absl::OkStatus();
}

// Somebody may tidy the run directory up under us (a new one is made by the next rank).
void ControlServer::CheckFiles() {
  absl::Status status;
  if (!StillThere(lock_path_, lock_fd_)) status = TakeLock();
  if (status.ok() && !IsSocket(socket_path_)) {
    status = Listen();
    if (status.ok()) service::LogWarning(socket_path_, " had been removed and was made anew");
  }
  if (!status.ok() && !told_files_) {
    service::LogError("the control socket cannot be kept up: ", status.message(), "; trying again");
  }
  told_files_ = !status.ok();
}

void ControlServer::SetLevel(wire::RecordLevel level) {
  level_ = level;
  level_changed_ = true;
  if (wake_fd_ >= 0) eventfd_write(wake_fd_, 1);
}

void ControlServer::Run() {
  pthread_setname_np(pthread_self(), "c4-control");
  std::vector<pollfd> entries;
  int64_t checked_ms = 0;
  while (!stop_) {
    entries.clear();
    entries.push_back({wake_fd_, POLLIN, 0});
    // poll leaves out a negative one
    const bool pauses = NowMs() < accept_again_ms_;
    entries.push_back({pauses ? -1 : listen_fd_, POLLIN, 0});
    for (const auto& [fd, client] : by_fd_) entries.push_back({fd, POLLIN, 0});
    if (poll(entries.data(), entries.size(),
             pauses ? std::min<int>(options_.check_files_ms, kPauseMs) : options_.check_files_ms) < 0 &&
        errno != EINTR) {
      service::LogError("poll: ", ErrnoStatus(errno, "control socket").message());
      return;
    }
    if (entries[0].revents != 0) {
      eventfd_t ignored = 0;
      eventfd_read(wake_fd_, &ignored);
    }
    for (size_t i = 2; i < entries.size(); ++i) {
      const int fd = entries[i].fd;
      if (entries[i].revents != 0 && !Receive(fd, &by_fd_.at(fd))) Drop(by_fd_.find(fd));
    }
    if (entries[1].revents != 0) Accept();
    if (level_changed_.exchange(false)) Broadcast();
    SendQueued();
    clients_ = static_cast<int>(by_fd_.size());
    const int64_t now_ms = NowMs();
    if (now_ms - checked_ms < options_.check_files_ms) continue;
    checked_ms = now_ms;
    CheckFiles();
    DropSilent(now_ms);
  }
}

void ControlServer::DropSilent(int64_t now_ms) {
  for (auto at = by_fd_.begin(); at != by_fd_.end();) {
    const bool silent = !at->second.greeted && now_ms - at->second.since_ms > kGreetMs;
    at = silent ? Drop(at) : std::next(at);
  }
}

void ControlServer::Accept() {
  for (int i = 0; i < kAcceptsARound; ++i) {
    const int fd = accept4(listen_fd_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd >= 0) {
      Admit(fd);
      continue;
    }
    // What waits to be accepted stays readable: without a pause this would be a loop that leaves no time.
    if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
      accept_again_ms_ = NowMs() + kPauseMs;
      TellCrowded("descriptors have run out");
    }
    return;
  }
}

void ControlServer::Admit(int fd) {
  ucred credentials{};
  socklen_t bytes = sizeof credentials;
  if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &credentials, &bytes) != 0) {
    close(fd);
    return;
  }
  const auto of_uid = of_uid_.find(credentials.uid);
  const bool his_are_many =
      credentials.uid != 0 && of_uid != of_uid_.end() && of_uid->second >= options_.most_of_uid;
  if (his_are_many || by_fd_.size() >= most_clients_) {
    close(fd);
    return TellCrowded(his_are_many ? Concat("user ", credentials.uid, " has ", options_.most_of_uid)
                                    : Concat("there are ", most_clients_));
  }
  Client& client = by_fd_[fd];
  client.id = next_id_++;
  client.peer = {.pid = static_cast<uint32_t>(credentials.pid), .uid = credentials.uid};
  client.since_ms = NowMs();
  ++of_uid_[credentials.uid];
}

void ControlServer::TellCrowded(std::string_view why) {
  if (told_crowded_) return;
  told_crowded_ = true;
  service::LogWarning("control connections are refused: ", why, "; this is said once");
}

bool ControlServer::Receive(int fd, Client* client) {
  char packet[wire::kControlMaxBytes];
  const ssize_t bytes = recv(fd, packet, sizeof packet, MSG_TRUNC | MSG_DONTWAIT);
  if (bytes < 0) return errno == EAGAIN || errno == EINTR;
  if (bytes == 0) return false;
  const auto malformed = [&](std::string_view why) {
    Tell(client->peer, Concat("sent a control frame that ", why));
    return false;
  };
  if (static_cast<size_t>(bytes) > sizeof packet) return malformed("is longer than a frame may be");
  wire::HeaderFault fault = wire::HeaderFault::kOk;
  if (wire::ControlBody(packet, static_cast<size_t>(bytes), 0, &fault) == nullptr) {
    if (fault == wire::HeaderFault::kMajor) {
      wire::Header header;
      memcpy(&header, packet, sizeof header);
      return malformed(Concat("is of format ", header.major, ".", header.minor, ", this agent speaks ",
                              wire::kControlMajor, ".x: use an agent and a library of the same release"));
    }
    return malformed(wire::HeaderFaultText(fault));
  }
  wire::ControlFrame frame;
  memcpy(&frame, packet, sizeof frame);
  if (frame.type == wire::kControlHoldState) {
    if (HandleHold(*client, packet, static_cast<size_t>(bytes))) return true;
    return malformed("is about held calls and cannot be: cut short, or before a hello");
  }
  if (frame.type == wire::kControlPlanAnswer || frame.type == wire::kControlPlanStep) {
    if (HandlePlan(*client, packet, static_cast<size_t>(bytes), frame.type)) return true;
    return malformed("is about plans and cannot be: cut short, or before a hello");
  }
  if (frame.type != wire::kControlHello) {
    if (HandlePath(*client, packet, static_cast<size_t>(bytes), frame.type)) return true;
    return malformed(
        "is about paths and cannot be: cut short, too many queue pairs or planes, or before a hello");
  }
  wire::ControlHello hello;
  if (!wire::ReadControlBody(packet, static_cast<size_t>(bytes), &hello, &fault)) {
    return malformed("is a hello cut short");
  }
  return Greet(fd, client, hello);
}

bool ControlServer::HandlePath(const Client& client, const char* packet, size_t bytes, uint32_t type) {
  wire::HeaderFault fault = wire::HeaderFault::kOk;
  if (type == wire::kControlPathAsk && options_.on_path_ask) {
    wire::ControlPathAsk ask;
    if (!client.greeted || !wire::ReadControlBody(packet, bytes, &ask, &fault) || ask.queue_pairs == 0 ||
        ask.queue_pairs > wire::kControlMostQueuePairs || ask.planes == 0 ||
        ask.planes > wire::kControlMostPlanes) {
      return false;
    }
    options_.on_path_ask(client.id, client.peer, ask);
  } else if (type == wire::kControlPathUse && options_.on_path_use) {
    wire::ControlPathUse use;
    if (!client.greeted || !wire::ReadControlBody(packet, bytes, &use, &fault) ||
        use.queue_pairs > wire::kControlMostQueuePairs) {
      return false;
    }
    options_.on_path_use(client.id, client.peer, use);
  }
  return true;
}

ControlServer::Clients::iterator ControlServer::Drop(Clients::iterator at) {
  close(at->first);
  const auto of_uid = of_uid_.find(at->second.peer.uid);
  if (--of_uid->second == 0) of_uid_.erase(of_uid);
  const Client gone = at->second;
  if (gone.greeted && options_.on_gone) options_.on_gone(gone.id);
  const auto next = by_fd_.erase(at);
  const bool others = std::any_of(by_fd_.begin(), by_fd_.end(), [&gone](const auto& entry) {
    return entry.second.greeted && entry.second.peer.pid == gone.peer.pid;
  });
  if (gone.greeted && !others && options_.on_unreachable) options_.on_unreachable(gone.peer.pid);
  return next;
}

void ControlServer::Answer(ControlClientId client, const wire::ControlPathAnswer& answer) {
  Queue({.client = client, .packet = Packed(wire::kControlPathAnswer, answer)});
}

void ControlServer::Queue(Outgoing outgoing) {
  {
    const std::lock_guard lock(outgoing_mutex_);
    outgoing_.push_back(std::move(outgoing));
  }
  if (wake_fd_ >= 0) eventfd_write(wake_fd_, 1);
}

void ControlServer::SendQueued() {
  std::vector<Outgoing> outgoing;
  {
    const std::lock_guard lock(outgoing_mutex_);
    outgoing.swap(outgoing_);
  }
  for (const Outgoing& item : outgoing) {
    auto to = by_fd_.end();
    for (auto at = by_fd_.begin(); at != by_fd_.end(); ++at) {
      const Client& client = at->second;
      const bool is_meant =
          item.client != 0 ? client.id == item.client : client.greeted && client.peer.pid == item.pid;
      if (is_meant && (to == by_fd_.end() || client.id > to->second.id)) to = at;
    }
    const bool sent = to != by_fd_.end() &&
                      send(to->first, item.packet.data(), item.packet.size(), MSG_DONTWAIT | MSG_NOSIGNAL) ==
                          static_cast<ssize_t>(item.packet.size());
    if (sent) continue;
    if (to != by_fd_.end()) {
      Drop(to);
    } else if (item.pid != 0 && options_.on_unreachable) {
      options_.on_unreachable(item.pid);
    }
  }
}

bool ControlServer::HandleHold(const Client& client, const char* packet, size_t bytes) {
  wire::ControlHoldState state;
  wire::HeaderFault fault = wire::HeaderFault::kOk;
  if (!client.greeted || !wire::ReadControlBody(packet, bytes, &state, &fault)) return false;
  if (options_.on_hold_state) options_.on_hold_state(client.peer.pid, state);
  return true;
}

bool ControlServer::HandlePlan(const Client& client, const char* packet, size_t bytes, uint32_t type) {
  wire::HeaderFault fault = wire::HeaderFault::kOk;
  if (!client.greeted) return false;
  if (type == wire::kControlPlanAnswer) {
    wire::ControlPlanAnswer answer;
    if (!wire::ReadControlBody(packet, bytes, &answer, &fault)) return false;
    if (options_.on_plan_answer) options_.on_plan_answer(client.peer.pid, answer);
    return true;
  }
  wire::ControlPlanStep step;
  if (!wire::ReadControlBody(packet, bytes, &step, &fault)) return false;
  if (options_.on_plan_step) options_.on_plan_step(client.peer.pid, step);
  return true;
}

bool ControlServer::Greet(int fd, Client* client, const wire::ControlHello& hello) {
  const std::string name = service::FieldText(hello.segment_name, sizeof hello.segment_name);
  const bool named =
      !name.empty() && name.find('/') == std::string::npos && name.ends_with(wire::kSegmentSuffix);
  if (!named) {
    Tell(client->peer,
         Concat("said hello for \"", service::Printable(name), "\", which is no segment's name"));
    return false;
  }
  // One that was removed is nobody's any more.
  struct stat file {};
  const bool is_there = lstat(Concat(options_.run_dir, "/", name).c_str(), &file) == 0;
  if (is_there && file.st_uid != client->peer.uid && client->peer.uid != 0) {
    Tell(client->peer, Concat("said hello for \"", service::ToUtf8(name), "\", a segment of user ",
                              static_cast<int64_t>(file.st_uid)));
    return false;
  }
  if (!client->greeted && options_.on_hello) options_.on_hello(client->peer, name);
  client->greeted = true;
  const wire::ControlWelcome welcome{.agent_version = options_.agent_version, .level = level_.load()};
  return Send(fd, options_.identity, wire::kControlWelcome, welcome);
}

// Once a process: one that is broken comes back again and again.
void ControlServer::Tell(const ControlPeer& peer, std::string_view fault) {
  if (told_.size() >= kMaxTold) told_.clear();
  if (!told_.insert(peer.pid).second) return;
  service::LogWarning("process ", peer.pid, " of user ", peer.uid, " ", fault, "; its connection is closed");
}

// A client whose buffer is full does not read (a stopped process): it comes back when it runs again.
void ControlServer::Broadcast() {
  const wire::ControlLevel level{.level = level_.load(), .reserved = 0};
  for (auto at = by_fd_.begin(); at != by_fd_.end();) {
    if (!at->second.greeted || Send(at->first, options_.identity, wire::kControlLevel, level)) {
      ++at;
    } else {
      at = Drop(at);
    }
  }
}

}  // namespace c4::agent
