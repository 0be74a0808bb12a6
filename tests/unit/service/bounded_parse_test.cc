#include "service/bounded_parse.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <string>

#include "c4/v1/c4d.pb.h"

namespace c4::service {
namespace {

constexpr size_t kMost = 256 << 20;

grpc::Slice Wire(const std::string& bytes) {
  return grpc::Slice(bytes);
}

// As gRPC gives what came in several frames.
grpc::ByteBuffer Cut(const std::string& bytes, size_t piece) {
  std::vector<grpc::Slice> slices;
  for (size_t at = 0; at < bytes.size(); at += piece) slices.emplace_back(bytes.substr(at, piece));
  return {slices.data(), slices.size()};
}

std::string Repeated(const std::string& piece, size_t count) {
  std::string bytes;
  for (size_t i = 0; i < count; ++i) bytes += piece;
  return bytes;
}

v1::TelemetryBatch Batch(int processes) {
  v1::TelemetryBatch batch;
  batch.set_host("node7");
  for (int i = 0; i < processes; ++i) {
    v1::ProcessReport* const process = batch.add_processes();
    process->set_job("a job of a name that is no short string");
    process->set_incarnation(static_cast<uint32_t>(i));
    for (int c = 0; c < 5; ++c) process->add_communicators()->set_rank(static_cast<uint32_t>(c));
  }
  return batch;
}

TEST(ParsedBytes, IsNoLessThanWhatTheMessageTakes) {
  for (const int processes : {0, 1, 7, 300}) {
    const v1::TelemetryBatch batch = Batch(processes);
    for (const size_t piece : {size_t{1}, size_t{13}, size_t{1} << 20}) {
      const auto bytes = ParsedBytes(Wire(batch.SerializeAsString()), v1::TelemetryBatch(), kMost);
      ASSERT_TRUE(bytes.ok()) << bytes.status();
      v1::TelemetryBatch parsed;
      ParseBudget budget(kMost);
      ParseShare share;
      ASSERT_TRUE(budget.Parse(Cut(batch.SerializeAsString(), piece), kMost, &parsed, &share).ok());
      EXPECT_EQ(parsed.SerializeAsString(), batch.SerializeAsString());
      EXPECT_GE(*bytes, parsed.SpaceUsedLong()) << processes;
      EXPECT_LT(*bytes, 4 * parsed.SpaceUsedLong() + 1000) << processes;
    }
  }
}

// What is small on the wire: empty messages, groups and numbers of fields that are not known, empty strings.
TEST(ParsedBytes, CountsWhatGrows) {
  v1::TelemetryBatch one;
  one.add_processes();
  const std::string group = "\x7b\x7c";
  const std::string nested = Repeated("\x7b", 50) + Repeated("\x7c", 50);
  const std::string number("\x78\x01");
  const std::string text("\x7a\x00", 2);
  const std::string wrong_form("\x08\x08");  // of the host's name
  for (const std::string& piece : {one.SerializeAsString(), group, nested, number, text, wrong_form}) {
    const std::string wire = Repeated(piece, 20'000);
    v1::TelemetryBatch parsed;
    ASSERT_TRUE(parsed.ParseFromString(wire));
    const auto bytes = ParsedBytes(Wire(wire), parsed, kMost);
    ASSERT_TRUE(bytes.ok()) << bytes.status();
    EXPECT_GE(*bytes, parsed.SpaceUsedLong());
    const absl::Status refused = ParsedBytes(Wire(wire), parsed, parsed.SpaceUsedLong() / 2).status();
    EXPECT_TRUE(absl::IsResourceExhausted(refused)) << refused;
    EXPECT_THAT(std::string(refused.message()), testing::HasSubstr("TelemetryBatch"));
  }
}

TEST(ParsedBytes, RefusesWhatTheParserRefuses) {
  const std::string good = Batch(3).SerializeAsString();
  for (const std::string& bad : {std::string("\xff"), std::string("\x0a\x05"), std::string("\x7b"),
                                 std::string("\x7c"), std::string(1, '\0'), good.substr(0, good.size() - 1),
                                 Repeated("\x7b", 200) + Repeated("\x7c", 200)}) {
    v1::TelemetryBatch parsed;
    EXPECT_FALSE(parsed.ParseFromString(bad));
    EXPECT_TRUE(absl::IsInvalidArgument(ParsedBytes(Wire(bad), parsed, kMost).status()));
  }
}

TEST(ParseBudget, IsSharedAndGivenBack) {
  const grpc::ByteBuffer wire = Serialized(Batch(100));
  const size_t bytes = *ParsedBytes(Wire(Batch(100).SerializeAsString()), v1::TelemetryBatch(), kMost);
  ParseBudget budget(2 * bytes + bytes / 2);
  v1::TelemetryBatch a, b, c;
  ParseShare of_a, of_b, of_c;
  EXPECT_TRUE(budget.Parse(wire, kMost, &a, &of_a).ok());
  EXPECT_TRUE(budget.Parse(wire, kMost, &b, &of_b).ok());
  EXPECT_TRUE(absl::IsResourceExhausted(budget.Parse(wire, kMost, &c, &of_c)));
  EXPECT_EQ(c.processes_size(), 0);
  EXPECT_EQ(budget.taken(), 2 * bytes);
  of_a = ParseShare();
  ParseShare moved = std::move(of_b);
  EXPECT_EQ(budget.taken(), bytes);
  EXPECT_TRUE(budget.Parse(wire, kMost, &c, &of_c).ok());
  EXPECT_EQ(c.SerializeAsString(), b.SerializeAsString());
  moved.Free();
  of_c.Free();
  EXPECT_EQ(budget.taken(), 0U);
}

}  // namespace
}  // namespace c4::service
