// Replays a job under what-if scenarios: each operation starts when what it needs has ended; a transfer's
// time begins when its last end has started (the what-if paper, section 3.2).
//
// Lanes (a step of a data-parallel rank) that a scenario changes stand beside each other, of as many
// scenarios as fill a batch, and go through the graph together; lanes that it idealises altogether are one
// lane. Batches are shared out to threads. The graph is never built again, and nothing of the trace is
// copied.
//
// Keeps references to all that it is given. Run may be called from several threads at once. Seconds.
#pragma once

#include <cstddef>
#include <vector>

#include "analysis/whatif/durations.h"
#include "analysis/whatif/graph.h"
#include "analysis/whatif/scenario.h"
#include "analysis/whatif/trace.h"

namespace c4::whatif {

struct StepTimes {
  std::vector<double> optimizer_s;  // per step, from its start to the end of its last optimizer
  std::vector<double> last_s;       // to the end of its last operation, which may come later

  double MeanOptimizer_s() const;
  double MeanLast_s() const;
};

class Simulator {
 public:
  Simulator(const Trace& trace, const Graph& graph, const Durations& durations)
      : trace_(trace), graph_(graph), durations_(durations) {}

  // One answer a scenario. `threads`: at least 1, the caller's among them.
  std::vector<StepTimes> Run(const std::vector<Scenario>& scenarios, int threads) const;

  // When every operation of one step starts and ends in a scenario: [operation * dp_size + dp].
  struct Times {
    std::vector<double> start_s;
    std::vector<double> end_s;
  };
  Times Replay(const Scenario& scenario, size_t step) const;

 private:
  const Trace& trace_;
  const Graph& graph_;
  const Durations& durations_;
};

}  // namespace c4::whatif
