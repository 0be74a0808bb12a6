// Verdicts as somebody in a hurry reads them in a terminal: who, since when, what to do; three lines at most.
// The evidence stands in the long form (service::VerdictText, `c4 verdicts -v`).
//
// Pure; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "c4/v1/c4d.pb.h"
#include "cli/text/screen.h"

namespace c4::cli {

// "07:58:12" in the local time zone, with the date in front when it is another day than `now`.
std::string ClockText(int64_t unix_ns, int64_t now_unix_ns);

// Three lines at most, each within the screen's width:
//   CONFIRMED crash: rank 4 (pid 1628 on host4) is gone
//     since 07:58:12 (1 min 12 s); ranks 0-3, 5-7 wait in operation 123
//     do: look for the end of process 1628 in the job's output and in `dmesg` ...
// A cleared one says whether it was ever confirmed, and has no advice.
std::string ShortVerdictText(const v1::Verdict& verdict, int64_t now_unix_ns, const Screen& screen);

// What to show, most pressing first: confirmed before suspected before cleared, the newest first in each.
// A suspicion that a confirmed verdict explains (see ExplainedBy) is left out; `folded` counts these.
std::vector<const v1::Verdict*> VerdictsToShow(const v1::ListVerdictsReply& reply, size_t* folded);
// True when `suspected` tells of what `confirmed` tells of: both are open, and they blame the same rank, the
// rank's node, or ranks that the confirmed one shows as waiting.
bool ExplainedBy(const v1::Verdict& suspected, const v1::Verdict& confirmed);

}  // namespace c4::cli
