// A log of NCCL's Inspector, or whatever lies in its folder: each line is refused with a reason, or is a
// record whose telemetry the master takes in and judges. The job goes on for ten seconds with each line.
#include <cstdint>
#include <string_view>

#include "c4d_master/job_view.h"
#include "c4d_master/sources/inspector_telemetry.h"
#include "c4d_master/telemetry_decode.h"
#include "c4d_master/windows.h"
#include "tests/fuzz/check.h"

using namespace c4::c4d;  // NOLINT(google-build-using-namespace): a test's one file

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string_view text(reinterpret_cast<const char*>(data), size);
  InspectorTelemetry telemetry("job", 1);
  JobView view(10 * kSecondNs);
  Windows windows;
  Now now{1000 * kSecondNs, 1'700'000'000 * kSecondNs};
  std::vector<std::string> faults;
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    const absl::StatusOr<InspectorRecord> record = ParseInspectorLine(line);
    if (record.ok()) {
      C4_FUZZ_CHECK(record->rank < record->rank_count && !record->host.empty() && record->pid > 0);
      C4_FUZZ_CHECK(record->began_unix_ns >= 0 && record->began_unix_ns <= record->ended_unix_ns);
      C4_FUZZ_CHECK(record->ended_unix_ns <= record->dumped_unix_ns);
      telemetry.Observe({*record}, now);
    } else {
      C4_FUZZ_CHECK(!record.status().message().empty());
    }
    now.monotonic_ns += 10 * kSecondNs;
    now.unix_ns += 10 * kSecondNs;
    for (const c4::v1::TelemetryBatch& batch : telemetry.Take(now)) {
      if (!CheckBatch(batch).ok()) continue;
      if (view.Ingest(batch, now.monotonic_ns, &faults) != JobView::Taken::kNew) continue;
      windows.Observe(view.hosts().at(batch.host()));
    }
    (void)view.Snapshot(now.monotonic_ns);
  }
  return 0;
}
