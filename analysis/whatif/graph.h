// Which operation of a step waits for which: the dependencies of the what-if paper, section 3.2, with the
// streams and the rules that recorded Megatron jobs need beyond it (docs/whatif.md). One graph serves all
// lanes (steps and data-parallel ranks), for any number of what-if questions.
//
// An event is what finishes at one moment: a computation, or a transfer with all its ends, which waits for
// everything that any of its ends waits for. Events stand in an order in which each comes after those that it
// needs. Ends of operations live in slots, which are used again once nobody needs them: a simulation of many
// lanes stays in the processor's cache.
//
// A plain value, not changed after BuildGraph: any number of threads.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "analysis/whatif/trace.h"

namespace c4::whatif {

struct Graph {
  struct Event {
    std::vector<uint32_t> operations;  // that end with it
    std::vector<uint32_t> needs;       // operations that must have ended
    bool across_dp = false;            // all data-parallel ranks of the step wait for each other
  };

  std::vector<std::vector<uint32_t>> needs;  // per operation: what it waits for itself
  std::vector<Event> events;
  std::vector<uint32_t> event_of;  // per operation
  std::vector<uint32_t> slots;     // per operation
  uint32_t slot_count = 0;
  std::vector<uint8_t>
      ends_step;  // per operation: the optimizer, whose end is the step's; all where there is none
  // Per operation: whether its recorded duration contains waiting for others, so that only its transfer
  // counts.
  std::vector<uint8_t> transfers;
};

// FailedPrecondition with a sentence when the operations of the template do not fit together.
absl::StatusOr<Graph> BuildGraph(const Trace& trace);

}  // namespace c4::whatif
