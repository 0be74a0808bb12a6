// A tabular trace, packed or not: whatever it holds, it is refused with a sentence or its figures are
// numbers.
#include <cmath>
#include <cstdint>
#include <string>

#include "analysis/whatif/causes.h"
#include "tests/fuzz/check.h"
#include "traces/byte_source.h"
#include "traces/table_reader.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  auto source = c4::traces::Unpacked(c4::traces::MemoryBytes(text));
  if (!source.ok()) return 0;
  c4::traces::TableOptions options;
  options.max_operations = 10000;
  const auto table = c4::traces::ReadTable(source->get(), options);
  if (!table.ok()) {
    C4_FUZZ_CHECK(!table.status().message().empty());
    return 0;
  }
  auto trace = c4::whatif::BuildTrace(table->records, {});
  if (!trace.ok()) return 0;
  const auto job = c4::whatif::MakeJob(*std::move(trace));
  if (!job.ok()) return 0;
  const auto analysis = c4::whatif::Analyse(*job, 1);
  if (!analysis.ok()) return 0;
  C4_FUZZ_CHECK(!std::isnan(analysis->slowdown));
  FindCauses(*job, *analysis, 1);
  return 0;
}
