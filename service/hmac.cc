#include "service/hmac.h"

#include <array>
#include <openssl/hmac.h>

namespace c4::service {

std::string HmacSha256(std::string_view secret, std::string_view text) {
  std::array<unsigned char, EVP_MAX_MD_SIZE> mac;
  unsigned int bytes = 0;
  HMAC(EVP_sha256(), secret.data(), static_cast<int>(secret.size()),
       reinterpret_cast<const unsigned char*>(text.data()), text.size(), mac.data(), &bytes);
  return {reinterpret_cast<const char*>(mac.data()), bytes};
}

}  // namespace c4::service
