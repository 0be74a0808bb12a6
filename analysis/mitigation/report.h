// What mitigation tells, as text for a terminal of 80 columns and as JSON (docs/mitigation.md). Pure; any
// thread.
#pragma once

#include <functional>
#include <span>
#include <string>

#include "analysis/mitigation/ledger.h"
#include "analysis/mitigation/micro_batches.h"
#include "analysis/mitigation/placement_search.h"

namespace c4::mitigation {

std::string MicroBatchText(std::span<const double> times_s, const MicroBatchPlan& plan);
// One document, without a line's end.
std::string MicroBatchJson(const MicroBatchPlan& plan);

std::string PlacementText(const PlacedJob& job, const PlacementPlan& plan);
std::string PlacementJson(const PlacedJob& job, const PlacementPlan& plan);

// `clock`: how a moment of the ledger's clock is written.
std::string LedgerText(const std::string& job, const Ledger& ledger,
                       const std::function<std::string(double)>& clock);
std::string LedgerJson(const std::string& job, const Ledger& ledger);

}  // namespace c4::mitigation
