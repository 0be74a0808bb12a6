// What drivers of recovery answer, and what the launcher of an elastic job is asked: any bytes are refused
// with a sentence, or are an answer; and whatever was asked for, no rank is on a host that is isolated.
#include <algorithm>
#include <cstdint>
#include <string>

#include <nlohmann/json.hpp>

#include "c4d_master/recovery/driver.h"
#include "cli/launch/elastic.h"
#include "tests/fuzz/check.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using nlohmann::json;
  const std::string text(reinterpret_cast<const char*>(data), size);
  const c4::c4d::recovery::DriverReply reply = c4::c4d::recovery::ReadReply(text);
  C4_FUZZ_CHECK(reply.outcome != c4::c4d::recovery::Event::Outcome::kUnknown || !reply.text.empty());
  if (const auto seen = c4::c4d::recovery::ReadInventory(text); seen.ok()) {
    for (const auto& node : seen->nodes) C4_FUZZ_CHECK(!node.node.empty());
  } else {
    C4_FUZZ_CHECK(!seen.status().message().empty());
  }
  // Its lines one after the other, to one job.
  c4::cli::ElasticJob job({"h0", "h1", "h2", "h3"}, {0, 0, 1, 1});
  int incarnation = 0;
  for (size_t from = 0; from < size;) {
    const size_t to = std::min(text.find('\n', from), size);
    const std::vector<int> before = job.host_of_rank();
    const std::string answer =
        job.Answer(text.substr(from, to - from), incarnation, false,
                   [&](const c4::cli::ElasticJob::Restart& restart) -> absl::StatusOr<double> {
                     C4_FUZZ_CHECK(restart.incarnation > incarnation);
                     incarnation = restart.incarnation;
                     return 0.0;
                   });
    const json said = json::parse(answer, nullptr, /*allow_exceptions=*/false);
    C4_FUZZ_CHECK(said.is_object() && said.contains("outcome"));
    if (said["outcome"] == "refused") C4_FUZZ_CHECK(!said["text"].empty() && job.host_of_rank() == before);
    const json look = json::parse(job.Answer(R"({"verb": "look"})", incarnation, true, nullptr));
    if (job.host_of_rank() != before) {
      for (const json& node : look["nodes"]) {
        C4_FUZZ_CHECK(!(node["in_use"].get<bool>() && node["state"] == "isolated"));
      }
    }
    from = to + 1;
  }
  return 0;
}
