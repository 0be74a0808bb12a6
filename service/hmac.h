// HMAC-SHA-256, for tokens and for what is sent to others' programs. Pure; any thread.
#pragma once

#include <string>
#include <string_view>

namespace c4::service {

// 32 bytes.
std::string HmacSha256(std::string_view secret, std::string_view text);

}  // namespace c4::service
