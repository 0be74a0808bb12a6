// What a validation's figures mean: each device and link beside the others of its kind, and beside its own in
// the job's first validation. Pure; one thread.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "c4/v1/c4d.pb.h"
#include "c4/v1/validation.pb.h"

namespace c4::c4d {

// Of the rates of a job's devices and links when they were first tested.
struct FirstFigures {
  std::map<std::string, double> rates;  // by what it is: rank and test, or two addresses
};

inline constexpr double kSlowRate = 0.8;       // of the others' median, or of its own first rate
inline constexpr double kSlowStream = 0.35;    // of a link's slowest stream to the median of links
inline constexpr size_t kFewestToCompare = 3;  // less than so many have no median

// What came of a link's transfer. Of several the one that moved most counts.
void TakeTransfer(const std::string& fault, const std::vector<double>& stream_mib_s, v1::ValidatedLink* link);

// Fills in ratios and `slow`; takes what has no first figure yet into `first`.
void Judge(v1::Validation* validation, FirstFigures* first);

// For a verdict: a sentence for each slow device and link, and one for what was tested and found sound.
std::vector<v1::Evidence> EvidenceOf(const v1::Validation& validation);

}  // namespace c4::c4d
