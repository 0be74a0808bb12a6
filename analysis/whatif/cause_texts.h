// Writes what is said of a cause: the evidence, the advice with its gains, and why a cause is not there.
// Part of FindCauses. Pure but for the threads of the replays.
#pragma once

#include <optional>
#include <string>

#include "analysis/whatif/causes.h"

namespace c4::whatif {

class CauseTexts {
 public:
  CauseTexts(const Job& job, const Analysis& analysis, const Remedies& remedies, int threads)
      : trace_(job.trace), analysis_(analysis), remedies_(remedies), threads_(threads) {}

  // Where the durations show nothing of it.
  std::optional<std::string> WhyAbsent(CauseKind kind) const;
  // Sets evidence, advice, gains and ranks.
  void Describe(Cause* cause) const;
  // Of all that is advised against these.
  Gain Together(const std::vector<Cause>& causes) const;

 private:
  Gain Of(std::string what, std::vector<std::string> words, const Fix& fix) const;
  Gain OfCause(uint32_t bit) const;
  std::string Evidence(const ComputeParts::SlowWorker& worker) const;
  bool IsLagging(const ComputeParts::SlowWorker& worker) const;
  void Worker(Cause* cause) const;
  void StageImbalance(Cause* cause) const;
  void SequenceLengths(Cause* cause) const;
  void Pauses(Cause* cause) const;
  void Communication(Cause* cause) const;
  void LaunchDelay(Cause* cause) const;
  std::vector<double> ComputedByStage_s() const;

  const Trace& trace_;
  const Analysis& analysis_;
  const Remedies& remedies_;
  const int threads_;
};

// "12.3 % faster", "no faster".
std::string GainText(double percent);

}  // namespace c4::whatif
