// The ledger of a job's fail-slows (analysis/mitigation/ledger.h), from its verdicts. Pure; any thread.
#pragma once

#include "analysis/mitigation/ledger.h"

namespace c4::v1 {
class ListDecisionsReply;
class ListVerdictsReply;
}  // namespace c4::v1

namespace c4::cli {

// Those of the syndrome fail-slow, oldest first; times are seconds of the Unix epoch. Suspected ones count,
// as far as they were confirmed or may be.
// `decisions`: what was decided about them.
mitigation::Ledger LedgerOf(const v1::ListVerdictsReply& reply, const v1::ListDecisionsReply& decisions);

}  // namespace c4::cli
