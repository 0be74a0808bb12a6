// The header that opens every shared-memory segment and every frame of C4 (docs/formats/header.md).
//
// A reader accepts any minor version of the major version that it was built for, skips tails that it
// does not know (the sizes stand in the header) and refuses another major version, naming both.
// All fields are fixed-width and little-endian; `endian` lets a reader refuse what is not.
// Pure data: no ownership, no threads. Only libc may be included from here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace c4::wire {

inline constexpr uint32_t kEndianMark = 0x01020304;

// Eight ASCII characters, first character in the lowest byte.
constexpr uint64_t Magic(const char (&text)[9]) {
  uint64_t value = 0;
  for (int i = 7; i >= 0; --i) value = (value << 8) | static_cast<unsigned char>(text[i]);
  return value;
}

// Identity of a process that outlives pid reuse and reboots: (boot id, pid, start time).
struct ProcessIdentity {
  uint8_t boot_id[16];
  uint64_t start_time_ticks;  // field 22 of /proc/PID/stat, clock ticks since boot
  uint32_t pid;               // as the process itself sees it (its own pid namespace)
  uint32_t reserved;
};
static_assert(sizeof(ProcessIdentity) == 32);

inline bool IsSameProcess(const ProcessIdentity& a, const ProcessIdentity& b) {
  return a.pid == b.pid && a.start_time_ticks == b.start_time_ticks &&
         memcmp(a.boot_id, b.boot_id, sizeof a.boot_id) == 0;
}

struct Header {
  uint64_t magic;
  uint16_t major;
  uint16_t minor;
  uint32_t endian;        // kEndianMark
  uint32_t header_bytes;  // the whole fixed part that starts with this header
  uint32_t record_bytes;  // one record of what follows; 0 where there are none
  uint64_t total_bytes;   // header and all that belongs to it
  ProcessIdentity writer;
};
static_assert(sizeof(Header) == 64);
static_assert(offsetof(Header, endian) == 12);
static_assert(offsetof(Header, total_bytes) == 24);
static_assert(offsetof(Header, writer) == 32);

// What is wrong with a header; kOk when nothing is.
enum class HeaderFault { kOk, kTooShort, kMagic, kEndian, kMajor, kSizes };

// Checks `bytes` bytes at `data` as a header of `magic` and `major` whose fixed part is at least
// `min_header_bytes` long. Reads nothing past `bytes`.
inline HeaderFault CheckHeader(const void* data, size_t bytes, uint64_t magic, uint16_t major,
                               size_t min_header_bytes) {
  if (bytes < sizeof(Header)) return HeaderFault::kTooShort;
  Header header;
  memcpy(&header, data, sizeof header);
  if (header.magic != magic) return HeaderFault::kMagic;
  if (header.endian != kEndianMark) return HeaderFault::kEndian;
  if (header.major != major) return HeaderFault::kMajor;
  if (header.header_bytes < min_header_bytes || header.total_bytes < header.header_bytes)
    return HeaderFault::kSizes;
  return HeaderFault::kOk;
}

// Continues a sentence: "the frame" + " " + text.
inline const char* HeaderFaultText(HeaderFault fault) {
  switch (fault) {
    case HeaderFault::kOk:
      return "has no fault";
    case HeaderFault::kTooShort:
      return "is shorter than a header";
    case HeaderFault::kMagic:
      return "is not of this kind (magic)";
    case HeaderFault::kEndian:
      return "was written on a machine of another byte order";
    case HeaderFault::kMajor:
      return "is of another major version";
    case HeaderFault::kSizes:
      return "has sizes that contradict each other";
  }
  return "has an unknown fault";
}

}  // namespace c4::wire
