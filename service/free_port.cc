#include "service/free_port.h"

#include <cerrno>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "service/status.h"

namespace c4::service {

absl::StatusOr<int> FreePort(std::mt19937* random) {
  std::uniform_int_distribution<int> ports(20000, 32000);
  for (int attempt = 0; attempt < 100; ++attempt) {
    const int port = ports(*random);
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) return ErrnoStatus(errno, "cannot open a socket");
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const bool free = bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
    close(fd);
    if (free) return port;
  }
  return absl::UnavailableError("no free TCP port on 127.0.0.1 between 20000 and 32000");
}

}  // namespace c4::service
