#include "service/http_names.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "service/address.h"

namespace c4::service {
namespace {

absl::string_view AsPart(std::string_view text) {
  return {text.data(), text.size()};
}

}  // namespace

bool IsOurName(std::string_view host, std::string_view names) {
  if (host.empty()) return true;
  std::string name(host);
  if (name.front() == '[') {
    const size_t end = name.find(']');
    if (end == std::string::npos) return false;
    name = name.substr(1, end - 1);
  } else if (const size_t colon = name.find(':'); colon != std::string::npos) {
    name.resize(colon);
  }
  in6_addr address;
  if (inet_pton(AF_INET, name.c_str(), &address) == 1 || inet_pton(AF_INET6, name.c_str(), &address) == 1) {
    return true;
  }
  if (absl::EqualsIgnoreCase(name, "localhost") || absl::EqualsIgnoreCase(name, HostName())) return true;
  for (const absl::string_view told : absl::StrSplit(AsPart(names), ',', absl::SkipWhitespace())) {
    if (absl::EqualsIgnoreCase(name, absl::StripAsciiWhitespace(told))) return true;
  }
  return false;
}

}  // namespace c4::service
