#include "page/whatif_page.h"

#include <optional>

#include "analysis/whatif/report_reader.h"

namespace c4::page {

absl::StatusOr<v1::PageWhatIf> DescribeReport(const v1::ProfilingSession& figures,
                                              const std::string& report) {
  const absl::StatusOr<whatif::WorkerMap> map = whatif::ReadWorkerMap(report, std::nullopt);
  if (!map.ok()) return map.status();
  const absl::StatusOr<std::vector<whatif::StepSlowdown>> steps = whatif::ReadSteps(report);
  if (!steps.ok()) return steps.status();
  v1::PageWhatIf page;
  *page.mutable_figures() = figures;
  page.mutable_ranks()->Add(map->ranks.begin(), map->ranks.end());
  page.mutable_slowdown()->Add(map->slowdown.begin(), map->slowdown.end());
  page.mutable_alone()->Add(map->alone.begin(), map->alone.end());
  for (const whatif::StepSlowdown& step : *steps) {
    page.add_steps(step.step);
    page.add_step_slowdown(step.slowdown);
  }
  return page;
}

}  // namespace c4::page
