// What the ranks of version 1.0 said to each other while a communicator came up and carried data, from files.
#include "tests/unit/wire/golden.h"

namespace c4::wire {
namespace {

using bootstrap::Join;
using bootstrap::RankInfo;
using bootstrap::Table;
using bootstrap::UniqueId;
using tcp::Frame;
using tcp::Hello;

constexpr char kBootstrapName[] = "bootstrap-1.0.bin";
constexpr char kTcpName[] = "tcp-2.0.bin";
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
  hello.header = HeaderOf(tcp::kHelloMagic, 104, 0, 104);
  hello.header.major = 2;
  hello.communicator_id = 0xc4c4'0000'0000'0001;
  hello.from_rank = 1;
  hello.to_rank = 2;
  hello.channel = 3;
  hello.queue_pair_index = 4;
  hello.queue_pair_count = 6;
  hello.queue_pair_number = 905;
  hello.chunk_bytes = 4096;
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

// A sender's side of the stream, then the receiver's.
std::string WrittenTcp() {
  std::string bytes;
  Append(&bytes, ExpectedHello());
  Append(&bytes, FrameOf(1, 8, 0, 5));
  bytes += "payload.";
  Append(&bytes, FrameOf(3, 0, 0, 0));
  Append(&bytes, FrameOf(2, 0, 1, 7));
  return bytes;
}

TEST(TcpGolden, StreamOf20) {
  const std::string bytes = Golden(kTcpName, WrittenTcp());
  ASSERT_EQ(bytes.size(), 104u + 40u + 8u + 40u + 40u);
  EXPECT_EQ(tcp::CheckHello(bytes.data(), bytes.size(), 0xc4c4'0000'0000'0001, 2, 3), nullptr);
  ExpectFields(bytes, 0, ExpectedHello(), TcpHelloLayout());
  ExpectFields(bytes, 104, FrameOf(tcp::kChunk, 8, 0, 5), TcpFrameLayout());
  EXPECT_EQ(bytes.substr(144, 8), "payload.");
  ExpectFields(bytes, 152, FrameOf(tcp::kGoodbye, 0, 0, 0), TcpFrameLayout());
  ExpectFields(bytes, 192, FrameOf(tcp::kReport, 0, 1, 7), TcpFrameLayout());
  EXPECT_EQ(tcp::CheckChunk(At<Frame>(bytes, 104), 0), nullptr);
  EXPECT_EQ(tcp::CheckChunk(At<Frame>(bytes, 152), 1), nullptr);
  EXPECT_EQ(tcp::CheckReport(At<Frame>(bytes, 192), 0, 0, 1), nullptr);
  EXPECT_NE(tcp::CheckReport(At<Frame>(bytes, 192), 0, 0, 0), nullptr);
}

TEST(TcpGolden, AnotherMajorIsRefused) {
  Hello hello = ExpectedHello();
  hello.header.major = 3;
  EXPECT_STREQ(tcp::CheckHello(&hello, sizeof hello, hello.communicator_id, 2, 3),
               HeaderFaultText(HeaderFault::kMajor));
  hello.header.major = 2;
  hello.header.minor = 9;
  EXPECT_EQ(tcp::CheckHello(&hello, sizeof hello, hello.communicator_id, 2, 3), nullptr);
}

// A rank with the library of version 0.1 has to be updated: it speaks 1.0, and hears why.
TEST(TcpGolden, StreamOf10IsRefusedByItsVersion) {
  const std::string bytes = Golden("tcp-1.0.bin", "");
  EXPECT_STREQ(tcp::CheckHello(bytes.data(), bytes.size(), 0xc4c4'0000'0000'0001, 2, 3),
               HeaderFaultText(HeaderFault::kMajor));
}

}  // namespace
}  // namespace c4::wire
