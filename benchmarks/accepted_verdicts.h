// What counts as right for each fault of a simulated job: the table of docs/jobsim.md, written down before
// the detectors are held against it. "Ambiguous" is right only where the telemetry cannot tell.
//
// Pure functions; any thread.
#pragma once

#include <cstdint>
#include <set>
#include <string>

#include "c4/v1/c4d.pb.h"
#include "fabric/jobsim/physics.h"

namespace c4::benchmarks {

class AcceptedVerdicts {
 public:
  // `physics` is the life that the fault is in; it outlives this.
  explicit AcceptedVerdicts(const jobsim::Physics& physics);

  // Seconds from when the fault shows to the confirmed verdict, at the latest.
  double limit_s() const;
  // Whether the fault shows by what it makes stand still, so that the limit counts from there.
  bool stands_still() const;
  // Whether this may be said of it.
  bool IsRight(const v1::Verdict& verdict) const;
  // Takes what was right; whether all is said by now that has to be.
  bool IsComplete(const v1::Verdict& verdict);

 private:
  bool IsRightCrash(const v1::Culprit& culprit) const;
  bool IsRightSlow(const v1::Culprit& culprit) const;
  bool IsRightNic(const v1::Culprit& culprit) const;
  bool IsOnlyWay(const v1::Culprit& culprit) const;
  bool IsRightLink(const v1::Culprit& culprit) const;
  bool IsRightLeaf(const v1::Culprit& culprit) const;
  bool IsRightInside(const v1::Culprit& culprit) const;
  bool IsOwnGroup(const v1::Culprit& culprit, size_t most) const;
  bool CrossesFault(const v1::Culprit& culprit) const;
  // Deaths that no agent can put in order: its scans are a tenth of a second apart.
  std::set<int32_t> DiedTogether() const;

  const jobsim::Physics& physics_;
  const jobsim::Shape& shape_;
  const jobsim::Fault& fault_;
  const std::string node_;
  std::set<int32_t> slow_;
  std::set<int32_t> said_;
};

}  // namespace c4::benchmarks
