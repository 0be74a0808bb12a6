// Synthetic jobs of one known cause each, and what the causes analysis says of them. Deterministic by the
// seed.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "analysis/whatif/causes.h"
#include "benchmarks/synthetic_job.h"

namespace c4::benchmarks {

// By CauseKind; the last row and column: none.
struct CauseResults {
  std::array<std::array<int, whatif::kCauseKinds + 1>, whatif::kCauseKinds + 1> confusion{};
  int right = 0;
  std::vector<std::string> wrong;  // a line each
};

const char* CauseLabel(size_t kind);

// A job of random shape, slowed down by 1.1 to 2 by the cause with this number.
SyntheticJob JobOfCause(size_t kind, uint64_t seed);

CauseResults JudgeCauses(int jobs, uint64_t seed);

// Jobs of one to five causes at once: whether each gain that is advised is what `--fix` of just that says,
// and how far it is from what the job gains when it is executed without that cause.
struct AdviceResults {
  int gains = 0;
  int left_out = 0;  // causes that were injected and are not named
  // Quoted gain less the true one, in percent of a step; by cause.
  std::array<std::vector<double>, whatif::kCauseKinds> off_percent;
  std::vector<std::string> wrong;  // a line each: quoted is not what is simulated, to 2 %
};

SyntheticJob JobOfCauses(uint64_t seed, std::vector<size_t>* kinds);

AdviceResults JudgeAdvice(int jobs, uint64_t seed);

}  // namespace c4::benchmarks
