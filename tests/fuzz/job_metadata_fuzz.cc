// The metadata of a job: refused with a line, or sizes from 1.
#include <cstdint>
#include <string>

#include "tests/fuzz/check.h"
#include "traces/job_metadata.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto shape = c4::traces::ParseJobMetadata(std::string(reinterpret_cast<const char*>(data), size));
  if (!shape.ok()) {
    C4_FUZZ_CHECK(std::string(shape.status().message()).starts_with("line "));
    return 0;
  }
  C4_FUZZ_CHECK(shape->dp_size >= 0 && shape->pp_size >= 0 && shape->world_size >= 0);
  return 0;
}
