// A TCP port that is ours alone (SO_REUSEADDR, no sharing), not blocking. Any thread.
#pragma once

#include <cstdint>
#include <string>

#include "service/status.h"

namespace c4::service {

struct Listener {
  int fd = -1;  // the caller's to close
  uint16_t port = 0;
};

// `host`: a numeric address or a name; port 0: any. The error names the reason only.
absl::StatusOr<Listener> ListenTcp(const std::string& host, uint16_t port);

// ADDRESS:PORT of an end of a connection; empty where it has none.
std::string NumericPeer(int fd);
std::string NumericLocal(int fd);

int64_t MonotonicMs();

}  // namespace c4::service
