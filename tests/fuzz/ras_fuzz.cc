// What the port of NCCL's RAS answers, or whatever listens there: refused, or a job whose telemetry the
// master takes in and judges, twice, as the second answer's counts are held against the first's.
#include <cstdint>
#include <string_view>

#include "c4d_master/job_view.h"
#include "c4d_master/sources/ras_telemetry.h"
#include "c4d_master/telemetry_decode.h"
#include "tests/fuzz/check.h"

using namespace c4::c4d;  // NOLINT(google-build-using-namespace): a test's one file

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const size_t half = text.find('\0');
  RasTelemetry telemetry("job", 1);
  JobView view(10 * kSecondNs);
  Now now{1000 * kSecondNs, 1'700'000'000 * kSecondNs};
  for (const std::string_view reply :
       {text.substr(0, half), half == text.npos ? text : text.substr(half + 1)}) {
    const absl::StatusOr<RasStatus> status = ParseRasReply(reply);
    if (!status.ok()) {
      C4_FUZZ_CHECK(!status.status().message().empty());
      continue;
    }
    for (const RasCommunicator& communicator : status->communicators) {
      C4_FUZZ_CHECK(communicator.ranks.size() + communicator.missing.size() <= communicator.size);
      for (const RasRank& rank : communicator.ranks) C4_FUZZ_CHECK(rank.rank < communicator.size);
    }
    now.monotonic_ns += kSecondNs;
    now.unix_ns += kSecondNs;
    std::vector<std::string> faults;
    for (const c4::v1::TelemetryBatch& batch : telemetry.Take(*status, now)) {
      if (!CheckBatch(batch).ok()) continue;
      (void)view.Ingest(batch, now.monotonic_ns, &faults);
    }
    (void)view.Snapshot(now.monotonic_ns);
  }
  return 0;
}
