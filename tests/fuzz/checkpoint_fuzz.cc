// Shards of the trainer's checkpoints: any bytes are refused or are exactly what would be written of what was
// read; a shard with one byte changed, cut off or more is refused.
#include <cstdint>
#include <cstring>
#include <string>

#include "examples/checkpoint.h"
#include "tests/fuzz/check.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using c4::examples::CheckpointContent;
  using c4::examples::DecodeShard;
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  int iteration = 0;
  if (size >= 12) memcpy(&iteration, data + 8, sizeof iteration);
  CheckpointContent read;
  if (DecodeShard(bytes, iteration, &read)) C4_FUZZ_CHECK(EncodeShard(read) == bytes);
  if (size < 6) return 0;
  CheckpointContent content = {static_cast<int>(data[0]), 1.5, {}};
  content.weights.resize((size - 5) / sizeof(float));
  if (!content.weights.empty()) {
    memcpy(content.weights.data(), data + 5, content.weights.size() * sizeof(float));
  }
  std::string written = EncodeShard(content);
  C4_FUZZ_CHECK(DecodeShard(written, content.iteration, &read));
  const size_t at = (data[1] | static_cast<size_t>(data[2]) << 8) % written.size();
  if (data[3] % 2 == 0 && data[4] != 0) {
    written[at] = static_cast<char>(written[at] ^ data[4]);
  } else {
    written.resize(at);
  }
  C4_FUZZ_CHECK(!DecodeShard(written, content.iteration, &read));
  return 0;
}
