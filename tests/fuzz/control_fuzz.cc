// Packets from the socket between library and agent: whatever comes, a body that is found lies within its
// packet, and only a right header leads to one. An input is a row of packets, each as long as it says.
#include <algorithm>
#include <cstdint>
#include <vector>

#include "tests/fuzz/check.h"
#include "wire/control.h"

namespace {

using c4::wire::ControlBody;
using c4::wire::ControlFrame;
using c4::wire::Header;
using c4::wire::HeaderFault;

size_t PacketBytes(const uint8_t* data, size_t left) {
  if (left < sizeof(Header)) return left;
  Header header;
  memcpy(&header, data, sizeof header);
  return static_cast<size_t>(std::clamp<uint64_t>(header.total_bytes, 1, left));
}

void Parse(const uint8_t* data, size_t bytes) {
  // A copy of just this size, so that the address sanitizer sees a read past its end.
  const std::vector<char> packet(data, data + bytes);
  for (const size_t body_bytes : {size_t{0}, sizeof(c4::wire::ControlHello), sizeof(c4::wire::ControlWelcome),
                                  sizeof(c4::wire::ControlPathAsk), sizeof(c4::wire::ControlPathAnswer),
                                  sizeof(c4::wire::ControlPathUse), sizeof(c4::wire::ControlHoldArm),
                                  sizeof(c4::wire::ControlHoldState), sizeof(c4::wire::ControlPlan),
                                  sizeof(c4::wire::ControlPlanAnswer), sizeof(c4::wire::ControlPlanStep)}) {
    HeaderFault fault = HeaderFault::kOk;
    const auto* body = static_cast<const char*>(ControlBody(packet.data(), bytes, body_bytes, &fault));
    C4_FUZZ_CHECK((body != nullptr) == (fault == HeaderFault::kOk));
    if (body == nullptr) continue;
    ControlFrame frame;
    memcpy(&frame, packet.data(), sizeof frame);
    C4_FUZZ_CHECK(frame.header.magic == c4::wire::kControlMagic &&
                  frame.header.major == c4::wire::kControlMajor);
    C4_FUZZ_CHECK(frame.header.total_bytes == bytes);
    C4_FUZZ_CHECK(body >= packet.data() + sizeof frame && body + body_bytes <= packet.data() + bytes);
    std::vector<char> copy(body_bytes);
    if (body_bytes > 0) memcpy(copy.data(), body, body_bytes);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  while (size > 0) {
    const size_t bytes = PacketBytes(data, size);
    Parse(data, bytes);
    data += bytes;
    size -= bytes;
  }
  return 0;
}
