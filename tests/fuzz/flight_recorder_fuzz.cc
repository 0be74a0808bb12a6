// A dump of PyTorch's Flight Recorder: refused with a sentence, or one that the wait-for graph can be made
// of.
#include <cstdint>
#include <string>

#include "tests/fuzz/check.h"
#include "traces/flight_recorder.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  const auto dump = c4::traces::ParseFlightDump(text, "rank_0.json");
  if (!dump.ok()) {
    C4_FUZZ_CHECK(!dump.status().message().empty());
    return 0;
  }
  c4::analysis::RankDump other = *dump;
  other.rank = 1;
  c4::analysis::FindStalledRanks({*dump, other});
  return 0;
}
