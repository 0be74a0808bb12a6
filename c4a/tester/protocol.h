// What the program c4-validate-worker and whoever started it say to each other: lines of words over its
// standard input and output.
//
//   to it      devices MS                              test the device, all precisions together for MS
//              transfer NUMBER FROM TO BYTES STREAMS MS    send; FROM "-": from any address
//   from it    ready PORT DEVICE...                    it takes transfers there; the device in words
//              fault SENTENCE                          it cannot do anything, and ends
//              device TEST=GFLOPS ...    or    device fault SENTENCE
//              transfer NUMBER BYTES NS RATE,RATE,...  or    transfer NUMBER fault SENTENCE
//
// The end of its input ends it. Pure; any thread. It runs as the rank's user, so what it says is checked like
// anything from outside.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "service/status.h"

namespace c4::tester {

inline constexpr size_t kLongestLine = 4096;
inline constexpr uint32_t kMostStreams = 64;
inline constexpr uint32_t kLongestTestMs = 60000;

struct DeviceOrder {
  uint32_t ms = 0;
};
struct TransferOrder {
  uint64_t number = 0;
  std::string from;  // address; empty: any
  std::string to;    // address:port, [address]:port
  uint64_t bytes = 0;
  uint32_t streams = 1;
  uint32_t ms = 0;
};
using Order = std::variant<DeviceOrder, TransferOrder>;

struct Ready {
  uint32_t port = 0;
  std::string device;
};
struct Fault {
  std::string sentence;
};
struct DeviceFigures {
  std::vector<std::pair<std::string, double>> gflops;  // by precision
  std::string fault;
};
struct TransferFigures {
  uint64_t number = 0;
  uint64_t bytes = 0;
  int64_t ns = 0;
  std::vector<double> stream_mib_s;
  std::string fault;
};
using Answer = std::variant<Ready, Fault, DeviceFigures, TransferFigures>;

// Without the end of the line. InvalidArgument with a sentence.
std::string ToLine(const Order& order);
absl::StatusOr<Order> ParseOrder(const std::string& line);
std::string ToLine(const Answer& answer);
absl::StatusOr<Answer> ParseAnswer(const std::string& line);

}  // namespace c4::tester
