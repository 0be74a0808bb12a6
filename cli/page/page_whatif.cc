#include "cli/page/page_whatif.h"

#include <cerrno>
#include <sys/stat.h>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "analysis/whatif/causes.h"
#include "analysis/whatif/drawings.h"
#include "analysis/whatif/remedies.h"
#include "c4d_master/smon/profile_analysis.h"
#include "cli/whatif/whatif_input.h"
#include "service/printable.h"
#include "service/status.h"

namespace c4::cli {
namespace {

// Which content a path had: another one when the file was written since.
using Content = std::tuple<std::string, uint64_t, uint64_t, int64_t, int64_t>;

absl::StatusOr<Content> ContentOf(const std::string& path) {
  struct stat found = {};
  if (stat(path.c_str(), &found) != 0) return service::ErrnoStatus(errno, absl::StrCat("read ", path));
  return Content{path, found.st_dev, found.st_ino, found.st_size,
                 found.st_mtim.tv_sec * 1'000'000'000 + found.st_mtim.tv_nsec};
}

}  // namespace

struct WhatIfBook::Kept {
  Content content;
  whatif::Job job;
  whatif::Analysis analysis;
  v1::PageWhatIf page;
};

absl::StatusOr<std::shared_ptr<const WhatIfBook::Kept>> WhatIfBook::Of(const std::string& recording) {
  absl::StatusOr<Content> content = ContentOf(recording);
  if (!content.ok()) return content.status();
  for (const auto& kept : kept_) {
    if (kept->content == *content) return kept;
  }
  absl::StatusOr<whatif::Job> job = ReadJob({.trace = recording});
  if (!job.ok()) return job.status();
  absl::StatusOr<whatif::Analysis> analysis = whatif::Analyse(*job, 1);
  if (!analysis.ok()) return analysis.status();
  const whatif::Causes causes = whatif::FindCauses(*job, *analysis, 1);
  const whatif::WorkerMap map = whatif::MapOf(*job, *analysis);
  v1::PageWhatIf page;
  *page.mutable_figures() = c4d::FiguresOf(*job, *analysis, causes);
  page.mutable_ranks()->Add(map.ranks.begin(), map.ranks.end());
  page.mutable_slowdown()->Add(map.slowdown.begin(), map.slowdown.end());
  page.mutable_alone()->Add(map.alone.begin(), map.alone.end());
  for (size_t i = 0; i < job->trace.steps.size(); ++i) {
    page.add_steps(job->trace.steps[i]);
    page.add_step_slowdown(analysis->slowdown_by_step[i]);
  }
  page.set_can_ask(true);
  for (const whatif::Cause& cause : causes.causes) {
    page.add_cause_fixes(absl::StrCat("cause=", whatif::CauseWord(whatif::CauseBit(cause.kind))));
  }
  service::MakePrintable(&page);
  kept_.push_back(std::make_shared<const Kept>(
      Kept{*std::move(content), *std::move(job), *std::move(analysis), std::move(page)}));
  if (kept_.size() > kMostKept) kept_.pop_front();
  return kept_.back();
}

absl::StatusOr<v1::PageWhatIf> WhatIfBook::Ask(const std::string& recording,
                                               const std::vector<std::string>& fix) {
  const std::lock_guard lock(mutex_);
  const absl::StatusOr<std::shared_ptr<const Kept>> kept = Of(recording);
  if (!kept.ok()) return kept.status();
  v1::PageWhatIf page = (*kept)->page;
  if (fix.empty()) return page;
  const absl::StatusOr<whatif::Fix> fixed = ParseFix(fix, (*kept)->job.trace);
  if (!fixed.ok())
    return absl::InvalidArgumentError(service::Printable(std::string(fixed.status().message())));
  const whatif::Answer answer =
      fixed->causes == 0
          ? whatif::Ask((*kept)->job, (*kept)->analysis, whatif::Scenario::Chosen::kFix, fixed->chosen, 1)
          : whatif::Remedies((*kept)->job).Ask((*kept)->analysis, *fixed, 1);
  for (const std::string& word : fix) page.add_fix(service::Printable(word));
  page.set_step_time_s(answer.step_time_s);
  page.set_left_slowdown(answer.slowdown);
  page.set_speedup(answer.speedup);
  if (answer.share) page.set_removed(*answer.share);
  return page;
}

}  // namespace c4::cli
