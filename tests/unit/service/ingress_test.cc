#include "service/ingress.h"

#include <gmock/gmock.h>
#include <string>

#include "service/http2_meter.h"
#include "service/limits.h"

namespace c4::service {
namespace {

const std::string kPreface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

std::string Frame(int type, const std::string& payload) {
  std::string frame(9, '\0');
  frame[1] = static_cast<char>(payload.size() >> 8);
  frame[2] = static_cast<char>(payload.size());
  frame[3] = static_cast<char>(type);
  return frame + payload;
}

TEST(Http2Meter, AnOrdinaryCallPassesWholeHoweverItIsCut) {
  const std::string bytes =
      kPreface + Frame(4, "") + Frame(1, std::string(80, 'h')) + Frame(0, std::string(9000, 'd'));
  for (const size_t piece : {size_t{1}, size_t{7}, bytes.size()}) {
    Http2Totals totals;
    Http2Meter meter(&totals);
    for (size_t at = 0; at < bytes.size(); at += piece) {
      const std::string part = bytes.substr(at, piece);
      EXPECT_EQ(meter.Pass(part, 1000), part.size());
    }
    EXPECT_EQ(meter.fault(), nullptr);
    EXPECT_TRUE(meter.greeted());
  }
}

TEST(Http2Meter, StreamsBeyondTheRateWaitAndAreCompleteLater) {
  Http2Totals totals;
  Http2Meter meter(&totals);
  const std::string open = Frame(1, "hh");
  std::string bytes = kPreface;
  for (int i = 0; i < static_cast<int>(limits::kOpensBurst) + 500; ++i) bytes += open;
  const size_t first = meter.Pass(bytes, 1000);
  // All but the last byte of the header that has to wait.
  EXPECT_EQ(first, kPreface.size() + static_cast<size_t>(limits::kOpensBurst) * open.size() + 8);
  EXPECT_EQ(meter.Pass(std::string_view(bytes).substr(first), 1000), 0U);
  size_t passed = first;
  passed += meter.Pass(std::string_view(bytes).substr(passed), 1100);
  EXPECT_EQ(passed, first + static_cast<size_t>(limits::kOpensPerSecond / 10) * open.size());
  passed += meter.Pass(std::string_view(bytes).substr(passed), 2100);
  EXPECT_EQ(passed, bytes.size());
  EXPECT_EQ(meter.fault(), nullptr);
}

TEST(Http2Meter, ManyResetsContinuationsAndOtherTonguesAreFaults) {
  const auto fault = [](const std::string& bytes) {
    Http2Totals totals;
    Http2Meter meter(&totals);
    meter.Pass(bytes, 1000);
    return std::string(meter.fault() == nullptr ? "" : meter.fault());
  };
  std::string resets = kPreface;
  for (int i = 0; i < static_cast<int>(limits::kResetsBurst); ++i) resets += Frame(3, "code");
  EXPECT_EQ(fault(resets), "");
  EXPECT_THAT(fault(resets + Frame(3, "code")), testing::HasSubstr("resets"));
  std::string headers = kPreface + Frame(1, "h");
  for (int i = 0; i < limits::kContinuations; ++i) headers += Frame(9, "h");
  EXPECT_EQ(fault(headers), "");
  EXPECT_THAT(fault(headers + Frame(9, "h")), testing::HasSubstr("without an end"));
  EXPECT_THAT(fault("GET / HTTP/1.1\r\n"), testing::HasSubstr("HTTP/2"));
}

TEST(Http2Meter, AllConnectionsTogetherHaveARate) {
  Http2Totals totals;
  std::string bytes = kPreface;
  for (int i = 0; i < static_cast<int>(limits::kOpensBurst); ++i) bytes += Frame(1, "");
  const int free = static_cast<int>(limits::kAllOpensBurst / limits::kOpensBurst);
  for (int i = 0; i < free; ++i) EXPECT_EQ(Http2Meter(&totals).Pass(bytes, 1000), bytes.size());
  EXPECT_LT(Http2Meter(&totals).Pass(bytes, 1000), bytes.size());
}

TEST(Ingress, ThePeersAddressIsInTheCallsPeer) {
  EXPECT_EQ(AddressBehindIngress("unix-abstract:c4-ingress/127.0.0.1:4000/77.3"), "127.0.0.1:4000");
  EXPECT_EQ(AddressBehindIngress("unix-abstract:c4-ingress/%5B::1%5D:4000/77.3"), "[::1]:4000");
  EXPECT_EQ(AddressBehindIngress("unix-abstract:other/127.0.0.1:4000/1"), "");
  EXPECT_EQ(AddressBehindIngress("ipv4:127.0.0.1:4000"), "");
}

}  // namespace
}  // namespace c4::service
