// The report of a job, as NCCL's RAS gives it: as text for people and as JSON for programs, with the words
// and the layout that NCCL's own clients and the detectors of frameworks know (docs/sources.md). Pure; any
// thread.
#pragma once

#include <cstdint>
#include <ctime>
#include <string>
#include <vector>

#include "ccl/ras/protocol.h"

namespace c4::ras {

// A process of the job, and what it has told.
struct ProcessTold {
  std::string host;  // an address
  uint32_t pid = 0;
  bool answered = false;
  bool dead = false;  // nobody is at any of its ports
  std::vector<State> states;
};

// Who is known to be a rank of a communicator that the process which answers is in, too.
struct Seat {
  uint64_t communicator_id = 0;
  uint32_t rank = 0;
  uint32_t rank_count = 0;
  size_t process = 0;  // its place among the processes
};

struct Missing {
  uint32_t rank = 0;
  std::string host;  // empty: not known
  uint32_t pid = 0;  // 0: not known
  bool answered = false;
  bool dead = false;
};

struct Present {
  State state{};
  size_t process = 0;
};

struct CommunicatorReport {
  uint64_t id = 0;
  uint32_t rank_count = 0;
  std::vector<Present> ranks;    // ascending
  std::vector<Missing> missing;  // ascending
};

struct Report {
  std::vector<ProcessTold> processes;
  std::vector<CommunicatorReport> communicators;  // by size, the widest first
  double seconds = 0;                             // that it took
  uint32_t timeouts = 0;                          // processes that did not answer in time
};

// Brings together what the processes told. A communicator of which a rank says another size than others has
// the size that was said first.
Report Compose(std::vector<ProcessTold> processes, const std::vector<Seat>& seats, double seconds);

std::string ToJson(const Report& report, time_t now);
std::string ToText(const Report& report, bool verbose);

}  // namespace c4::ras
