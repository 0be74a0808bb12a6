// What is known of a job that is over, from its directory of logs (job_log.h): the verdicts of its store, the
// ranks of its last minutes. One thread; errors are sentences that say what is missing.
#pragma once

#include <cstdint>
#include <string>

#include "c4/v1/c4d.pb.h"
#include "cli/clients/master_client.h"
#include "cli/launch/job_log.h"
#include "cli/text/screen.h"

namespace c4::cli {

// NotFound when the job had no master of its own.
absl::StatusOr<v1::ListVerdictsReply> EndedVerdicts(const JobRecord& record, bool include_cleared);
// What was decided about its fail-slows.
absl::StatusOr<v1::ListDecisionsReply> EndedDecisions(const JobRecord& record);
absl::StatusOr<v1::GetStatusReply> EndedStatus(const JobRecord& record);

// When the job ended, at the end of what the verdicts' times are told against: of a job that was killed with
// its launcher the moment that its logs were last written to.
int64_t EndOf(const JobRecord& record);
// "job night ended at 03:12:07 (5 min ago): rank 2 was ended by signal 9 (SIGKILL); ..." and a second line
// that says where its logs are.
std::string EndedHead(const JobRecord& record, int64_t now_unix_ns, const Screen& screen);

// What to show where no master could be asked (`asked`): the ended job of that name. `asked` itself when
// there is none; where no job was named with the newest ended one in its sentence.
absl::StatusOr<JobRecord> EndedInstead(const absl::Status& asked, const MasterOptions& master,
                                       const std::string& log_dir);

}  // namespace c4::cli
