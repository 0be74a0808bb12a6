// What a rank may get from strangers while a communicator comes up: a unique id that was not made here, and
// joins at the root's port, and what comes to a meeting. An input is an id followed by one of these.
#include <algorithm>
#include <cstdint>
#include <vector>

#include "ccl/bootstrap/bootstrap.h"
#include "tests/fuzz/check.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using c4::bootstrap::Join;

  ncclUniqueId id{};
  const size_t id_bytes = std::min(size, sizeof id);
  memcpy(&id, data, id_bytes);
  c4::bootstrap::UniqueId read;
  const c4::Result result = c4::bootstrap::ReadUniqueId(id, &read);
  C4_FUZZ_CHECK(result.ok() == result.message().empty());
  if (result.ok()) {
    C4_FUZZ_CHECK(read.magic == c4::bootstrap::kIdMagic && read.major == c4::bootstrap::kIdMajor);
    (void)c4::FromEndpoint(read.root).ToString();
  }

  // Of just this size, so that the address sanitizer sees a read past its end.
  const std::vector<uint8_t> packet(data + id_bytes, data + size);
  uint8_t nonce[16] = {};
  if (packet.size() >= 80) memcpy(nonce, packet.data() + 64, sizeof nonce);  // a stranger who knows the id
  uint64_t communicator_id = 0;
  if (packet.size() >= 88) memcpy(&communicator_id, packet.data() + 80, sizeof communicator_id);
  if (c4::bootstrap::CheckMeet(packet.data(), packet.size(), nonce, communicator_id) == nullptr) {
    c4::bootstrap::Meet meet;
    C4_FUZZ_CHECK(packet.size() >= sizeof meet);
    memcpy(&meet, packet.data(), sizeof meet);
    C4_FUZZ_CHECK(meet.record_bytes > 0 && meet.record_bytes <= c4::bootstrap::kMostRecordBytes);
  }
  const char* fault = c4::bootstrap::CheckJoin(packet.data(), packet.size(), nonce);
  if (fault != nullptr) return 0;
  Join join;
  C4_FUZZ_CHECK(packet.size() >= sizeof join);
  memcpy(&join, packet.data(), sizeof join);
  C4_FUZZ_CHECK(join.rank < join.rank_count && join.rank_count <= c4::bootstrap::kMostRanks);
  (void)c4::FromEndpoint(join.info.listener).ToString();
  return 0;
}
