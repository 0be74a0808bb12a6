#include "benchmarks/downtime_model.h"

#include <algorithm>
#include <random>

namespace c4::benchmarks {

// Table 1 of forty: 12.5 % are five, 27.5 % eleven, 20 % eight; localised are all, all, 75 %, 81.8 %, 40 %.
std::vector<PlannedFault> FaultsOfTable1(unsigned seed) {
  using fabric::Kind;
  std::vector<PlannedFault> faults;
  const auto add = [&faults](int count, const char* cause, bool localised, Kind kind,
                             bool of_a_host = false) {
    faults.insert(faults.end(), static_cast<size_t>(count), {cause, localised, kind, of_a_host});
  };
  add(5, "CUDA error", true, Kind::kKill);
  add(6, "ECC/NVLink error", true, Kind::kKill);
  add(5, "ECC/NVLink error", true, Kind::kStop);
  add(6, "NCCL timeout", true, Kind::kStop);
  add(2, "NCCL timeout", false, Kind::kMismatch);
  add(9, "ACK timeout", true, Kind::kNodeLoss);
  add(2, "ACK timeout", false, Kind::kCut);
  add(2, "network, others", true, Kind::kCut, /*of_a_host=*/true);
  add(3, "network, others", false, Kind::kCut);
  std::mt19937 random(seed);
  std::shuffle(faults.begin(), faults.end(), random);
  return faults;
}

Month MonthOf(const std::vector<FaultCost>& faults, const MonthTerms& terms) {
  Month month;
  for (const FaultCost& fault : faults) {
    if (!fault.interrupted) continue;
    month.lost_work += terms.checkpoint_every_s / 2;
    month.detection += fault.hung ? terms.hang_limit_s : fault.detection_s;
    month.isolation += terms.diagnosis_s >= 0 ? terms.diagnosis_s : fault.isolation_s;
    month.initialisation += fault.initialisation_s;
  }
  for (double* part : {&month.lost_work, &month.detection, &month.isolation, &month.initialisation}) {
    *part /= terms.month_s;
  }
  return month;
}

}  // namespace c4::benchmarks
