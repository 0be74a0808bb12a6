// Where the threads of a process of this machine stand: by the kernel, and by Python where the process offers
// that (python/c4_train/stacks.py). Any thread; reads /proc anew with each call.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/time/time.h"

namespace c4::cli {

struct ThreadPlace {
  uint32_t tid = 0;
  std::string name;
  char state = '?';          // as /proc has it: R, S, D, T, t, Z
  std::string wait_channel;  // of the kernel; empty: it runs, or is not told
  // Of the kernel, innermost first, without offsets; empty: it runs in user space, or only root is told.
  std::vector<std::string> kernel_stack;
};

struct PythonPlace {
  std::vector<std::string> lines;  // as Python writes them; empty: see `why`
  std::string why;                 // no stacks: what to do
};

// Threads in the order of their numbers; none: there is no such process.
std::vector<ThreadPlace> ThreadsOf(uint32_t pid);

// Sends the process the signal that it takes for this, and waits so long for what it writes. A process that
// does not take it is sent nothing.
PythonPlace PythonStacksOf(uint32_t pid, absl::Duration patience);

// Whether that process of this machine is the one that a master knows: its boot, and its start in clock
// ticks.
bool IsHere(const std::string& boot_id, uint32_t pid, uint64_t start_ticks);

}  // namespace c4::cli
