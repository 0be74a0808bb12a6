// The marks of one process in order: its steps, and what it says of the moment at which an operation was
// called. Part of JoinProfile.
//
// Points into the process's marks, which must outlive it. One thread.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <vector>

#include "c4d_master/smon/profile.h"

namespace c4::c4d {

class WorkerSteps {
 public:
  struct Step {
    int32_t number = -1;
    int64_t began_ns = 0;
    int64_t ended_ns = 0;
    uint32_t clock = 0;
    std::vector<const MarkedSpan*> marks;  // that began within it, by begin
    std::vector<int64_t> latest_end_ns;    // of each mark and all before it
  };

  explicit WorkerSteps(const ProfiledProcess& process);

  const std::vector<Step>& steps() const { return steps_; }
  // Numbers that two steps have; neither of them is in steps().
  const std::set<int32_t>& twice() const { return twice_; }
  // The step that goes on at that moment; nullptr: none.
  const Step* At(int64_t at_ns) const;

  // The innermost mark (not of a step) around that moment; nullptr: none.
  static const MarkedSpan* Around(const Step& step, int64_t at_ns);
  // The last forward or backward computation that began before it, or the first one after it.
  static const MarkedSpan* ComputedBefore(const Step& step, int64_t at_ns);
  static const MarkedSpan* ComputedAfter(const Step& step, int64_t at_ns);
  static const MarkedSpan* First(const Step& step, MarkKind kind);
  static const MarkedSpan* Last(const Step& step, MarkKind kind);

 private:
  std::vector<Step> steps_;  // by begin
  std::set<int32_t> twice_;
};

constexpr bool IsComputation(MarkKind kind) {
  return kind == MarkKind::kForwardCompute || kind == MarkKind::kBackwardCompute;
}

}  // namespace c4::c4d
