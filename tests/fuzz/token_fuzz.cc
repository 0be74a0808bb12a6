// A token from anybody, and a file of keys: no token is believed but one that a key signed.
#include <cstdint>
#include <string>
#include <string_view>

#include "service/token.h"
#include "tests/fuzz/check.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  static const c4::service::TokenKeys keys =
      *c4::service::ParseKeys("c4k1." + std::string(64, '7') + "\n", "the test's");
  const auto claims = c4::service::VerifyToken(keys, text, 1'800'000'000);
  C4_FUZZ_CHECK(!claims.ok() && !claims.status().message().empty());
  const auto read = c4::service::ParseKeys(text, "a file");
  if (read.ok()) C4_FUZZ_CHECK(!read->empty());
  return 0;
}
