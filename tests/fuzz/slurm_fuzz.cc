// What Slurm's tools print: users write comments, administrators reasons. The same bytes as each of the
// answers: refused, or names that scontrol takes for one word, and sights that follow from them.
#include <cstdint>
#include <string>

#include "c4d_master/recovery/slurm_words.h"
#include "tests/fuzz/check.h"

using namespace c4::c4d::recovery;  // NOLINT(google-build-using-namespace): a test's one file

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  if (const auto job = ReadSlurmJob(text); job.ok()) {
    C4_FUZZ_CHECK(!job->state.empty() && !job->partitions.empty());
  }
  if (const auto nodes = ReadSlurmNodes(text); nodes.ok()) {
    for (const SlurmNode& node : *nodes) {
      C4_FUZZ_CHECK(IsSlurmNodeName(node.name));
      const auto seen = SightOf("7", node, true, false);
      if (seen.sight == Event::Sight::kIsolated) C4_FUZZ_CHECK(IsOurReason("7", node.reason));
      if (node.drained()) C4_FUZZ_CHECK(seen.sight != Event::Sight::kFree);
    }
  }
  if (const auto hosts = ReadSlurmHosts(text); hosts.ok()) {
    for (const std::string& host : *hosts) C4_FUZZ_CHECK(IsSlurmNodeName(host));
  }
  if (const auto steps = ReadSlurmSteps(text); steps.ok()) {
    for (const SlurmStep& step : *steps) C4_FUZZ_CHECK(!step.id.empty() && step.id.front() != '-');
  }
  if (const auto comment = ReadStepsComment(text)) {
    C4_FUZZ_CHECK(ReadStepsComment(StepsCommentText(*comment)) == comment);
  }
  C4_FUZZ_CHECK(IsOurReason("7", SlurmReason("7", text)));
  C4_FUZZ_CHECK(SlurmReason("7", text).find('\n') == std::string::npos);
  return 0;
}
