#include "service/address.h"

#include <unistd.h>

#include "absl/strings/numbers.h"
#include "service/text.h"

namespace c4::service {

absl::StatusOr<HostPort> ParseHostPort(std::string_view address) {
  const auto malformed = [&] {
    return absl::InvalidArgumentError(Concat("\"", address,
                                             "\" is no address: give host:port, an IPv6 host in brackets, "
                                             "for instance 127.0.0.1:15141 or [::1]:15141"));
  };
  const size_t colon = address.rfind(':');
  if (colon == std::string_view::npos || colon == 0) return malformed();
  std::string_view host = address.substr(0, colon);
  const std::string_view port = address.substr(colon + 1);
  if (host.front() == '[') {
    if (host.size() < 3 || host.back() != ']') return malformed();
    host = host.substr(1, host.size() - 2);
  } else if (host.find(':') != std::string_view::npos) {
    return malformed();
  }
  int number = 0;
  if (!absl::SimpleAtoi(absl::string_view(port.data(), port.size()), &number) || number < 0 ||
      number > 65535) {
    return malformed();
  }
  return HostPort{std::string(host), static_cast<uint16_t>(number)};
}

std::string JoinHostPort(std::string_view host, uint16_t port) {
  const std::string text(host);
  return text.find(':') == std::string::npos ? Concat(text, ":", port) : Concat("[", text, "]:", port);
}

const std::string& HostName() {
  static const std::string* const name = [] {
    char text[256] = "";
    if (gethostname(text, sizeof text - 1) != 0 || text[0] == '\0') return new std::string("unknown-host");
    return new std::string(text);
  }();
  return *name;
}

std::string ReachableAddress(const std::string& bound) {
  const absl::StatusOr<HostPort> parts = ParseHostPort(bound);
  if (!parts.ok() || (parts->host != "0.0.0.0" && parts->host != "::")) return bound;
  return JoinHostPort(HostName(), parts->port);
}

}  // namespace c4::service
