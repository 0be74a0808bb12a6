// The addresses of a rank's planes in what it tells the others (docs/formats/bootstrap.md): two at most, both
// IPv4, with the same port. Pure.
#pragma once

#include <algorithm>
#include <vector>

#include "ccl/base/socket.h"

namespace c4::bootstrap {

// `first` has the port; `planes`: addresses of all interfaces, the first of them being that of `first`.
inline wire::Endpoint ListenerOf(const SocketAddress& first, const std::vector<SocketAddress>& planes) {
  wire::Endpoint endpoint = ToEndpoint(first);
  if (planes.size() < 2 || first.storage.ss_family != AF_INET) return endpoint;
  const wire::Endpoint second = ToEndpoint(planes[1]);
  for (size_t i = 0; i < 2; ++i) {
    endpoint.reserved[1 + i] =
        static_cast<uint16_t>(second.address[12 + 2 * i] << 8 | second.address[13 + 2 * i]);
  }
  return endpoint;
}

// At least one.
inline std::vector<SocketAddress> PlanesOf(const wire::Endpoint& listener) {
  std::vector<SocketAddress> planes{FromEndpoint(listener)};
  if (planes[0].storage.ss_family != AF_INET || (listener.reserved[1] == 0 && listener.reserved[2] == 0)) {
    return planes;
  }
  wire::Endpoint second = listener;
  for (size_t i = 0; i < 2; ++i) {
    second.address[12 + 2 * i] = static_cast<uint8_t>(listener.reserved[1 + i] >> 8);
    second.address[13 + 2 * i] = static_cast<uint8_t>(listener.reserved[1 + i]);
  }
  planes.push_back(FromEndpoint(second));
  return planes;
}

}  // namespace c4::bootstrap
