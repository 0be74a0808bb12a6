// "host:port" texts, as the daemons' options and the directory of masters hold them; IPv6 hosts stand in
// brackets ("[::1]:15141"). Pure apart from HostName. Any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "service/status.h"

namespace c4::service {

struct HostPort {
  std::string host;  // without brackets
  uint16_t port = 0;
};

absl::StatusOr<HostPort> ParseHostPort(std::string_view address);
std::string JoinHostPort(std::string_view host, uint16_t port);

const std::string& HostName();  // of this machine

// What others should connect to when a server listens on `bound`: the wildcard hosts (0.0.0.0, ::) become
// this machine's name.
std::string ReachableAddress(const std::string& bound);

}  // namespace c4::service
