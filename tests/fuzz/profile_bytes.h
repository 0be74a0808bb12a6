// Bytes read as a profile by a mapping: whatever they hold, they are refused with a sentence, or a trace can
// be made of them, or that is refused with one.
#pragma once

#include <string>

#include "tests/fuzz/check.h"
#include "traces/byte_source.h"
#include "traces/kineto_reader.h"

namespace c4::fuzz {

// False: they are no profile.
inline bool ReadProfileBytes(const std::string& text, const std::string& name,
                             const traces::KinetoMapping& mapping) {
  auto source = traces::Unpacked(traces::MemoryBytes(text));
  if (!source.ok()) return false;
  traces::TableOptions options;
  options.max_operations = 10000;
  auto reader = traces::KinetoReader::Make(mapping, {}, options);
  C4_FUZZ_CHECK(reader.ok());
  const absl::Status read = (*reader)->Read(name, source->get());
  if (!read.ok()) {
    C4_FUZZ_CHECK(!read.message().empty());
    return false;
  }
  const auto table = (*reader)->Finish();
  if (!table.ok()) return true;
  const auto trace = whatif::BuildTrace(table->records, {});
  C4_FUZZ_CHECK(trace.ok() || !trace.status().message().empty());
  return true;
}

}  // namespace c4::fuzz
