// A Chakra execution trace, packed or not, by a mapping: whatever it holds, it is refused with a sentence, or
// a trace can be made of it.
#include <cstdint>
#include <string>

#include "tests/fuzz/check.h"
#include "tests/fuzz/profile_bytes.h"
#include "traces/kineto_mapping.h"

namespace {

constexpr char kMapping[] = R"({"layout": {"order": "dp", "sizes": {"dp": 1}}, "rules": [
  {"type": "forward-compute", "regex": "^forward ([0-9]+)$", "category": "COMP_NODE", "micro_batch": {"group": 1}},
  {"type": "backward-compute", "name": "backward*", "category": "COMP_NODE", "runs": true},
  {"type": "grads-reduce-scatter", "name": "*", "category": "COMM_COLL_NODE", "last": true,
   "args": {"comm_type": "ALL_REDUCE"}}]})";

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  static const auto mapping = c4::traces::ParseKinetoMapping(kMapping);
  C4_FUZZ_CHECK(mapping.ok());
  if (!c4::fuzz::ReadProfileBytes(text, "job.0.et", *mapping)) return 0;
  return 0;
}
