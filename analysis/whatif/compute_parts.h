// Splits the durations of computations into stage, worker, micro-batch and pauses. Part of FindCauses.
//
// Plain values once made; any thread. Seconds; factors are relative.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "analysis/whatif/analysis.h"

namespace c4::whatif {

class ComputeParts {
 public:
  explicit ComputeParts(const Job& job);

  // What a computation costs on a worker, and on the stage's usual worker.
  double OfWorker(size_t operation, int dp) const;
  double OfStage(size_t operation) const;

  struct SlowWorker {
    int dp = 0;
    int stage = 0;
    int rank = -1;      // to blame: the worker's, or the member of its tensor group that the others wait for
    double factor = 1;  // of its computations
    // What it does between its operations in a step, where that is unusually much; else 0.
    double own_s = 0;
    double usual_own_s = 0;
    double own_share = 0;  // of a step, beyond the usual

    double Severity() const { return factor - 1 + own_share; }
  };
  const std::vector<SlowWorker>& slow_workers() const { return slow_workers_; }

  // By what a micro-batch costs more or less than usual, on all stages: [micro-batch][lane].
  size_t micro_batches() const { return micro_batch_names_.size(); }
  size_t MicroBatch(size_t operation) const;
  float Work(size_t micro_batch, size_t lane) const { return work_[micro_batch * lanes_ + lane]; }
  double mean_work() const { return mean_work_; }
  // Whether forward and backward agree about it.
  std::optional<double> work_correlation() const { return work_correlation_; }
  // Forward and backward agree, and the work differs by more than noise.
  bool sequences_differ() const { return sequences_differ_; }

  struct Pause {
    size_t operation = 0;
    size_t lane = 0;
    double seconds = 0;
  };
  const std::vector<Pause>& pauses() const { return pauses_; }
  // What the computation would have taken without its pause.
  double Expected(size_t operation, size_t lane) const;

 private:
  void FindCosts();
  void FindOwnTimes();
  void FindSlowWorkers();
  void FindLagging(SlowWorker* worker) const;
  void FindOwnTime(SlowWorker* worker) const;
  void FindWork();
  bool SequencesDiffer() const;
  void FindPauses();
  std::vector<size_t> Computations(int stage, OperationType type) const;
  size_t Cell(size_t operation) const;

  const Job& job_;
  const Trace& trace_;
  size_t lanes_;
  size_t dp_size_;
  int chunks_ = 1;
  std::vector<double> worker_cost_;  // [cell][dp]; cell: type, stage, chunk
  std::vector<double> stage_cost_;   // [cell]
  std::vector<double> spread_;       // [cell]: relative, robust, of one worker's durations
  std::vector<double> own_s_;        // by worker, in the usual step; empty: not known
  std::vector<double> usual_own_s_;
  std::vector<SlowWorker> slow_workers_;
  std::map<int, size_t> micro_batch_names_;
  std::vector<float> work_;
  double mean_work_ = 1;
  std::optional<double> work_correlation_;
  bool sequences_differ_ = false;
  std::vector<Pause> pauses_;
};

}  // namespace c4::whatif
