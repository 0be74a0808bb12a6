#include "c4d_master/smon/profile_analysis.h"

#include <utility>

#include "analysis/whatif/report.h"
#include "service/text.h"

namespace c4::c4d {

v1::ProfilingSession FiguresOf(const whatif::Job& job, const whatif::Analysis& analysis,
                               const whatif::Causes& causes) {
  v1::ProfilingSession figures;
  figures.set_steps(static_cast<uint32_t>(job.trace.steps.size()));
  figures.set_dp_size(static_cast<uint32_t>(job.trace.dp_size));
  figures.set_pp_size(static_cast<uint32_t>(job.trace.pp_size));
  figures.set_slowdown(analysis.slowdown);
  figures.set_waste(analysis.waste());
  figures.set_step_time_s(analysis.step_time_s);
  figures.set_step_time_ideal_s(analysis.step_time_ideal_s);
  figures.set_discrepancy(analysis.discrepancy);
  figures.set_doubtful(analysis.discrepancy > whatif::kDoubtfulDiscrepancy);
  if (analysis.m_w.removed) figures.set_m_w(*analysis.m_w.removed);
  if (analysis.m_s.removed) figures.set_m_s(*analysis.m_s.removed);
  if (analysis.correlation) figures.set_fwd_bwd_correlation(*analysis.correlation);
  for (const whatif::Cause& found : causes.causes) {
    v1::SuspectedCause* cause = figures.add_causes();
    cause->set_cause(whatif::CauseName(found.kind));
    cause->set_share(found.share);
    cause->set_evidence(found.evidence);
    cause->set_advice(found.advice);
    cause->mutable_ranks()->Add(found.ranks.begin(), found.ranks.end());
  }
  for (const std::string& note : job.trace.notes) figures.add_notes(service::ToUtf8(note));
  return figures;
}

absl::StatusOr<ProfileReport> AnalyseProfile(const ProfiledJob& profile, int threads) {
  absl::StatusOr<whatif::Trace> trace = whatif::BuildTrace(profile.records, profile.shape);
  if (!trace.ok()) return trace.status();
  const absl::StatusOr<whatif::Job> job = whatif::MakeJob(*std::move(trace));
  if (!job.ok()) return job.status();
  const absl::StatusOr<whatif::Analysis> analysis = whatif::Analyse(*job, threads);
  if (!analysis.ok()) return analysis.status();
  const whatif::Causes causes = whatif::FindCauses(*job, *analysis, threads);
  const whatif::Report report = {*job, *analysis, causes, {}};
  ProfileReport result{FiguresOf(*job, *analysis, causes), whatif::ReportJson(report, -1),
                       whatif::ReportText(report)};
  for (const std::string& sentence : profile.not_seen) result.figures.add_not_seen(service::ToUtf8(sentence));
  return result;
}

}  // namespace c4::c4d
