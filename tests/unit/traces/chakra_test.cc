// Chakra execution traces whose nodes have times, made here in the format: read by a mapping as a profile is.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "analysis/whatif/analysis.h"
#include "traces/chakra_events.h"
#include "traces/kineto_mapping.h"
#include "traces/kineto_reader.h"

namespace c4::traces {
namespace {

using ::testing::HasSubstr;

std::string Varint(uint64_t value) {
  std::string bytes;
  for (; value >= 0x80; value >>= 7) bytes.push_back(static_cast<char>(value | 0x80));
  bytes.push_back(static_cast<char>(value));
  return bytes;
}

std::string Number(int field, uint64_t value) {
  return absl::StrCat(Varint(static_cast<uint64_t>(field) << 3), Varint(value));
}

std::string Bytes(int field, const std::string& bytes) {
  return absl::StrCat(Varint(static_cast<uint64_t>(field) << 3 | 2), Varint(bytes.size()), bytes);
}

std::string Message(const std::string& bytes) {
  return Varint(bytes.size()) + bytes;
}

std::string Attribute(const std::string& name, int64_t value) {
  return Bytes(10, absl::StrCat(Bytes(1, name), Number(9, static_cast<uint64_t>(value))));
}

constexpr int kMetadataNode = 1;
constexpr int kCompNode = 4;
constexpr int kCollNode = 7;

class TraceText {
 public:
  TraceText() : text_(Message(Bytes(1, "1.1.1"))) {}
  void Node(const std::string& name, int type, uint64_t start_us, uint64_t duration_us,
            const std::string& more = "") {
    std::string node = absl::StrCat(Number(1, ++id_), Bytes(2, name), Number(3, static_cast<uint64_t>(type)));
    // Dependencies, of which nothing is needed: packed and not.
    absl::StrAppend(&node, Bytes(4, Varint(id_ - 1)), Number(5, id_ - 1));
    if (start_us > 0) absl::StrAppend(&node, Number(6, start_us));
    absl::StrAppend(&node, Number(7, duration_us), Bytes(8, Bytes(1, "[1, 2]")), more);
    absl::StrAppend(&text_, Message(node));
  }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
  uint64_t id_ = 0;
};

constexpr char kMapping[] = R"({"layout": {"order": "dp", "sizes": {"dp": 2}}, "rules": [
  {"type": "forward-compute", "regex": "^forward ([0-9]+)$", "category": "COMP_NODE", "micro_batch": {"group": 1}},
  {"type": "backward-compute", "name": "backward *", "category": "COMP_NODE"},
  {"type": "grads-reduce-scatter", "name": "*", "category": "COMM_COLL_NODE",
   "args": {"comm_type": "ALL_REDUCE", "pg_name": "5"}},
  {"type": "optimizer", "name": "Optimizer.step#*", "category": ["METADATA_NODE", "COMP_NODE"]}]})";

std::string Rank(int slower_us, bool timed = true) {
  TraceText trace;
  const auto at = [timed](uint64_t us) { return timed ? us : 0; };
  for (uint64_t step = 0; step < 3; ++step) {
    const uint64_t begin = 1000000 + step * 100000;
    trace.Node(absl::StrCat("ProfilerStep#", step), kMetadataNode, at(begin), 90000);
    uint64_t free = begin + 100;
    for (int i = 0; i < 2; ++i) {
      trace.Node(absl::StrCat("forward ", i), kCompNode, at(free), 5000 + slower_us);
      free += 5000 + static_cast<uint64_t>(slower_us);
    }
    for (int i = 0; i < 2; ++i) {
      trace.Node(absl::StrCat("backward ", i), kCompNode, at(free), 10000);
      free += 10000;
    }
    const std::string of_data = Bytes(10, absl::StrCat(Bytes(1, "pg_name"), Bytes(29, "5")));
    trace.Node("ncclDevKernel", kCollNode, at(free), begin + 40000 - free,
               Attribute("comm_type", 0) + of_data);
    trace.Node("ncclDevKernel", kCollNode, at(free), 300, Attribute("comm_type", 2) + of_data);
    trace.Node("Optimizer.step#Adam", kCompNode, at(begin + 40000), 2000);
  }
  return trace.text();
}

absl::StatusOr<TableContents> Read(const std::vector<std::pair<std::string, std::string>>& files) {
  absl::StatusOr<KinetoMapping> mapping = ParseKinetoMapping(kMapping);
  if (!mapping.ok()) return mapping.status();
  const auto reader = KinetoReader::Make(*std::move(mapping), {}, {});
  if (!reader.ok()) return reader.status();
  for (const auto& [name, text] : files) {
    const std::unique_ptr<ByteSource> source = MemoryBytes(text);
    if (absl::Status read = (*reader)->Read(name, source.get()); !read.ok()) return read;
  }
  return (*reader)->Finish();
}

TEST(Chakra, NodesWithTimesAreAJob) {
  const absl::StatusOr<TableContents> table = Read({{"job.0.et", Rank(0)}, {"job.1.et", Rank(2000)}});
  ASSERT_TRUE(table.ok()) << table.status();
  const absl::StatusOr<whatif::Trace> trace = whatif::BuildTrace(table->records, {});
  ASSERT_TRUE(trace.ok()) << trace.status();
  EXPECT_EQ(trace->steps.size(), 3U);
  EXPECT_EQ(trace->dp_size, 2);
  EXPECT_EQ(trace->Count(0, whatif::OperationType::kGradsReduceScatter), 1U);  // the gather is none
  EXPECT_EQ(trace->Count(0, whatif::OperationType::kOptimizer), 1U);
  const size_t forward = trace->Find(0, whatif::OperationType::kForwardCompute, 0);
  EXPECT_NEAR(trace->duration_s[forward * trace->lanes() + 1], 0.007, 1e-6);
  EXPECT_EQ(trace->operations[forward + 1].micro_batch, 1);
  const absl::StatusOr<whatif::Job> job = whatif::MakeJob(*trace);
  ASSERT_TRUE(job.ok()) << job.status();
  const absl::StatusOr<whatif::Analysis> analysis = whatif::Analyse(*job, 1);
  ASSERT_TRUE(analysis.ok()) << analysis.status();
  EXPECT_GT(analysis->by_worker[1].overall, analysis->by_worker[0].overall);
}

std::string Refused(const std::string& text) {
  const absl::StatusOr<TableContents> table = Read({{"job.0.et", text}, {"job.1.et", Rank(0)}});
  EXPECT_FALSE(table.ok());
  return std::string(table.status().message());
}

TEST(Chakra, WhatIsNoneOrHasNoTimesIsRefused) {
  EXPECT_THAT(Refused(Rank(0, false)), HasSubstr("job.0.et: no node has a time"));
  EXPECT_THAT(Refused(""), HasSubstr("job.0.et: message 0, byte 0: the file is empty"));
  EXPECT_THAT(Refused(Rank(0).substr(0, 100)), HasSubstr("cut off"));
  EXPECT_THAT(Refused("{\"traceEvents\": []}"), HasSubstr("job.0.et: "));
  EXPECT_THAT(Refused(std::string(20, '\xff')), HasSubstr("too many bytes"));
  std::string damaged = TraceText().text();
  damaged += Message("\x07");  // a wire type that is none
  EXPECT_THAT(Refused(damaged), HasSubstr("message 2, byte"));
  EXPECT_THAT(Refused(Message("") + Varint(uint64_t{1} << 40)),
              HasSubstr("a message of 1099511627776 bytes"));
}

TEST(Chakra, IsToldByTheName) {
  EXPECT_TRUE(IsChakra("/data/llama.13.et"));
  EXPECT_TRUE(IsChakra("llama.13.et.gz"));
  EXPECT_FALSE(IsChakra("rank_0.json"));
  EXPECT_FALSE(IsChakra("planet"));
}

}  // namespace
}  // namespace c4::traces
