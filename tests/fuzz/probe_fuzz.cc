// What an ICMP message quotes of a probe: whatever comes, it is judged without reading past its end, and only
// what carries the mark, or the very ports, counts as an answer to it.
#include <cstring>
#include <vector>

#include "c4a/probe_answer.h"
#include "tests/fuzz/check.h"

namespace {

using c4::agent::Judge;
using c4::agent::Judgement;
using c4::agent::QueuedError;
using c4::agent::Verdict;
using c4::service::IpAddress;

constexpr uint64_t kMark = 0x0123456789abcdefU;

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  struct {
    uint8_t origin, type, code, tries, segment, tcp;
    uint16_t destination_port;
    uint32_t offender, destination;
  } fixed{};
  if (size < sizeof fixed) return 0;
  memcpy(&fixed, data, sizeof fixed);
  const std::vector<unsigned char> quoted(data + sizeof fixed, data + size);
  const bool v6 = (fixed.tcp & 8) != 0;
  const auto address = [&](uint32_t bits) {
    return v6 ? IpAddress{static_cast<uint64_t>(bits >> 16) << 48, bits & 0xffff} : IpAddress::V4(bits);
  };
  const c4::service::IpTuple probe = {
      (fixed.tcp & 1) != 0 ? c4::service::IpProtocol::kTcp : c4::service::IpProtocol::kUdp,
      v6 ? IpAddress{uint64_t{0xfd10} << 48, 2} : IpAddress::V4(0x0a000002), 20001,
      v6 ? IpAddress{uint64_t{0xfd10} << 48 | uint64_t{1} << 32, 2} : IpAddress::V4(0x0a010002), 4791};
  QueuedError error;
  error.origin = fixed.origin;
  error.type = fixed.type;
  error.code = fixed.code;
  error.error = 113;
  error.offender = address(fixed.offender);
  // Half of them quote the right destination: more than chance finds.
  error.destination = (fixed.tcp & 2) != 0 ? probe.destination : address(fixed.destination);
  error.destination_port = (fixed.tcp & 4) != 0 ? probe.destination_port : fixed.destination_port;
  error.quoted = quoted;
  const bool segment = (fixed.segment & 1) != 0 && (fixed.tcp & 1) != 0;
  const int tries = 1 + fixed.tries % 16;
  const Judgement judgement = Judge(probe, kMark, tries, segment, error);
  C4_FUZZ_CHECK(judgement.tried < tries);
  if (judgement.verdict == Verdict::kHop || judgement.verdict == Verdict::kUnreachable) {
    C4_FUZZ_CHECK(error.destination == probe.destination);
    C4_FUZZ_CHECK(error.offender.known());
    // Routers need not quote that much.
    if ((fixed.tcp & 1) == 0 && quoted.size() >= c4::agent::kMarkBytes) C4_FUZZ_CHECK(judgement.tried >= 0);
  }
  return 0;
}
