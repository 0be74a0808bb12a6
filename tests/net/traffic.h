// TCP traffic between the hosts of a fabric, for tests: each end is in its host's network namespace.
//
// A Sink takes connections and reads them to their end on threads of its own until it goes. The functions
// block. Errors are absl::Status; nothing here ends the test by itself.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <sys/types.h>
#include <thread>

#include "absl/status/status.h"
#include "fabric/emulator/oracle.h"

namespace c4::net_test {

class Sink {
 public:
  // Listens on every address of that namespace.
  Sink(const std::string& ns, int port);
  ~Sink();
  Sink(const Sink&) = delete;
  Sink& operator=(const Sink&) = delete;

 private:
  int listen_fd_ = -1;
  std::thread thread_;
};

// Connects from tuple.source, sends so many bytes, and waits until the sink has read them all.
// DeadlineExceeded when that is not done within `limit_ms`.
absl::Status SendBytes(const std::string& ns, const fabric::FiveTuple& tuple, size_t bytes, int limit_ms);

// device -> bytes sent, of a namespace.
std::map<std::string, uint64_t> SentBytes(const std::string& ns);

}  // namespace c4::net_test
