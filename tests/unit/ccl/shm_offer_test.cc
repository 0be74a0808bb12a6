// What a receiver takes for an offer of shared memory, and what it turns away.
#include <cstring>
#include <fcntl.h>
#include <functional>
#include <sys/mman.h>

#include "ccl/transport/tcp/connect.h"
#include "tests/unit/ccl/shm_ends.h"

namespace c4::shm {
namespace {

TEST(ShmOffer, EveryFieldOfARegionIsChecked) {
  struct Case {
    const char* what;
    std::function<void(Region*)> lie;
  };
  const Case cases[] = {
      {"magic", [](Region* r) { r->header.magic = 1; }},
      {"major version", [](Region* r) { r->header.major = 1; }},
      {"header length", [](Region* r) { r->header.header_bytes = 320; }},
      {"total length", [](Region* r) { ++r->header.total_bytes; }},
      {"cookie", [](Region* r) { r->cookie[15] = 0; }},
      {"no slots", [](Region* r) { r->slots = 0; }},
      {"three slots", [](Region* r) { r->slots = 3; }},
      {"too many slots", [](Region* r) { r->slots = 16; }},
      {"far too many slots", [](Region* r) { r->slots = 1u << 31; }},
      {"slots without room", [](Region* r) { r->header.record_bytes = sizeof(Slot); }},
      {"slots that are not aligned", [](Region* r) { r->header.record_bytes += 4; }},
      {"huge slots", [](Region* r) { r->header.record_bytes = UINT32_MAX & ~7u; }},
      {"no pool", [](Region* r) { r->pieces = 0; }},
      {"three pieces", [](Region* r) { r->pieces = 3; }},
      {"more pieces than slots", [](Region* r) { r->pieces = 16; }},
      {"empty pieces", [](Region* r) { r->piece_bytes = 0; }},
      {"pieces that do not fit", [](Region* r) { ++r->piece_bytes; }},
      {"huge pieces", [](Region* r) { r->piece_bytes = UINT32_MAX; }},
      {"pool in the ring", [](Region* r) { r->pool_offset = 4096; }},
      {"pool behind the end", [](Region* r) { r->pool_offset = UINT64_MAX - 4095; }},
  };
  const Geometry geometry = SmallShape().geometry;
  Geometry found;
  Region region = GoodRegion(geometry);
  ASSERT_EQ(CheckRegion(region, geometry.total_bytes, kCookie, &found), nullptr);
  for (const Case& bad : cases) {
    region = GoodRegion(geometry);
    bad.lie(&region);
    EXPECT_NE(CheckRegion(region, geometry.total_bytes, kCookie, &found), nullptr) << bad.what;
  }
}

TEST(ShmOffer, WhatIsNoMemoryOfOursIsRefused) {
  const auto pid = static_cast<uint32_t>(getpid());
  Mapping mapping;
  Fd plain(memfd_create("test", MFD_CLOEXEC));
  ASSERT_EQ(ftruncate(plain.get(), 4096), 0);
  EXPECT_FALSE(OpenMemory(pid, static_cast<uint32_t>(plain.get()), 1, &mapping).ok())
      << "not sealed: it could be cut short under our feet";
  Fd null(open("/dev/null", O_RDWR | O_CLOEXEC));
  EXPECT_FALSE(OpenMemory(pid, static_cast<uint32_t>(null.get()), 0, &mapping).ok());
  EXPECT_FALSE(OpenMemory(pid, 1000000, 0, &mapping).ok());
  EXPECT_FALSE(OpenMemory(0, 0, 0, &mapping).ok());
  Fd file;
  Mapping made;
  ASSERT_TRUE(MakeMemory("test", 4096, &file, &made).ok());
  EXPECT_FALSE(OpenMemory(pid, static_cast<uint32_t>(file.get()), 4097, &mapping).ok()) << "too short";
  EXPECT_TRUE(OpenMemory(pid, static_cast<uint32_t>(file.get()), 4096, &mapping).ok());
  EXPECT_NE(ftruncate(file.get(), 0), 0);
}

TEST(ShmOffer, ARankThatTakesNoneTurnsItAway) {
  ShmEnds ends;
  SocketAddress address;
  ASSERT_TRUE(ParseAddress("127.0.0.1:0", &address).ok());
  Fd listener;
  ASSERT_TRUE(Listen(&address, 4, &listener).ok());
  Acceptor without(std::move(listener), tcp::kCommunicator, 1, 2);
  ASSERT_TRUE(ConnectSender(ends.recording(0), address, ends.peers[1], Shape(), &ends.sender).ok());
  const Result result = ShmEnds::Drive(
      [&](bool* moved) {
        C4_RETURN_IF_ERROR(without.Progress(moved));
        return ends.sender->Progress(moved);
      },
      [] { return false; });
  EXPECT_EQ(result.code(), ncclRemoteError);
}

TEST(ShmOffer, WithoutABellOrADescriptorItIsAnErrorThatSaysWhatToDo) {
  ShmEnds ends;
  ASSERT_TRUE(ConnectSender(ends.recording(0), ends.address, ends.peers[1], Shape(), &ends.sender).ok());
  Accepted accepted = ends.AcceptedFrom([&](bool* moved) { return ends.sender->Progress(moved); });
  Accepted twice;
  twice.hello = accepted.hello;
  memcpy(twice.tail, accepted.tail, sizeof twice.tail);
  std::unique_ptr<ReceiveQueuePair> queue_pair;
  Result result = Accept(std::move(twice), nullptr, kCopyUnknown, ends.recording(1), &queue_pair);
  EXPECT_NE(result.message().find("C4_SHM=0"), std::string::npos) << result.message();
  Offer offer;
  memcpy(&offer, accepted.tail, sizeof offer);
  offer.cookie[0] = static_cast<uint8_t>(offer.cookie[0] + 1);
  memcpy(accepted.tail, &offer, sizeof offer);
  result = ends.Attach(std::move(accepted), kCopyUnknown);
  EXPECT_EQ(result.code(), ncclRemoteError);
  EXPECT_NE(result.message().find("not the one that was announced"), std::string::npos) << result.message();
}

}  // namespace
}  // namespace c4::shm
