// The operator's topology file: whatever it holds, it is refused with a line or is a network that is written
// and read back the same.
#include <cstdint>
#include <string>

#include "c4p_master/topology_file.h"
#include "tests/fuzz/check.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  const absl::StatusOr<c4::c4p::Topology> read = c4::c4p::ParseTopology(text);
  if (!read.ok()) {
    C4_FUZZ_CHECK(std::string(read.status().message()).starts_with("line "));
    return 0;
  }
  const std::string written = TopologyJson(*read);
  const absl::StatusOr<c4::c4p::Topology> again = c4::c4p::ParseTopology(written);
  C4_FUZZ_CHECK(again.ok());
  C4_FUZZ_CHECK(TopologyJson(*again) == written);
  for (const c4::c4p::LinkId link : read->AllLinks()) C4_FUZZ_CHECK(!read->LinkName(link).empty());
  return 0;
}
