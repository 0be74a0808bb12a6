// Files of iteration times and of calls, packed or not: whatever they hold, they are refused with a sentence
// or their changes have figures.
#include <cmath>
#include <cstdint>
#include <string>

#include "analysis/failslow/call_periods.h"
#include "analysis/failslow/report.h"
#include "tests/fuzz/check.h"
#include "traces/iteration_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  if (auto source = c4::traces::Unpacked(c4::traces::MemoryBytes(text)); source.ok()) {
    const auto times = c4::traces::ReadIterationTimes(source->get(), {.most = 10000});
    if (times.ok()) {
      c4::failslow::SeriesReport report = {.title = "fuzz", .times_s = times->times_s};
      report.changes = c4::failslow::FindChanges(report.times_s);
      for (const c4::failslow::Change& change : report.changes) {
        C4_FUZZ_CHECK(std::isfinite(change.before_s) && std::isfinite(change.after_s));
        C4_FUZZ_CHECK(change.iteration < report.times_s.size() && change.told_at < report.times_s.size());
      }
      C4_FUZZ_CHECK(!SeriesText(report, 80).empty() && !SeriesSvg(report).empty() &&
                    !SeriesJson(report).empty());
    } else {
      C4_FUZZ_CHECK(!times.status().message().empty());
    }
  }
  auto source = c4::traces::Unpacked(c4::traces::MemoryBytes(text));
  if (!source.ok()) return 0;
  const auto calls = c4::traces::ReadCalls(source->get(), {.most_values = 10000});
  if (!calls.ok()) return 0;
  for (const c4::traces::CallColumn& column : calls->columns) {
    C4_FUZZ_CHECK(column.values.size() == calls->calls);
    const c4::failslow::CallPeriods periods = c4::failslow::FindCallPeriods(column.values);
    for (const c4::failslow::CallIteration& iteration : IterationsOf(periods)) {
      C4_FUZZ_CHECK(iteration.end_call < calls->calls);
    }
  }
  return 0;
}
