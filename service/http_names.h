// Under which names an HTTP server answers. Pure but for this host's own name; any thread.
#pragma once

#include <string>
#include <string_view>

namespace c4::service {

// `host`: of the request, with or without a port; empty (HTTP/1.0) is taken. A page elsewhere can make its
// own name point here (DNS rebinding), and then asks under that name: numeric addresses, "localhost", this
// host's name and those in `names` (by commas) cannot be such.
bool IsOurName(std::string_view host, std::string_view names);

}  // namespace c4::service
