// The agent's and the library's frames: those of version 1.0 from a file, those of a later minor version, and
// packets that are none.
#include "tests/unit/wire/golden.h"

namespace c4::wire {
namespace {

constexpr char kName[] = "control-1.0.bin";

ControlFrame ExpectedFrame(ControlType type, size_t body_bytes) {
  ControlFrame frame{};
  frame.header = {.magic = kControlMagic,
                  .major = 1,
                  .minor = 0,
                  .endian = kEndianMark,
                  .header_bytes = 72,
                  .record_bytes = static_cast<uint32_t>(body_bytes),
                  .total_bytes = 72 + body_bytes,
                  .writer = {.boot_id = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16},
                             .start_time_ticks = 8675309,
                             .pid = 4242,
                             .reserved = 0}};
  frame.type = type;
  return frame;
}

ControlHello ExpectedHello() {
  ControlHello hello{};
  memcpy(hello.segment_name, "4242-0011223344556677.c4seg", 27);
  hello.library_version = 22809;
  return hello;
}

constexpr ControlWelcome kExpectedWelcome{.agent_version = 100, .level = kLevelCoarse};
constexpr ControlLevel kExpectedLevel{.level = kLevelFine, .reserved = 0};

template <typename Body>
std::string Packet(ControlType type, const Body& body) {
  std::string bytes;
  Append(&bytes, ExpectedFrame(type, sizeof body));
  Append(&bytes, body);
  return bytes;
}

// The packets one after the other; each says in its header how long it is.
std::string Written() {
  return Packet(kControlHello, ExpectedHello()) + Packet(kControlWelcome, kExpectedWelcome) +
         Packet(kControlLevel, kExpectedLevel);
}

const void* Body(const std::string& packet, size_t body_bytes, HeaderFault* fault) {
  return ControlBody(packet.data(), packet.size(), body_bytes, fault);
}

template <typename T>
void ExpectPacket(const std::string& bytes, size_t at, ControlType type, const T& body,
                  const Layout& layout) {
  const auto frame = At<ControlFrame>(bytes, at);
  ExpectFields(bytes, at, ExpectedFrame(type, sizeof body), ControlFrameLayout());
  const std::string packet = bytes.substr(at, frame.header.total_bytes);
  HeaderFault fault = HeaderFault::kOk;
  const void* found = Body(packet, sizeof body, &fault);
  ASSERT_NE(found, nullptr) << HeaderFaultText(fault);
  ExpectFields(packet, static_cast<size_t>(static_cast<const char*>(found) - packet.data()), body, layout);
}

TEST(ControlGolden, FramesOf10) {
  const std::string bytes = Golden(kName, Written());
  ASSERT_EQ(bytes.size(), (72u + 136u) + (72u + 8u) + (72u + 8u));
  ExpectPacket(bytes, 0, kControlHello, ExpectedHello(), ControlHelloLayout());
  ExpectPacket(bytes, 208, kControlWelcome, kExpectedWelcome, ControlWelcomeLayout());
  ExpectPacket(bytes, 288, kControlLevel, kExpectedLevel, ControlLevelLayout());
}

TEST(ControlGolden, NumbersOf10) {
  EXPECT_EQ((std::vector<uint32_t>{kControlHello, kControlWelcome, kControlLevel}),
            (std::vector<uint32_t>{1, 2, 3}));
  EXPECT_LE(sizeof(ControlFrame) + sizeof(ControlHello), kControlMaxBytes);
}

TEST(ControlBody, ReadsALaterMinorWithLongerHeaderAndBody) {
  std::string packet = Packet(kControlWelcome, kExpectedWelcome);
  packet.insert(sizeof(ControlFrame), "newfield");  // a later version's end of the fixed part
  packet += "a later version's end of the body";
  auto frame = At<ControlFrame>(packet, 0);
  frame.header.minor = 9;
  frame.header.header_bytes += 8;
  frame.header.record_bytes += 33;
  frame.header.total_bytes = packet.size();
  memcpy(packet.data(), &frame, sizeof frame);
  HeaderFault fault = HeaderFault::kTooShort;
  const void* body = Body(packet, sizeof(ControlWelcome), &fault);
  ASSERT_NE(body, nullptr) << HeaderFaultText(fault);
  EXPECT_EQ(fault, HeaderFault::kOk);
  EXPECT_EQ(memcmp(body, &kExpectedWelcome, sizeof kExpectedWelcome), 0);
}

TEST(ControlBody, LeavesTypesItDoesNotKnowToTheCaller) {
  std::string packet = Packet(static_cast<ControlType>(77), kExpectedLevel);
  HeaderFault fault = HeaderFault::kTooShort;
  EXPECT_NE(Body(packet, 0, &fault), nullptr);
  EXPECT_EQ(At<ControlFrame>(packet, 0).type, 77u);
}

TEST(ControlBody, RefusesAnotherMajor) {
  std::string packet = Packet(kControlLevel, kExpectedLevel);
  auto frame = At<ControlFrame>(packet, 0);
  frame.header.major = 2;
  memcpy(packet.data(), &frame, sizeof frame);
  HeaderFault fault = HeaderFault::kOk;
  EXPECT_EQ(Body(packet, sizeof(ControlLevel), &fault), nullptr);
  EXPECT_EQ(fault, HeaderFault::kMajor);
}

TEST(ControlBody, RefusesEveryTruncation) {
  const std::string packet = Packet(kControlHello, ExpectedHello());
  for (size_t bytes = 0; bytes < packet.size(); ++bytes) {
    const std::string cut = packet.substr(0, bytes);
    HeaderFault fault = HeaderFault::kOk;
    EXPECT_EQ(Body(cut, sizeof(ControlHello), &fault), nullptr) << bytes;
    EXPECT_NE(fault, HeaderFault::kOk) << bytes;
  }
}

TEST(ControlBody, RefusesABodyThatIsTooShortForItsType) {
  const std::string packet = Packet(kControlHello, kExpectedLevel);
  HeaderFault fault = HeaderFault::kOk;
  EXPECT_EQ(Body(packet, sizeof(ControlHello), &fault), nullptr);
  EXPECT_EQ(fault, HeaderFault::kSizes);
}

TEST(ControlBody, RefusesAHeaderThatReachesPastThePacket) {
  std::string packet = Packet(kControlLevel, kExpectedLevel);
  auto frame = At<ControlFrame>(packet, 0);
  frame.header.header_bytes = 0xfffffff0;
  frame.header.total_bytes = packet.size();
  memcpy(packet.data(), &frame, sizeof frame);
  HeaderFault fault = HeaderFault::kOk;
  EXPECT_EQ(Body(packet, 0, &fault), nullptr);
  EXPECT_EQ(fault, HeaderFault::kSizes);
}

}  // namespace
}  // namespace c4::wire
