// What the host engine's RAS may get from strangers: the lines of a client, and datagrams of those who have
// the communicator's key (and of those who have not). The first byte says which; a datagram is signed for the
// fuzzer.
#include <algorithm>
#include <cstdint>
#include <string_view>
#include <vector>

#include "ccl/ras/gathering.h"
#include "ccl/ras/session.h"
#include "tests/fuzz/check.h"

namespace {

using c4::ras::Member;
using c4::ras::State;
using c4::ras::Tell;

constexpr uint64_t kCommunicator = 77;

void TakeLines(const uint8_t* data, size_t size) {
  c4::ras::Session session;
  std::string reply;
  const std::string_view all(reinterpret_cast<const char*>(data), size);
  for (size_t at = 0; at < size && !session.failed(); at += 7) {
    if (session.Take(all.substr(at, 7), &reply)) break;
  }
  C4_FUZZ_CHECK(session.timeout_s() >= 0 && session.timeout_s() <= 1000000);
  C4_FUZZ_CHECK(reply.empty() || reply.back() == '\n');
  C4_FUZZ_CHECK(reply.size() <= 128 * (size + 1));
}

void TakeDatagram(const uint8_t* data, size_t size, bool sign) {
  auto member = std::make_shared<Member>();
  member->communicator_id = kCommunicator;
  member->peers.resize(3);
  for (uint32_t rank = 0; rank < 3; ++rank) {
    member->peers[rank].process.pid = 100 + rank;
    (void)c4::ParseAddress("127.0.0.1:9", &member->peers[rank].place);
  }
  member->state = [] { return State{}; };
  std::vector<uint8_t> packet(data, data + std::min(size, c4::ras::kMostBytes));
  if (packet.size() >= sizeof(Tell) && sign) {
    // As somebody who has the key would write it, but for what the fuzzer wants.
    Tell tell;
    memcpy(&tell, packet.data(), sizeof tell);
    const uint32_t records = static_cast<uint32_t>((packet.size() - sizeof tell) / sizeof(State));
    packet.resize(sizeof tell + records * sizeof(State));
    FillHeader(c4::ras::kTellMagic, records, {}, &tell);
    tell.communicator_id = kCommunicator;
    tell.to_rank = 0;
    tell.records = records;
    memcpy(packet.data(), &tell, sizeof tell);
    c4::ras::Sign<Tell>(packet.data(), packet.size(), member->key);
  }
  c4::ras::Gathering gathering({member}, member->peers[0].process, 5, 5, 0);
  (void)c4::ras::IsAsk(packet.data(), packet.size(), kCommunicator, 0, member->key);
  if (!c4::ras::IsTell(packet.data(), packet.size(), kCommunicator, 0, member->key)) return;
  gathering.Take(*member, packet.data(), packet.size());
  const c4::ras::Report report = gathering.Finish(1);
  size_t seats = 0;
  for (const auto& communicator : report.communicators) seats += communicator.ranks.size();
  C4_FUZZ_CHECK(seats <= 1 + c4::ras::kMostRecords);
  C4_FUZZ_CHECK(!ToJson(report, 0).empty() && !ToText(report, true).empty());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  if (data[0] % 3 == 0) {
    TakeLines(data + 1, size - 1);
  } else {
    TakeDatagram(data + 1, size - 1, data[0] % 3 == 1);
  }
  return 0;
}
