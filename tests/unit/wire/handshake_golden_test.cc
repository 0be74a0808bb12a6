// What the ranks of each released version said to each other while a communicator came up and carried data,
// from files.
#include "tests/unit/wire/golden.h"

namespace c4::wire {
namespace {

using bootstrap::Join;
using bootstrap::Meet;
using bootstrap::Met;
using bootstrap::RankInfo;
using bootstrap::Table;
using bootstrap::UniqueId;

constexpr char kBootstrapName[] = "bootstrap-1.0.bin";
constexpr char kBootstrapName11[] = "bootstrap-1.1.bin";
constexpr char kBootstrapName13[] = "bootstrap-1.3.bin";
constexpr char kBootstrapName14[] = "bootstrap-1.4.bin";
constexpr char kTcpName[] = "tcp-4.0.bin";
constexpr char kTcp41Name[] = "tcp-4.1.bin";
constexpr char kShmName[] = "shm-2.0.bin";
constexpr ProcessIdentity kProcess{.boot_id = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16},
                                   .start_time_ticks = 8675309,
                                   .pid = 4242,
                                   .reserved = 0};
constexpr Endpoint kEndpoint{
    .address = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 127, 0, 0, 1}, .port = 29500, .reserved = {}};
constexpr uint8_t kNonce[16] = {0xa0, 0xa1, 0xa2, 0xa3, 0xa4, 0xa5, 0xa6, 0xa7,
                                0xa8, 0xa9, 0xaa, 0xab, 0xac, 0xad, 0xae, 0xaf};

Header HeaderOf(uint64_t magic, size_t header_bytes, size_t record_bytes, size_t total_bytes) {
  return {.magic = magic,
          .major = 1,
          .minor = 0,
          .endian = kEndianMark,
          .header_bytes = static_cast<uint32_t>(header_bytes),
          .record_bytes = static_cast<uint32_t>(record_bytes),
          .total_bytes = total_bytes,
          .writer = kProcess};
}

UniqueId ExpectedId() {
  UniqueId id{};
  id.magic = bootstrap::kIdMagic;
  id.major = 1;
  id.minor = 0;
  id.flags = bootstrap::kIdFromEnvironment;
  id.root = kEndpoint;
  memcpy(id.nonce, kNonce, sizeof kNonce);
  id.check = 0x1122334455667788;
  return id;
}

RankInfo ExpectedInfo(uint64_t rank) {
  RankInfo info{};
  info.listener = kEndpoint;
  info.listener.port = static_cast<uint16_t>(40000 + rank);
  info.process = kProcess;
  info.host_hash = 77;
  return info;
}

Join ExpectedJoin() {
  Join join{};
  join.header = HeaderOf(bootstrap::kJoinMagic, 192, 0, 192);
  memcpy(join.nonce, kNonce, sizeof kNonce);
  join.rank = 1;
  join.rank_count = 2;
  join.info = ExpectedInfo(1);
  return join;
}

Table ExpectedTable(uint32_t code, uint32_t ranks, const char* text) {
  Table table{};
  table.header = HeaderOf(bootstrap::kTableMagic, 256, 64, 256 + 64 * ranks);
  table.code = code;
  table.rank_count = ranks;
  memcpy(table.text, text, strlen(text));
  return table;
}

std::string WrittenBootstrap() {
  std::string bytes;
  Append(&bytes, ExpectedId());
  Append(&bytes, ExpectedJoin());
  Append(&bytes, ExpectedTable(0, 2, ""));
  Append(&bytes, ExpectedInfo(0));
  Append(&bytes, ExpectedInfo(1));
  Append(&bytes, ExpectedTable(6, 0, "rank 1 left before all ranks had joined"));
  return bytes;
}

TEST(BootstrapGolden, FramesOf10) {
  const std::string bytes = Golden(kBootstrapName, WrittenBootstrap());
  ASSERT_EQ(bytes.size(), 128u + 192u + (256u + 2u * 64u) + 256u);
  ExpectFields(bytes, 0, ExpectedId(), UniqueIdLayout());
  EXPECT_EQ(bootstrap::CheckJoin(bytes.data() + 128, 192, kNonce), nullptr);
  ExpectFields(bytes, 128, ExpectedJoin(), JoinLayout());
  ExpectFields(bytes, 320, ExpectedTable(0, 2, ""), TableLayout());
  ExpectFields(bytes, 576, ExpectedInfo(0), RankInfoLayout());
  ExpectFields(bytes, 640, ExpectedInfo(1), RankInfoLayout());
  ExpectFields(bytes, 704, ExpectedTable(6, 0, "rank 1 left before all ranks had joined"), TableLayout());
  EXPECT_EQ(bootstrap::kIdFromEnvironment, 1u);
}

// Since 1.1: where a rank takes meetings and where its bell is, and what is said at meetings.
Join ExpectedJoin11() {
  Join join = ExpectedJoin();
  join.header.minor = 1;
  join.info.listener.reserved[0] = 40101;
  join.info.process.reserved = 21;
  return join;
}

Meet ExpectedMeet() {
  Meet meet{};
  meet.header = HeaderOf(bootstrap::kMeetMagic, 128, 8, 136);
  meet.header.minor = 1;
  memcpy(meet.nonce, kNonce, sizeof kNonce);
  meet.communicator_id = 0xc4c4'0000'0000'0001;
  meet.meeting = 0x0102030405060708;
  meet.rank = 1;
  meet.record_bytes = 8;
  return meet;
}

Met ExpectedMet(uint32_t code, uint32_t ranks, const char* text) {
  Met met{};
  met.header = HeaderOf(bootstrap::kMetMagic, 256, 8, 256 + 8 * ranks);
  met.header.minor = 1;
  met.code = code;
  met.rank_count = ranks;
  met.record_bytes = 8;
  memcpy(met.text, text, strlen(text));
  return met;
}

std::string WrittenBootstrap11() {
  std::string bytes;
  Append(&bytes, ExpectedJoin11());
  Append(&bytes, ExpectedMeet());
  bytes += "record 1";
  Append(&bytes, ExpectedMet(0, 2, ""));
  bytes += "record 0record 1";
  Append(&bytes, ExpectedMet(6, 0, "rank 0 left: the communicator was aborted"));
  return bytes;
}

TEST(BootstrapGolden, FramesOf11) {
  const std::string bytes = Golden(kBootstrapName11, WrittenBootstrap11());
  ASSERT_EQ(bytes.size(), 192u + 128u + 8u + 256u + 16u + 256u);
  EXPECT_EQ(bootstrap::CheckJoin(bytes.data(), 192, kNonce), nullptr);
  ExpectFields(bytes, 0, ExpectedJoin11(), JoinLayout());
  EXPECT_EQ(bootstrap::CheckMeet(bytes.data() + 192, 128, kNonce, 0xc4c4'0000'0000'0001), nullptr);
  ExpectFields(bytes, 192, ExpectedMeet(), MeetLayout());
  EXPECT_EQ(bytes.substr(320, 8), "record 1");
  ExpectFields(bytes, 328, ExpectedMet(0, 2, ""), MetLayout());
  EXPECT_EQ(bytes.substr(584, 16), "record 0record 1");
  ExpectFields(bytes, 600, ExpectedMet(6, 0, "rank 0 left: the communicator was aborted"), MetLayout());
}

// Since 1.3: the knobs that all ranks share, and what proves that a rank has the id.
Join ExpectedJoin13() {
  Join join = ExpectedJoin11();
  join.header.minor = 3;
  join.knobs = {262144, 2, 5};
  memcpy(join.mac, kNonce, sizeof kNonce);
  return join;
}

Table ExpectedTable13() {
  Table table = ExpectedTable(0, 0, "");
  table.header.minor = 3;
  memcpy(table.session, kNonce, sizeof kNonce);
  return table;
}

UniqueId ExpectedId20() {
  UniqueId id = ExpectedId();
  id.major = 2;
  id.flags = 0;
  memcpy(id.secret, kNonce, sizeof kNonce);
  memcpy(id.secret + sizeof kNonce, kNonce, sizeof kNonce);
  return id;
}

TEST(BootstrapGolden, FramesOf13) {
  std::string written;
  Append(&written, ExpectedJoin13());
  Append(&written, ExpectedTable13());
  Append(&written, ExpectedId20());
  const std::string bytes = Golden(kBootstrapName13, written);
  ASSERT_EQ(bytes.size(), 192u + 256u + 128u);
  ExpectFields(bytes, 192, ExpectedTable13(), TableLayout());
  ExpectFields(bytes, 448, ExpectedId20(), UniqueIdLayout());
  EXPECT_EQ(bootstrap::CheckJoin(bytes.data(), 192, kNonce), nullptr);
  ExpectFields(bytes, 0, ExpectedJoin13(), JoinLayout());
  ExpectFields(bytes, 152, ExpectedJoin13().knobs, SharedKnobsLayout());
}

// Since 1.4: what a rank's listener takes, beside its bell.
TEST(BootstrapGolden, FramesOf14) {
  Join join = ExpectedJoin13();
  join.header.minor = 4;
  join.info.process.reserved = bootstrap::ReservedOf(21, 1u << kTransportVerbs);
  std::string written;
  Append(&written, join);
  const std::string bytes = Golden(kBootstrapName14, written);
  ASSERT_EQ(bytes.size(), 192u);
  EXPECT_EQ(bootstrap::CheckJoin(bytes.data(), 192, kNonce), nullptr);
  ExpectFields(bytes, 0, join, JoinLayout());
  Join read;
  memcpy(&read, bytes.data(), sizeof read);
  EXPECT_EQ(read.info.process.reserved, 0x04000015u);
  EXPECT_EQ(bootstrap::BellIn(read.info.process.reserved), 21u);
  EXPECT_EQ(bootstrap::TakesIn(read.info.process.reserved), 4u);
  EXPECT_EQ(bootstrap::TakesIn(ExpectedJoin13().info.process.reserved), 0u) << "of an older writer";
}

TEST(BootstrapGolden, MeetingsOfOthersAreRefused) {
  constexpr uint64_t kId = 0xc4c4'0000'0000'0001;
  const Meet good = ExpectedMeet();
  EXPECT_EQ(bootstrap::CheckMeet(&good, sizeof good, kNonce, kId), nullptr);
  EXPECT_NE(bootstrap::CheckMeet(&good, sizeof good - 1, kNonce, kId), nullptr);
  EXPECT_NE(bootstrap::CheckMeet(&good, sizeof good, kNonce, kId + 1), nullptr);
  for (const uint32_t bytes : {0u, 9u, bootstrap::kMostRecordBytes + 1, UINT32_MAX}) {
    Meet meet = good;
    meet.record_bytes = bytes;
    EXPECT_NE(bootstrap::CheckMeet(&meet, sizeof meet, kNonce, kId), nullptr) << bytes;
  }
  Meet meet = good;
  meet.header.major = 2;
  EXPECT_STREQ(bootstrap::CheckMeet(&meet, sizeof meet, kNonce, kId), HeaderFaultText(HeaderFault::kMajor));
  meet.header.major = 1;
  meet.header.minor = 9;
  EXPECT_EQ(bootstrap::CheckMeet(&meet, sizeof meet, kNonce, kId), nullptr);
}

TEST(BootstrapGolden, AnotherMajorIsRefused) {
  Join join = ExpectedJoin();
  join.header.major = 2;
  EXPECT_STREQ(bootstrap::CheckJoin(&join, sizeof join, kNonce), HeaderFaultText(HeaderFault::kMajor));
  join.header.major = 1;
  join.header.minor = 9;
  EXPECT_EQ(bootstrap::CheckJoin(&join, sizeof join, kNonce), nullptr);
}

Hello ExpectedHello() {
  Hello hello{};
  hello.header = HeaderOf(kHelloMagic, 120, 0, 120);
  hello.header.major = 4;
  hello.communicator_id = 0xc4c4'0000'0000'0001;
  hello.from_rank = 1;
  hello.to_rank = 2;
  hello.channel = 3;
  hello.queue_pair_index = 4;
  hello.queue_pair_count = 6;
  hello.queue_pair_number = 905;
  hello.chunk_bytes = 4096;
  memcpy(hello.mac, kNonce, sizeof kNonce);
  return hello;
}

// The third chunk of a message of 8200 bytes: its last 8.
constexpr Frame FrameOf(uint16_t kind, uint32_t bytes, uint64_t sequence, uint64_t message) {
  return {.mark = 0x51503443,
          .kind = kind,
          .reserved = 0,
          .chunk = kind == 1 ? 2u : 0u,
          .bytes = bytes,
          .sequence = sequence,
          .message = message,
          .message_bytes = kind == 1 ? 8200u : 0u};
}

Hello ExpectedHelloOf(uint16_t transport) {
  Hello hello = ExpectedHello();
  hello.transport = transport;
  hello.epoch = transport > 0xff ? 3 : 0;
  if (transport == kTransportShm) hello.header.total_bytes = 152;
  return hello;
}

shm::Offer ExpectedOffer() {
  shm::Offer offer{};
  memcpy(offer.cookie, kNonce, sizeof kNonce);
  offer.bytes = 1581056;
  offer.descriptor = 17;
  return offer;
}

// What is said of queue pair 4 and its epoch 3 over a fence stream.
constexpr Frame ControlFrame(uint16_t kind, uint64_t sequence, uint64_t message) {
  return {.mark = 0x51503443,
          .kind = kind,
          .reserved = 0,
          .chunk = 4,
          .bytes = 3,
          .sequence = sequence,
          .message = message,
          .message_bytes = 0};
}

// A sender's side of each kind of stream, and the receiver's.
std::string WrittenTcp() {
  std::string written;
  Append(&written, ExpectedHelloOf(kTransportTcp));
  Append(&written, FrameOf(1, 8, 0, 5));
  written += "payload.";
  Append(&written, FrameOf(3, 0, 0, 0));
  Append(&written, FrameOf(2, 0, 1, 7));
  Append(&written, ExpectedHelloOf(kTransportShm));
  Append(&written, ExpectedOffer());
  Append(&written, FrameOf(3, 0, 0, 0));
  Append(&written, ExpectedHelloOf(kFailOverTcp));
  Append(&written, ExpectedHelloOf(kFenceStream));
  Append(&written, ControlFrame(4, 0, 0));
  Append(&written, FrameOf(7, 0, 0, 0));
  Append(&written, ControlFrame(5, 12, 7));
  Append(&written, ControlFrame(6, 13, 8));
  return written;
}

TEST(TcpGolden, StreamsOf40) {
  constexpr uint64_t kId = 0xc4c4'0000'0000'0001;
  const std::string bytes = Golden(kTcpName, WrittenTcp());
  ASSERT_EQ(bytes.size(), 120u + 40u + 8u + 40u + 40u + 120u + 32u + 40u + 120u + 120u + 4u * 40u);
  EXPECT_EQ(CheckHello(bytes.data(), 120, kId, 2, 3), nullptr);
  ExpectFields(bytes, 0, ExpectedHelloOf(kTransportTcp), TcpHelloLayout());
  ExpectFields(bytes, 120, FrameOf(kFrameChunk, 8, 0, 5), TcpFrameLayout());
  EXPECT_EQ(bytes.substr(160, 8), "payload.");
  ExpectFields(bytes, 168, FrameOf(kFrameGoodbye, 0, 0, 0), TcpFrameLayout());
  ExpectFields(bytes, 208, FrameOf(kFrameReport, 0, 1, 7), TcpFrameLayout());
  EXPECT_EQ(CheckChunk(At<Frame>(bytes, 120), 0), nullptr);
  EXPECT_EQ(CheckChunk(At<Frame>(bytes, 168), 1), nullptr);
  EXPECT_EQ(CheckReport(At<Frame>(bytes, 208), 0, 0, 1), nullptr);
  EXPECT_NE(CheckReport(At<Frame>(bytes, 208), 0, 0, 0), nullptr);
  EXPECT_EQ(CheckHello(bytes.data() + 248, 120, kId, 2, 3), nullptr);
  ExpectFields(bytes, 248, ExpectedHelloOf(kTransportShm), TcpHelloLayout());
  EXPECT_EQ(HelloBytes(At<Hello>(bytes, 248)), 152u);
  ExpectFields(bytes, 368, ExpectedOffer(), ShmOfferLayout());
  ExpectFields(bytes, 400, FrameOf(kFrameGoodbye, 0, 0, 0), TcpFrameLayout());
  for (const size_t at : {440u, 560u}) EXPECT_EQ(CheckHello(bytes.data() + at, 120, kId, 2, 3), nullptr);
  EXPECT_TRUE(FailsOver(At<Hello>(bytes, 440)) && TransportOf(At<Hello>(bytes, 440)) == wire::kTransportTcp);
  EXPECT_TRUE(IsFenceStream(At<Hello>(bytes, 560)) && TransportOf(At<Hello>(bytes, 560)) == 0);
  EXPECT_EQ(At<Hello>(bytes, 560).epoch, 3u);
}

// Since 4.1: a hello over verbs, its tail, and the answer with the tail of the other end.
Hello ExpectedVerbsHello() {
  Hello hello = ExpectedHelloOf(kTransportVerbs);
  hello.header.minor = 1;
  hello.header.total_bytes = 152;
  return hello;
}

Hello ExpectedAnswer() {
  Hello answer = ExpectedVerbsHello();
  answer.header.magic = kHelloAnswerMagic;
  answer.header.writer.pid = 4711;
  return answer;
}

std::string WrittenTcp41() {
  std::string written;
  Append(&written, ExpectedVerbsHello());
  written += "the sender's end, of 32 bytes...";
  Append(&written, ExpectedAnswer());
  written += "the receiver's end, of 32 bytes.";
  return written;
}

TEST(TcpGolden, AHelloAndItsAnswerOf41) {
  constexpr uint64_t kId = 0xc4c4'0000'0000'0001;
  const std::string bytes = Golden(kTcp41Name, WrittenTcp41());
  ASSERT_EQ(bytes.size(), 2u * 152u);
  const auto hello = At<Hello>(bytes, 0);
  ExpectFields(bytes, 0, ExpectedVerbsHello(), TcpHelloLayout());
  EXPECT_EQ(CheckHello(bytes.data(), 120, kId, 2, 3), nullptr);
  EXPECT_EQ(HelloBytes(hello), 152u);
  EXPECT_TRUE(FailsOver(hello));
  EXPECT_EQ(TransportOf(hello), kTransportVerbs);
  ExpectFields(bytes, 152, ExpectedAnswer(), TcpHelloLayout());
  EXPECT_EQ(CheckAnswer(bytes.data() + 152, 152, hello), nullptr);
  EXPECT_NE(CheckHello(bytes.data() + 152, 120, kId, 2, 3), nullptr) << "an answer is no hello";
  EXPECT_NE(CheckAnswer(bytes.data(), 152, hello), nullptr) << "a hello is no answer";
  EXPECT_STREQ(CheckAnswer(bytes.data() + 152, 119, hello), "is too short");
  ProcessIdentity writer{};
  writer.pid = 4711;
  Hello said = AnswerTo(hello, writer);
  EXPECT_EQ(said.header.writer.pid, 4711u);
  EXPECT_EQ(CheckAnswer(&said, sizeof said, hello), nullptr);
  for (const auto change : {+[](Hello* h) { ++h->epoch; }, +[](Hello* h) { ++h->queue_pair_number; },
                            +[](Hello* h) { ++h->queue_pair_index; }, +[](Hello* h) { ++h->channel; },
                            +[](Hello* h) { ++h->from_rank; }, +[](Hello* h) { ++h->communicator_id; }}) {
    Hello other = said;
    change(&other);
    EXPECT_STREQ(CheckAnswer(&other, sizeof other, hello), "answers another hello");
  }
  said.header.major = 5;
  EXPECT_STREQ(CheckAnswer(&said, sizeof said, hello), HeaderFaultText(HeaderFault::kMajor));
}

TEST(TcpGolden, FramesOfAFenceStream) {
  const std::string bytes = Golden(kTcpName, WrittenTcp());
  const uint16_t kinds[] = {kFrameFence, kFramePing, kFrameFenced, kFrameCount};
  for (size_t i = 0; i < 4; ++i) {
    const auto frame = At<Frame>(bytes, 680 + 40 * i);
    EXPECT_EQ(frame.kind, kinds[i]);
    const bool from_sender = i < 2;
    EXPECT_EQ(CheckFenceFrame(frame, from_sender, 5), nullptr) << i;
    EXPECT_NE(CheckFenceFrame(frame, !from_sender, 5), nullptr) << "of the other side: " << i;
    EXPECT_NE(CheckChunk(frame, 0), nullptr) << i;
    EXPECT_NE(CheckReport(frame, 0, 0, 99), nullptr) << i;
    EXPECT_EQ(CheckFenceFrame(frame, from_sender, 4) == nullptr, i == 1) << "no such queue pair: " << i;
    Frame marred = frame;
    marred.mark = 1;
    EXPECT_NE(CheckFenceFrame(marred, from_sender, 5), nullptr) << i;
  }
  for (const bool from_sender : {false, true}) {
    EXPECT_EQ(CheckFenceFrame(FrameOf(kFrameGoodbye, 0, 0, 0), from_sender, 1), nullptr);
    EXPECT_NE(CheckFenceFrame(FrameOf(kFrameChunk, 8, 0, 5), from_sender, 5), nullptr);
    EXPECT_NE(CheckFenceFrame(FrameOf(kFrameReport, 0, 1, 7), from_sender, 5), nullptr);
  }
}

TEST(TcpGolden, ATransportIsTakenOnlyWithWhatItNeeds) {
  const auto check = [](uint16_t transport, uint64_t bytes) {
    Hello hello = ExpectedHelloOf(kTransportTcp);
    hello.transport = transport;
    hello.header.total_bytes = bytes;
    return CheckHello(&hello, sizeof hello, hello.communicator_id, 2, 3);
  };
  EXPECT_NE(check(0, 120), nullptr);
  EXPECT_EQ(check(kTransportTcp, 120), nullptr);
  EXPECT_EQ(check(kFailOverTcp, 120), nullptr);
  EXPECT_EQ(check(kFenceStream, 120), nullptr);
  EXPECT_NE(check(kFenceStream, 152), nullptr);
  EXPECT_EQ(check(kTransportShm, 152), nullptr);
  EXPECT_NE(check(kTransportTcp, 152), nullptr);
  EXPECT_NE(check(kTransportShm, 120), nullptr);
  EXPECT_EQ(check(kTransportVerbs, 152), nullptr);
  EXPECT_NE(check(kTransportVerbs, 120), nullptr);
  EXPECT_STREQ(check(kTransportVendor, 120), "asks for a transport that this version does not have");
}

// A memory of 4 slots with room for 72 bytes each, and 2 pieces of 64; four slots; the page of a bell.
shm::Region ExpectedRegion() {
  shm::Region region{};
  region.header = HeaderOf(shm::kRegionMagic, 256, 128, 4096 + 128);
  region.header.major = 2;
  memcpy(region.cookie, kNonce, sizeof kNonce);
  region.cookie_address = 0x7f0000001000;
  region.pool_offset = 4096;
  region.slots = 4;
  region.pieces = 2;
  region.piece_bytes = 64;
  region.wanted_consumed = 2;
  region.wanted_granted = shm::kNothing;
  region.consumed = 1;
  region.granted = 3;
  region.heartbeat = 2;
  region.copy = shm::kCopyPool;
  return region;
}

shm::Slot ExpectedSlot(uint64_t number, uint32_t kind, uint32_t offset, uint32_t bytes) {
  shm::Slot slot{};
  slot.sequence = number + 1;
  slot.message = 4;
  slot.message_bytes = 5000;
  slot.address = kind == 2 ? 0x7f0000002000 : 0;
  slot.chunk = 1;
  slot.chunk_bytes = kind == 3 ? 104 : bytes;
  slot.offset = offset;
  slot.bytes = bytes;
  slot.kind = kind;
  slot.piece = kind == 4 ? 1 : 0;
  return slot;
}

shm::BellPage ExpectedBell() {
  shm::BellPage page{};
  page.header = HeaderOf(shm::kBellMagic, 128, 0, 128);
  page.header.major = 2;
  page.sleeping = 1;
  page.pipe = 18;
  page.shelf_offset = 112;
  page.shelf_pieces = 2;
  page.shelf_piece_bytes = 8;
  return page;
}

TEST(ShmGolden, MemoryOf20) {
  const shm::Slot slots[] = {ExpectedSlot(0, 1, 0, 72), ExpectedSlot(1, 2, 0, 904), ExpectedSlot(2, 3, 0, 64),
                             ExpectedSlot(3, 3, 64, 40), ExpectedSlot(4, 4, 0, 8)};
  std::string written;
  Append(&written, ExpectedRegion());
  for (const shm::Slot& slot : slots) Append(&written, slot);
  Append(&written, ExpectedBell());
  const std::string bytes = Golden(kShmName, written);
  ASSERT_EQ(bytes.size(), 256u + 5u * 56u + 128u);
  ExpectFields(bytes, 0, ExpectedRegion(), ShmRegionLayout());
  for (size_t i = 0; i < 5; ++i) ExpectFields(bytes, 256 + i * 56, slots[i], ShmSlotLayout());
  ExpectFields(bytes, 536, ExpectedBell(), ShmBellPageLayout());
  shm::Geometry geometry;
  ASSERT_EQ(shm::CheckRegion(At<shm::Region>(bytes, 0), 4096 + 128, kNonce, &geometry), nullptr);
  EXPECT_EQ(geometry.inline_bytes(), 72u);
  EXPECT_EQ(geometry.slot_offset(5), 256u + 128u);
  EXPECT_EQ(geometry.piece_offset(3), 4096u + 64u);
  const shm::Slot none{};
  EXPECT_EQ(shm::CheckSlot(slots[0], none, 0, shm::kCopyDirect, 5, geometry), nullptr);
  EXPECT_EQ(shm::CheckSlot(slots[1], none, 0, shm::kCopyDirect, 5, geometry), nullptr);
  EXPECT_EQ(shm::CheckSlot(slots[2], none, 0, shm::kCopyPool, 3, geometry), nullptr);
  EXPECT_EQ(shm::CheckSlot(slots[3], slots[2], 64, shm::kCopyPool, 3, geometry), nullptr);
  geometry.shelf_pieces = 2;
  geometry.shelf_piece_bytes = 8;
  EXPECT_EQ(shm::CheckSlot(slots[4], none, 0, shm::kCopyPool, 3, geometry), nullptr);
  EXPECT_EQ(shm::CheckCounters(1, 3, shm::kCopyPool, 0, 0, 4), nullptr);
  EXPECT_EQ(shm::CheckBell(At<shm::BellPage>(bytes, 536), 128, kProcess), nullptr);
}

ras::Ask ExpectedRasAsk() {
  ras::Ask ask{};
  ask.header = HeaderOf(ras::kAskMagic, 128, 0, 128);
  ask.header.minor = 0;
  ask.communicator_id = 0xc4c4'0000'0000'0001;
  ask.query = 7;
  ask.from_rank = 2;
  ask.to_rank = 3;
  memcpy(ask.mac, kNonce, sizeof kNonce);
  return ask;
}

ras::Tell ExpectedRasTell() {
  ras::Tell tell{};
  tell.header = HeaderOf(ras::kTellMagic, 128, 96, 224);
  tell.header.minor = 0;
  tell.communicator_id = 0xc4c4'0000'0000'0001;
  tell.query = 7;
  tell.from_rank = 3;
  tell.to_rank = 2;
  tell.total = 2;
  tell.records = 1;
  memcpy(tell.mac, kNonce, sizeof kNonce);
  return tell;
}

ras::State ExpectedRasState() {
  return {.communicator_id = 0xc4c4'0000'0000'0001,
          .rank = 3,
          .rank_count = 4,
          .init_state = 0,
          .async_error = 6,
          .flags = ras::kAborted,
          .reserved = 0,
          .calls = {1, 2, 3, 4, 5, 6, 7, 8}};
}

template <typename... T>
std::string BytesOf(const T&... values) {
  std::string bytes;
  (bytes.append(reinterpret_cast<const char*>(&values), sizeof values), ...);
  return bytes;
}

TEST(RasGolden, DatagramsOf10) {
  const std::string bytes =
      Golden("ras_server-1.0.bin", BytesOf(ExpectedRasAsk(), ExpectedRasTell(), ExpectedRasState()));
  ASSERT_EQ(bytes.size(), 128u + 128u + 96u);
  ExpectFields(bytes, 0, ExpectedRasAsk(), RasAskLayout());
  ExpectFields(bytes, 128, ExpectedRasTell(), RasTellLayout());
  ExpectFields(bytes, 256, ExpectedRasState(), RasStateLayout());
}

TEST(ShmGolden, AnotherMajorIsRefused) {
  shm::Geometry geometry;
  shm::Region region = ExpectedRegion();
  region.header.major = 3;
  EXPECT_STREQ(shm::CheckRegion(region, 4096 + 128, kNonce, &geometry), HeaderFaultText(HeaderFault::kMajor));
  region.header.major = 2;
  region.header.minor = 9;
  EXPECT_EQ(shm::CheckRegion(region, 4096 + 128, kNonce, &geometry), nullptr);
}

// Its sender waits for a clear to send that nobody would wake it for.
TEST(ShmGolden, MemoryOf10IsRefusedByItsVersion) {
  const std::string bytes = Golden("shm-1.0.bin", "");
  shm::Geometry geometry;
  EXPECT_STREQ(shm::CheckRegion(At<shm::Region>(bytes, 0), 4096 + 128, kNonce, &geometry),
               HeaderFaultText(HeaderFault::kMajor));
}

TEST(TcpGolden, AnotherMajorIsRefused) {
  Hello hello = ExpectedHelloOf(kTransportTcp);
  for (const uint16_t major : {uint16_t{3}, uint16_t{5}}) {
    hello.header.major = major;
    EXPECT_STREQ(CheckHello(&hello, sizeof hello, hello.communicator_id, 2, 3),
                 HeaderFaultText(HeaderFault::kMajor));
  }
  hello.header.major = 4;
  hello.header.minor = 9;
  EXPECT_EQ(CheckHello(&hello, sizeof hello, hello.communicator_id, 2, 3), nullptr);
}

// Ranks with an older library have to be updated: 1.0 sends whole messages, 2.x knows no fences, 3.x proves
// nothing.
TEST(TcpGolden, OlderStreamsAreRefusedByTheirVersion) {
  for (const char* name : {"tcp-1.0.bin", "tcp-2.0.bin", "tcp-2.1.bin", "tcp-3.0.bin"}) {
    const std::string bytes = Golden(name, "");
    EXPECT_STREQ(CheckHello(bytes.data(), bytes.size(), 0xc4c4'0000'0000'0001, 2, 3),
                 HeaderFaultText(HeaderFault::kMajor))
        << name;
  }
}

}  // namespace
}  // namespace c4::wire
