// A mapping of Kineto profiles: refused with a sentence, or its patterns can be used.
#include <cstdint>
#include <string>

#include "tests/fuzz/check.h"
#include "traces/kineto_mapping.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  const auto mapping = c4::traces::ParseKinetoMapping(text);
  if (!mapping.ok()) {
    C4_FUZZ_CHECK(!mapping.status().message().empty());
    return 0;
  }
  for (const auto& rule : mapping->rules) {
    std::vector<std::optional<std::string>> groups;
    rule.name.Matches(text, &groups);
  }
  return 0;
}
