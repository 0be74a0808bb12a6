// The C4 paper's table 3 from faults that were played: what each cost in its parts, and the arithmetic that
// makes a month of them. The month is a model and nothing else: so many faults, one after the other, of a
// job that writes a checkpoint every so often. Pure.
#pragma once

#include <string>
#include <vector>

#include "fabric/inject/fault.h"

namespace c4::benchmarks {

// One of forty, by the paper's table 1: what its users saw, and what is played for it.
struct PlannedFault {
  std::string root_cause;  // as the table calls it
  bool localised = false;  // a node is to blame
  fabric::Kind kind = fabric::Kind::kStop;
  bool of_a_host = false;  // kCut: of a host's link, else of one between leaf and spine
};
// All forty, the same in the same order for a seed.
std::vector<PlannedFault> FaultsOfTable1(unsigned seed);

struct FaultCost {
  bool interrupted = false;     // the job had to be started again
  double detection_s = 0;       // from the fault to the confirmed verdict, or to the end of the job
  double isolation_s = 0;       // to the last node that was isolated
  double initialisation_s = 0;  // to the first new iteration
  bool hung = false;            // nothing ended the job: detection_s is not known
};

struct MonthTerms {
  double month_s = 30 * 86'400.0;
  double checkpoint_every_s = 600;
  double hang_limit_s = 1800;  // in which a framework ends a job that hangs
  double diagnosis_s = -1;     // of each interruption, by a person; -1: as measured
};

// Shares of the month.
struct Month {
  double lost_work = 0;
  double detection = 0;
  double isolation = 0;
  double initialisation = 0;
  double total() const { return lost_work + detection + isolation + initialisation; }
};

// On average half of the time between two checkpoints is done again.
Month MonthOf(const std::vector<FaultCost>& faults, const MonthTerms& terms);

// What table 3 says, as shares.
inline constexpr Month kPaperJune = {0.0753, 0.0341, 0.1965, 0.006};
inline constexpr Month kPaperDecember = {0.0023, 0.0005, 0.0073, 0.0015};

}  // namespace c4::benchmarks
