#include "examples/rendezvous.h"

#include <arpa/inet.h>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <netdb.h>
#include <poll.h>
#include <set>
#include <string>
#include <sys/socket.h>
#include <unistd.h>

namespace c4::examples {
namespace {

bool Complain(const char* what) {
  char text[128] = "";
  const char* error = errno != 0 ? strerror_r(errno, text, sizeof text) : "";
  fprintf(stderr, "%s: %s%s%s\n", program_invocation_short_name, what, *error != '\0' ? ": " : "", error);
  return false;
}

const char* Variable(const char* name) {
  return getenv(name);  // NOLINT(concurrency-mt-unsafe): before any other thread
}

int Number(const char* name) {
  const char* text = Variable(name);
  if (text == nullptr) return -1;
  char* end = nullptr;
  const long value = strtol(text, &end, 10);
  return *text == '\0' || *end != '\0' || value < 0 || value > 1 << 20 ? -1 : static_cast<int>(value);
}

// MASTER_ADDR:MASTER_PORT; nullptr when that is no address. To be freed by freeaddrinfo.
addrinfo* MasterAddress(bool to_listen) {
  const char* host = Variable("MASTER_ADDR");
  const char* port = Variable("MASTER_PORT");
  if (host == nullptr || port == nullptr) return nullptr;
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV | (to_listen ? AI_PASSIVE : 0);
  addrinfo* found = nullptr;
  return getaddrinfo(host, port, &hints, &found) == 0 ? found : nullptr;
}

bool SendAll(int fd, const char* at, size_t bytes) {
  while (bytes > 0) {
    const ssize_t sent = send(fd, at, bytes, MSG_NOSIGNAL);
    if (sent <= 0) return false;
    at += sent;
    bytes -= static_cast<size_t>(sent);
  }
  return true;
}

bool ReceiveAll(int fd, char* at, size_t bytes) {
  while (bytes > 0) {
    const ssize_t got = recv(fd, at, bytes, 0);
    if (got <= 0) return false;
    at += got;
    bytes -= static_cast<size_t>(got);
  }
  return true;
}

void SetTimeout(int fd, int seconds) {
  const timeval timeout{seconds, 0};
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof timeout);
  setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof timeout);
}

bool Serve(const World& world, int timeout_s, const ncclUniqueId& id) {
  addrinfo* address = MasterAddress(true);
  if (address == nullptr) return Complain("MASTER_ADDR and MASTER_PORT do not say where the ranks meet");
  const int listener = socket(address->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int on = 1;
  setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  const bool listening =
      bind(listener, address->ai_addr, address->ai_addrlen) == 0 && listen(listener, 1024) == 0;
  freeaddrinfo(address);
  if (!listening) return Complain("cannot listen at MASTER_ADDR:MASTER_PORT");
  std::set<int> served;
  const time_t deadline = time(nullptr) + timeout_s;
  while (served.size() + 1 < static_cast<size_t>(world.size) && time(nullptr) < deadline) {
    pollfd entry{listener, POLLIN, 0};
    if (poll(&entry, 1, 1000) <= 0) continue;
    const int fd = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
    if (fd < 0) continue;
    SetTimeout(fd, 5);
    int32_t rank = 0;
    const bool known = ReceiveAll(fd, reinterpret_cast<char*>(&rank), sizeof rank) && rank > 0 &&
                       rank < world.size && SendAll(fd, id.internal, sizeof id.internal);
    if (known) served.insert(rank);
    close(fd);
  }
  close(listener);
  errno = 0;
  return served.size() + 1 == static_cast<size_t>(world.size) ||
         Complain("not all ranks came to fetch the id");
}

bool Fetch(const World& world, int timeout_s, ncclUniqueId* id) {
  const time_t deadline = time(nullptr) + timeout_s;
  do {
    addrinfo* address = MasterAddress(false);
    if (address == nullptr) return Complain("MASTER_ADDR and MASTER_PORT do not say where the ranks meet");
    const int fd = socket(address->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    SetTimeout(fd, timeout_s);
    const int32_t rank = world.rank;
    const bool got = connect(fd, address->ai_addr, address->ai_addrlen) == 0 &&
                     SendAll(fd, reinterpret_cast<const char*>(&rank), sizeof rank) &&
                     ReceiveAll(fd, id->internal, sizeof id->internal);
    freeaddrinfo(address);
    close(fd);
    if (got) return true;
    const timespec pause{0, 50'000'000};
    nanosleep(&pause, nullptr);
  } while (time(nullptr) < deadline);
  return Complain("cannot fetch the id from rank 0 at MASTER_ADDR:MASTER_PORT");
}

}  // namespace

bool ReadWorld(World* world) {
  world->rank = Number("RANK");
  world->size = Number("WORLD_SIZE");
  errno = 0;
  if (world->rank >= 0 && world->size > world->rank) return true;
  return Complain("RANK and WORLD_SIZE are missing: start it by `c4 run -n 16 -- PROGRAM`, or torchrun");
}

bool ShareUniqueId(const World& world, int timeout_s, ncclUniqueId* id) {
  if (world.rank != 0) return Fetch(world, timeout_s, id);
  if (ncclGetUniqueId(id) != ncclSuccess) {
    errno = 0;
    return Complain(ncclGetLastError(nullptr));
  }
  return world.size == 1 || Serve(world, timeout_s, *id);
}

}  // namespace c4::examples
