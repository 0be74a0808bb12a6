// Which lanes a scenario needs in a step, and which operations keep their recorded duration in each of them.
//
// Part of the simulator; immutable once made, any thread reads it. Refers to trace and scenario.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "analysis/whatif/scenario.h"
#include "analysis/whatif/trace.h"

namespace c4::whatif {

// Per operation: 1 where the recorded duration counts.
using OperationMask = std::vector<uint8_t>;

struct Lane {
  uint32_t lane = 0;  // of the trace
  const OperationMask* recorded = nullptr;
  const TypeDurations* replacement = nullptr;
};

class LanePlan {
 public:
  LanePlan(const Trace& trace, const Scenario& scenario);

  size_t LaneCount(size_t step) const { return KindOf(step).lanes; }
  void Append(size_t step, std::vector<Lane>* lanes) const;
  // One lane for each data-parallel rank, also of those that are alike.
  void AppendAll(size_t step, std::vector<Lane>* lanes) const;
  // No selection is of some steps only.
  bool AllStepsAlike() const { return kinds_.size() == 1; }
  // The mask of the step where all its lanes have one, else null.
  const OperationMask* Uniform(size_t step) const { return KindOf(step).uniform; }

 private:
  // Steps that the same selections apply to.
  struct Kind {
    std::vector<const OperationMask*> masks;  // per data-parallel rank
    const OperationMask* uniform = nullptr;
    size_t lanes = 0;
  };

  const Kind& KindOf(size_t step) const { return kinds_[kind_of_[step]]; }
  Kind MakeKind(const std::vector<uint32_t>& selections);
  const OperationMask* Mask(const std::vector<uint32_t>& selections);

  const Trace& trace_;
  const Scenario& scenario_;
  std::map<std::vector<uint32_t>, std::unique_ptr<OperationMask>> masks_;
  std::vector<Kind> kinds_;
  std::vector<uint32_t> kind_of_;  // per step
  const OperationMask* all_replaced_ = nullptr;
};

}  // namespace c4::whatif
