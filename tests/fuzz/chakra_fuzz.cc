// A Chakra execution trace, packed or not, by a mapping: whatever it holds, it is refused with a sentence, or
// a trace can be made of it.
#include <cstdint>
#include <string>

#include "tests/fuzz/check.h"
#include "traces/byte_source.h"
#include "traces/kineto_mapping.h"
#include "traces/kineto_reader.h"

namespace {

constexpr char kMapping[] = R"({"layout": {"order": "dp", "sizes": {"dp": 1}}, "rules": [
  {"type": "forward-compute", "regex": "^forward ([0-9]+)$", "category": "COMP_NODE", "micro_batch": {"group": 1}},
  {"type": "backward-compute", "name": "backward*", "category": "COMP_NODE", "runs": true},
  {"type": "grads-reduce-scatter", "name": "*", "category": "COMM_COLL_NODE", "last": true,
   "args": {"comm_type": "ALL_REDUCE"}}]})";

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  auto source = c4::traces::Unpacked(c4::traces::MemoryBytes(text));
  if (!source.ok()) return 0;
  static const auto mapping = c4::traces::ParseKinetoMapping(kMapping);
  C4_FUZZ_CHECK(mapping.ok());
  c4::traces::TableOptions options;
  options.max_operations = 10000;
  auto reader = c4::traces::KinetoReader::Make(*mapping, {}, options);
  C4_FUZZ_CHECK(reader.ok());
  const absl::Status read = (*reader)->Read("job.0.et", source->get());
  if (!read.ok()) {
    C4_FUZZ_CHECK(!read.message().empty());
    return 0;
  }
  const auto table = (*reader)->Finish();
  if (!table.ok()) return 0;
  const auto trace = c4::whatif::BuildTrace(table->records, {});
  C4_FUZZ_CHECK(trace.ok() || !trace.status().message().empty());
  return 0;
}
