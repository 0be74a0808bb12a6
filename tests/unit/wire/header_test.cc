// What every reader of a C4 format refuses, and what it takes from a newer minor version.
#include "wire/header.h"

#include <gtest/gtest.h>
#include <vector>

namespace c4::wire {
namespace {

constexpr uint64_t kMagic = Magic("C4TESTER");
constexpr uint16_t kMajor = 3;

Header Good() {
  Header header{};
  header.magic = kMagic;
  header.major = kMajor;
  header.minor = 0;
  header.endian = kEndianMark;
  header.header_bytes = sizeof(Header) + 16;
  header.total_bytes = 200;
  return header;
}

HeaderFault Check(const Header& header, size_t bytes = sizeof(Header)) {
  return CheckHeader(&header, bytes, kMagic, kMajor, sizeof(Header) + 16);
}

TEST(CheckHeader, TakesWhatIsRight) {
  EXPECT_EQ(Check(Good()), HeaderFault::kOk);
}

TEST(CheckHeader, ReadsNothingPastTheEnd) {
  const Header header = Good();
  for (size_t bytes = 0; bytes < sizeof(Header); ++bytes) {
    // A copy of exactly this size: the address sanitizer watches its end.
    const std::vector<char> cut(reinterpret_cast<const char*>(&header),
                                reinterpret_cast<const char*>(&header) + bytes);
    EXPECT_EQ(CheckHeader(cut.data(), bytes, kMagic, kMajor, sizeof(Header)), HeaderFault::kTooShort);
  }
}

TEST(CheckHeader, RefusesAnotherKind) {
  Header header = Good();
  header.magic = Magic("C4TESTES");
  EXPECT_EQ(Check(header), HeaderFault::kMagic);
}

TEST(CheckHeader, RefusesAnotherByteOrder) {
  Header header = Good();
  header.endian = 0x04030201;
  EXPECT_EQ(Check(header), HeaderFault::kEndian);
}

TEST(CheckHeader, RefusesAnotherMajorVersionOlderOrNewer) {
  Header header = Good();
  header.major = kMajor + 1;
  EXPECT_EQ(Check(header), HeaderFault::kMajor);
  header.major = kMajor - 1;
  EXPECT_EQ(Check(header), HeaderFault::kMajor);
}

TEST(CheckHeader, TakesALaterMinorVersionWithALongerHeader) {
  Header header = Good();
  header.minor = 65535;
  header.header_bytes = 160;
  EXPECT_EQ(Check(header), HeaderFault::kOk);
}

TEST(CheckHeader, RefusesSizesThatContradictEachOther) {
  Header header = Good();
  header.header_bytes = sizeof(Header) + 15;  // shorter than this version's
  EXPECT_EQ(Check(header), HeaderFault::kSizes);
  header = Good();
  header.total_bytes = header.header_bytes - 1;
  EXPECT_EQ(Check(header), HeaderFault::kSizes);
  header = Good();
  header.header_bytes = 0xffffffff;
  EXPECT_EQ(Check(header), HeaderFault::kSizes);
}

TEST(HeaderFaultText, SaysSomethingOfItsOwnForEachFault) {
  EXPECT_STREQ(HeaderFaultText(HeaderFault::kMajor), "is of another major version");
  EXPECT_STRNE(HeaderFaultText(HeaderFault::kTooShort), HeaderFaultText(HeaderFault::kSizes));
  EXPECT_STREQ(HeaderFaultText(static_cast<HeaderFault>(99)), "has an unknown fault");
}

}  // namespace
}  // namespace c4::wire
