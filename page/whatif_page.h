// A session's report as the operator's page shows it. Pure; any thread.
#pragma once

#include <string>

#include "c4/v1/page.pb.h"
#include "c4/v1/smon.pb.h"
#include "service/status.h"

namespace c4::page {

// `report`: the JSON of `c4 whatif --json`. DataLoss: it is none.
absl::StatusOr<v1::PageWhatIf> DescribeReport(const v1::ProfilingSession& figures, const std::string& report);

}  // namespace c4::page
