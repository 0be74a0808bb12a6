// Bytes of an HTTP/2 client: however they are cut into pieces and whenever they come, the meter lets the same
// ones through or finds the same fault, and never more than there are.
#include <algorithm>
#include <cstdint>
#include <string_view>

#include "service/http2_meter.h"
#include "tests/fuzz/check.h"

namespace {

struct Outcome {
  size_t passed = 0;
  bool fault = false;
  bool operator==(const Outcome&) const = default;
};

// In pieces of `piece` bytes, each offered until it is through; a second passes between two tries.
Outcome Feed(std::string_view bytes, size_t piece) {
  c4::service::Http2Totals totals;
  c4::service::Http2Meter meter(&totals);
  Outcome outcome;
  int64_t now_ms = 1000;
  for (int held = 0; outcome.passed < bytes.size() && held < 1000;) {
    const std::string_view offered = bytes.substr(outcome.passed, piece);
    const size_t passed = meter.Pass(offered, now_ms);
    C4_FUZZ_CHECK(passed <= offered.size());
    outcome.passed += passed;
    if (meter.fault() != nullptr) return {0, true};
    if (passed == 0) {
      now_ms += 1000;
      ++held;
    }
  }
  return outcome;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const size_t piece = 1 + data[0];
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  const Outcome whole = Feed(bytes, std::max<size_t>(bytes.size(), 1));
  const Outcome pieces = Feed(bytes, piece);
  C4_FUZZ_CHECK(whole.fault == pieces.fault || !whole.fault);
  if (!whole.fault && !pieces.fault) C4_FUZZ_CHECK(whole.passed == pieces.passed);
  return 0;
}
