// Frames between the library and the agent of its node (docs/formats/control.md).
//
// A SOCK_SEQPACKET unix socket, C4_RUN_DIR/agent.sock; one frame a packet, each opened by the common
// header. The library connects and says hello; the agent answers welcome, and may send a level at any
// time. Either side ignores frame types that it does not know. Who is at the other end comes from the
// socket's credentials, never from the frame.
#pragma once

#include "wire/header.h"
#include "wire/segment.h"

namespace c4::wire {

inline constexpr uint64_t kControlMagic = Magic("C4CNTROL");
inline constexpr uint16_t kControlMajor = 1;
inline constexpr uint16_t kControlMinor = 0;
inline constexpr char kControlSocketName[] = "agent.sock";
inline constexpr size_t kControlMaxBytes = 4096;

enum ControlType : uint32_t {
  kControlHello = 1,    // library to agent, first
  kControlWelcome = 2,  // agent to library, first
  kControlLevel = 3,    // agent to library: record at this level from now on
};

struct ControlHello {
  char segment_name[128];  // file name under C4_RUN_DIR, no '/'
  uint32_t library_version;
  uint32_t reserved;
};
static_assert(sizeof(ControlHello) == 136);

struct ControlWelcome {
  uint32_t agent_version;
  uint32_t level;  // RecordLevel
};
static_assert(sizeof(ControlWelcome) == 8);

struct ControlLevel {
  uint32_t level;  // RecordLevel
  uint32_t reserved;
};
static_assert(sizeof(ControlLevel) == 8);

// The fixed part of every frame; the body of `type` follows at header.header_bytes.
struct ControlFrame {
  Header header;  // header_bytes = sizeof(ControlFrame), total_bytes = packet
  uint32_t type;
  uint32_t reserved;
};
static_assert(sizeof(ControlFrame) == 72);

// Finds the body of a received packet: nullptr when the packet is malformed (then *fault says how) or
// its body is shorter than `body_bytes`.
inline const void* ControlBody(const void* packet, size_t bytes, size_t body_bytes, HeaderFault* fault) {
  *fault = CheckHeader(packet, bytes, kControlMagic, kControlMajor, sizeof(ControlFrame));
  if (*fault != HeaderFault::kOk) return nullptr;
  Header header;
  memcpy(&header, packet, sizeof header);
  if (header.total_bytes != bytes || header.header_bytes > bytes ||
      bytes - header.header_bytes < body_bytes) {
    *fault = HeaderFault::kSizes;
    return nullptr;
  }
  return static_cast<const char*>(packet) + header.header_bytes;
}

}  // namespace c4::wire
