// A policy's file: whatever it holds, it is refused with its line or is a policy that is written and read
// back the same.
#include <cstdint>
#include <string>

#include "c4d_master/policy.h"
#include "tests/fuzz/check.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace c4::c4d;
  const std::string text(reinterpret_cast<const char*>(data), size);
  const absl::StatusOr<Policy> read = ParsePolicy(text, "FILE");
  if (!read.ok()) {
    C4_FUZZ_CHECK(std::string(read.status().message()).starts_with("FILE, line "));
    return 0;
  }
  C4_FUZZ_CHECK(CheckPolicy(*read).ok());
  std::string written;
  for (const PolicyEntry& entry : PolicyTable()) {
    const double value = PolicyValue(entry, *read);
    C4_FUZZ_CHECK(value >= entry.low && value <= entry.high);
    written += std::string(entry.name) + " = " + PolicyValueText(entry, *read) + "\n";
  }
  const absl::StatusOr<Policy> again = ParsePolicy(written, "FILE");
  C4_FUZZ_CHECK(again.ok());
  C4_FUZZ_CHECK(PolicyVersion(*again) == PolicyVersion(*read));
  return 0;
}
