// Bytes in the place of a message: what the walk over them lets through, the parser takes in no more memory
// than the walk has said; and what the parser takes, the walk lets through.
#include <cstdint>
#include <grpcpp/support/slice.h>

#include "c4/v1/c4p.pb.h"
#include "c4/v1/telemetry.pb.h"
#include "service/bounded_parse.h"
#include "tests/fuzz/check.h"

namespace {

template <typename Message>
void Compare(const uint8_t* data, size_t size) {
  constexpr size_t kMost = size_t{1} << 30;
  Message parsed;
  const absl::StatusOr<size_t> bytes = c4::service::ParsedBytes(grpc::Slice(data, size), parsed, kMost);
  // The parser also refuses texts that are no UTF-8, some of them in part: the walk need not.
  if (parsed.ParseFromArray(data, static_cast<int>(size))) {
    C4_FUZZ_CHECK(bytes.ok());
    C4_FUZZ_CHECK(*bytes >= parsed.SpaceUsedLong());
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Compare<c4::v1::TelemetryBatch>(data, size);
  Compare<c4::v1::AgentToC4p>(data, size);
  return 0;
}
