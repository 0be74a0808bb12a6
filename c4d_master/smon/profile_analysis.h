// From the profile of a session to its figures and its report. Pure but for the threads of the replays: it
// runs on a worker, tens of milliseconds to seconds.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "analysis/whatif/analysis.h"
#include "analysis/whatif/causes.h"
#include "c4/v1/smon.pb.h"
#include "c4d_master/smon/profile_source.h"

namespace c4::c4d {

// The fields of an analysed session, and notes; no others.
v1::ProfilingSession FiguresOf(const whatif::Job& job, const whatif::Analysis& analysis,
                               const whatif::Causes& causes);

struct ProfileReport {
  v1::ProfilingSession figures;  // the fields of an analysed session, notes and not_seen; no others
  std::string json;              // as `c4 whatif --json`, on one line
  std::string text;              // as `c4 whatif`
};

// InvalidArgument: the profile cannot be analysed, with the reason.
absl::StatusOr<ProfileReport> AnalyseProfile(const ProfiledJob& profile, int threads);

}  // namespace c4::c4d
