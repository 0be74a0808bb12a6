// The profiles of PyTorch's profiler that `c4 whatif --mapping` is given: opens the files, a directory
// standing for those in it, and reads them one after the other.
//
// Any thread. Every error is a sentence that names the file.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "traces/kineto_proposal.h"
#include "traces/table_reader.h"

namespace c4::cli {

// Whether it is a mapping at all; sizes and layouts may still be missing.
absl::Status CheckMapping(const std::string& mapping_path);

// A mapping for these profiles, from the names in the first few of them.
absl::StatusOr<traces::KinetoProposal::Proposal> ProposeMapping(const std::vector<std::string>& words);

absl::StatusOr<traces::TableContents> ReadKinetoJob(const std::vector<std::string>& words,
                                                    const std::string& mapping_path,
                                                    const whatif::JobShape& shape,
                                                    const traces::TableOptions& options);

}  // namespace c4::cli
