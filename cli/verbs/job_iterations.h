// What `c4 iterations JOB` shows of a job that runs: the series of its iterations with their changes, as its
// master knows them. Pure; any thread.
#pragma once

#include <string>

#include "analysis/failslow/report.h"
#include "c4/v1/c4d.pb.h"

namespace c4::cli {

// The iterations of the shape that took most of the time, and the changes that most ranks tell.
failslow::SeriesReport ReportOf(const v1::GetIterationsReply& reply);

// At most `columns` wide.
std::string JobIterationsText(const v1::GetIterationsReply& reply, int columns);

// {"job","rank","period","iterations","median_s","changes":[...],"times":[...],"ranks":[...]}
std::string JobIterationsJson(const v1::GetIterationsReply& reply);

}  // namespace c4::cli
