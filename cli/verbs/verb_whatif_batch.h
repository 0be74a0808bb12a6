// `c4 whatif` over a folder of traces: what the verb does when it is given --batch or --aggregate. As a verb.
#pragma once

#include "cli/verb.h"

namespace c4::cli {

bool IsBatch(const Arguments& arguments);
int RunWhatIfBatch(const Arguments& arguments);

}  // namespace c4::cli
