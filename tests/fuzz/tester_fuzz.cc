// Lines that a tester and its starter say to each other: a tester runs as the rank's user, who may have it
// say anything. What is understood is within bounds, printable in one line, and means the same when it is
// said again.
#include <cmath>
#include <cstdint>
#include <string>
#include <variant>

#include "c4a/tester/protocol.h"
#include "tests/fuzz/check.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string line(reinterpret_cast<const char*>(data), size);
  if (const auto answer = c4::tester::ParseAnswer(line); answer.ok()) {
    if (const auto* ready = std::get_if<c4::tester::Ready>(&*answer))
      C4_FUZZ_CHECK(ready->port > 0 && ready->port < 65536);
    if (const auto* device = std::get_if<c4::tester::DeviceFigures>(&*answer)) {
      for (const auto& [test, gflops] : device->gflops)
        C4_FUZZ_CHECK(!test.empty() && std::isfinite(gflops) && gflops >= 0);
    }
    if (const auto* moved = std::get_if<c4::tester::TransferFigures>(&*answer)) {
      C4_FUZZ_CHECK(moved->stream_mib_s.size() <= c4::tester::kMostStreams);
    }
    const std::string again = c4::tester::ToLine(*answer);
    C4_FUZZ_CHECK(again.find('\n') == std::string::npos);
  }
  if (const auto order = c4::tester::ParseOrder(line); order.ok()) {
    C4_FUZZ_CHECK(c4::tester::ParseOrder(c4::tester::ToLine(*order)).ok());
  }
  return 0;
}
