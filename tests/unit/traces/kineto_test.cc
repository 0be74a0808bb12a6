// Profiles of PyTorch's profiler: which events are which operation of which step, and what is wrong with them
// is said with file and event.
#include <algorithm>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "analysis/whatif/analysis.h"
#include "traces/byte_source.h"
#include "traces/kineto_mapping.h"
#include "traces/kineto_reader.h"

namespace c4::traces {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr char kMapping[] =
    R"({"layout": {"order": "tp-dp-pp", "sizes": {"tp": 1, "dp": 2, "pp": 1}}, "rules": [
  {"type": "forward-compute", "regex": "^forward(?: mb=([^ ]+))?$", "micro_batch": {"group": 1}},
  {"type": "backward-compute", "name": "backward*"},
  {"type": "optimizer", "name": "optimizer"}]})";

std::string Event(const std::string& name, const std::string& start, const std::string& duration,
                  const std::string& category = "user_annotation", const std::string& more = "") {
  return absl::StrCat(R"({"ph":"X","cat":")", category, R"(","name":")", name, R"(","pid":1,"tid":2,"ts":)",
                      start, R"(,"dur":)", duration, more, "}");
}

std::vector<std::string> Events(int steps, int slower_us = 0) {
  std::vector<std::string> events;
  for (int step = 0; step < steps; ++step) {
    const int at = 10000 * step;
    const auto text = [&at](int us) { return std::to_string(at + us); };
    events.push_back(Event(absl::StrCat("ProfilerStep#", 10 + step), text(0), "9000"));
    events.push_back(Event("forward mb=0", text(100), std::to_string(1000 + slower_us)));
    events.push_back(Event("backward", text(1100 + slower_us), "2000"));
    events.push_back(Event("optimizer", text(5000), "500"));
  }
  return events;
}

std::string File(const std::vector<std::string>& events, int rank, const std::string& header = "") {
  return absl::StrCat("{\"distributedInfo\":{\"rank\":", rank, ",\"world_size\":2},", header,
                      "\"traceEvents\":[\n", absl::StrJoin(events, ",\n"), "\n],\"traceName\":\"x\"}");
}

absl::StatusOr<TableContents> Read(const std::vector<std::pair<std::string, std::string>>& files,
                                   const std::string& mapping_text = kMapping,
                                   const TableOptions& options = {}, const whatif::JobShape& shape = {}) {
  absl::StatusOr<KinetoMapping> mapping = ParseKinetoMapping(mapping_text);
  if (!mapping.ok()) return mapping.status();
  auto reader = KinetoReader::Make(*std::move(mapping), shape, options);
  if (!reader.ok()) return reader.status();
  for (const auto& [name, text] : files) {
    const std::unique_ptr<ByteSource> source = MemoryBytes(text);
    if (absl::Status read = (*reader)->Read(name, source.get()); !read.ok()) return read;
  }
  return (*reader)->Finish();
}

// The second rank of the job is as it should be.
absl::StatusOr<TableContents> ReadBoth(const std::vector<std::string>& first,
                                       const std::string& mapping = kMapping) {
  return Read({{"a.json", File(first, 0)}, {"b.json", File(Events(3), 1)}}, mapping);
}

std::string Refused(const absl::StatusOr<TableContents>& table) {
  EXPECT_FALSE(table.ok());
  return std::string(table.status().message());
}

// What the first worker's first operation of this type looks like.
whatif::OperationRecord First(const TableContents& table, whatif::OperationType type) {
  for (size_t i = 0; i < table.records.size(); ++i) {
    if (table.records[i].type == whatif::Index(type)) return table.records[i];
  }
  ADD_FAILURE() << "no " << whatif::OperationName(type);
  return {};
}

std::string With(std::string text, const std::string& what, const std::string& instead) {
  const size_t at = text.find(what);
  EXPECT_NE(at, std::string::npos) << what;
  return text.replace(at, what.size(), instead);
}

TEST(Kineto, OperationsStepsAndRanks) {
  const auto table = Read({{"b.json", File(Events(3, 500), 1)}, {"a.json", File(Events(3), 0)}});
  ASSERT_TRUE(table.ok()) << table.status();
  EXPECT_THAT(table->notes, IsEmpty());
  ASSERT_EQ(table->records.size(), 18 + 6);  // and the begin of each step of each rank: there is no GPU
  const whatif::OperationRecord forward = First(*table, whatif::OperationType::kForwardCompute);
  EXPECT_EQ(forward.rank, 1);
  EXPECT_EQ(forward.dp_rank, 1);
  EXPECT_EQ(forward.step, 10);
  EXPECT_EQ(forward.micro_batch, 0);
  EXPECT_FLOAT_EQ(forward.duration_s, 0.0015F);
  const auto trace = whatif::BuildTrace(table->records, {});
  ASSERT_TRUE(trace.ok()) << trace.status();
  EXPECT_THAT(trace->steps, ElementsAre(10, 11, 12));
  EXPECT_NEAR(trace->measured_step_s[0], 0.0055, 1e-9);
  EXPECT_TRUE(trace->has_own_time());
}

TEST(Kineto, TimesAsTextAndRelativeToABase) {
  std::vector<std::string> events = Events(3);
  events[1] = Event("forward", "\"100.125\"", "\"1000.5\"");
  const auto table = Read({{"a.json", File(events, 0, "\"baseTimeNanoseconds\":1711900800000000000,")},
                           {"b.json", File(Events(3), 1, "\"baseTimeNanoseconds\":1711900800000000100,")}});
  ASSERT_TRUE(table.ok()) << table.status();
  const whatif::OperationRecord forward = First(*table, whatif::OperationType::kForwardCompute);
  EXPECT_FLOAT_EQ(forward.duration_s, 0.0010005F);
  double least_s = 1;
  for (size_t i = 0; i < table->records.size(); ++i) {
    const whatif::OperationRecord& other = table->records[i];
    if (other.rank == 1 && other.type != whatif::Index(whatif::OperationType::kOwnTime))
      least_s = std::min(least_s, other.start_s - forward.start_s);
  }
  EXPECT_NEAR(least_s, -25e-9, 1e-15);  // 100 us + 100 ns against 100.125 us
}

// Digits behind the nanosecond are rounded, of whole seconds since the epoch as well.
TEST(Kineto, TimesWithMoreDigitsThanNanoseconds) {
  const std::vector<std::string> events = {Event("ProfilerStep#10", "1711900800000000", "90000"),
                                           Event("forward", "1711900800000100.1254", "1000.50049"),
                                           Event("backward", "1711900800001200.1256", "2000.9996"),
                                           Event("optimizer", "1711900800005000", "5e2")};
  const auto table = Read({{"a.json", File(events, 0)}, {"b.json", File(events, 1)}});
  ASSERT_TRUE(table.ok()) << table.status();
  const whatif::OperationRecord forward = First(*table, whatif::OperationType::kForwardCompute);
  const whatif::OperationRecord backward = First(*table, whatif::OperationType::kBackwardCompute);
  EXPECT_FLOAT_EQ(forward.duration_s, 0.001000500F);
  EXPECT_FLOAT_EQ(backward.duration_s, 0.002001000F);
  EXPECT_NEAR(backward.start_s - forward.start_s, 1100.001e-6, 1e-12);
}

// As some profilers write what they do not know.
TEST(Kineto, MembersWithoutAValueAreNotThere) {
  std::vector<std::string> events = Events(3);
  events[1] = Event("forward mb=0", "100", "1000", "user_annotation",
                    R"(,"id": ,"args":{"Process Group Description": ,"dtype":"f32","in":{"a": },"b": })");
  const auto table = ReadBoth(events);
  ASSERT_TRUE(table.ok()) << table.status();
  EXPECT_THAT(table->notes, ElementsAre(HasSubstr("4 members of events have no value")));
  events[1] = Event("forward mb=0", " ", "1000");
  EXPECT_THAT(Refused(ReadBoth(events)), HasSubstr("a.json: event 1: it has no ts"));
  events[1] = Event("forward mb=0", "100", " ");  // its step is left out
  EXPECT_TRUE(ReadBoth(events).ok());
}

TEST(Kineto, ABareArrayAndPairsOfBeginAndEnd) {
  std::vector<std::string> events = Events(3);
  events[1] = R"({"ph":"B","cat":"user_annotation","name":"forward mb=4","pid":1,"tid":2,"ts":100},
    {"ph":"B","cat":"cpu_op","name":"aten::mm","pid":1,"tid":2,"ts":110},
    {"ph":"E","pid":1,"tid":3,"ts":111},
    {"ph":"E","pid":1,"tid":2,"ts":112},
    {"ph":"E","pid":1,"tid":2,"ts":1100},
    {"ph":"B","cat":"user_annotation","name":"forward","pid":1,"tid":2,"ts":100})";
  const std::string bare = "[" + absl::StrJoin(events, ",") + "]";
  const auto table = Read({{"dir/x_rank-0.json", bare}, {"b.json", File(Events(3), 1)}});
  ASSERT_TRUE(table.ok()) << table.status();
  const whatif::OperationRecord forward = First(*table, whatif::OperationType::kForwardCompute);
  EXPECT_EQ(forward.micro_batch, 4);
  EXPECT_FLOAT_EQ(forward.duration_s, 0.001F);
  EXPECT_THAT(table->notes, ElementsAre(HasSubstr("2 events that begin without an end or end without a "
                                                  "beginning (ph B, E) are left out, the first is "
                                                  "dir/x_rank-0.json: event 3")));
  EXPECT_THAT(Refused(Read({{"trace.json", bare}})), HasSubstr("trace.json: which rank is it?"));
}

TEST(Kineto, MarksOfTheGpuGoBeforeThoseOfTheCpu) {
  std::vector<std::string> events = Events(3);
  for (int step = 0; step < 3; ++step) {
    const int at = 10000 * step + 4000;  // the device runs behind
    events.push_back(
        Event(absl::StrCat("ProfilerStep#", 10 + step), std::to_string(at), "9000", "gpu_user_annotation"));
    events.push_back(Event("forward mb=0", std::to_string(at + 7000), "1500", "gpu_user_annotation"));
  }
  const auto table = ReadBoth(events);
  ASSERT_TRUE(table.ok()) << table.status();
  const whatif::OperationRecord forward = First(*table, whatif::OperationType::kForwardCompute);
  EXPECT_FLOAT_EQ(forward.duration_s, 0.0015F);
  EXPECT_EQ(forward.step, 10);  // by the CPU's steps it would be of step 11
  EXPECT_EQ(table->records.size(), 18);
  EXPECT_THAT(
      table->notes,
      ElementsAre(
          HasSubstr("different categories, gpu_user_annotation on 1 and user_annotation on 1"),
          HasSubstr("times of rule 2 (backward-compute, 'backward*'), rule 3 (optimizer, 'optimizer') "
                    "are those of the CPU, all others of the GPU")));
  events.erase(std::remove_if(events.begin(), events.end(),
                              [](const std::string& one) {
                                return one.find("gpu_user_annotation\",\"name\":\"Prof") != std::string::npos;
                              }),
               events.end());
  const auto without = ReadBoth(events);
  ASSERT_TRUE(without.ok()) << without.status();
  EXPECT_THAT(without->notes, testing::Contains(HasSubstr("steps only on the CPU")));
}

TEST(Kineto, RulesByArguments) {
  const std::string mapping =
      With(kMapping, R"({"type": "optimizer")", R"({"type": "params-all-gather", "name": "nccl*",
    "category": "kernel", "args": {"Process Group Description": "DATA_*"}, "join": "External id",
    "chunk": {"arg": "chunk"}, "step": {"arg": "step"}}, {"type": "optimizer")");
  std::vector<std::string> events = Events(1);
  const auto kernel = [](const char* group, int start, int id) {
    return Event("ncclAllGather", std::to_string(start), "100", "kernel",
                 absl::StrCat(R"(,"args":{"deep":[{}],"Process Group Description":")", group,
                              R"(","chunk":"1","step":10,)", R"("External id":)", id, "}"));
  };
  events.push_back(kernel("DATA_PARALLEL", 50, 7));
  events.push_back(kernel("DATA_PARALLEL", 250, 7));
  events.push_back(kernel("TENSOR_PARALLEL", 60, 8));
  const auto table = ReadBoth(events, mapping);
  ASSERT_TRUE(table.ok()) << table.status();
  const whatif::OperationRecord gather = First(*table, whatif::OperationType::kParamsAllGather);
  EXPECT_FLOAT_EQ(gather.duration_s, 0.0003F);  // both parts, and what is between
  EXPECT_EQ(gather.chunk, 1);
  EXPECT_EQ(table->records.size(), 3 + 1 + 9);
  events.push_back(With(kernel("DATA_PARALLEL", 50, 9), R"("step":10,)", ""));
  EXPECT_THAT(Refused(ReadBoth(events, mapping)),
              HasSubstr("a.json: event 7: rule 3 (params-all-gather, 'nccl*') takes '' for its step"));
}

TEST(Kineto, RanksThatStandForOthersAndTables) {
  const std::string two = absl::StrReplaceAll(kMapping, {{"\"tp\": 1, \"dp\": 2", "\"tp\": 2, \"dp\": 1"}});
  const auto table = Read({{"a.json", File(Events(2), 0)}, {"b.json", File(Events(2), 1)}}, two);
  ASSERT_TRUE(table.ok()) << table.status();
  EXPECT_EQ(table->records.size(), 6 + 2);
  EXPECT_THAT(table->notes, ElementsAre(HasSubstr("1 ranks are left out")));
  const std::string rows =
      With(kMapping, R"("order": "tp-dp-pp", "sizes": {"tp": 1, "dp": 2, "pp": 1})",
           R"("ranks": [{"rank": 1, "dp": 0, "stage": 1}, {"rank": 0, "dp": 0, "stage": 0}])");
  const auto by_table = Read({{"a.json", File(Events(2), 0)}, {"b.json", File(Events(2), 1)}}, rows);
  ASSERT_TRUE(by_table.ok()) << by_table.status();
  EXPECT_EQ(by_table->records[by_table->records.size() - 1].stage, 1);
  EXPECT_THAT(Refused(Read({{"a.json", File(Events(2), 0)}}, rows)),
              HasSubstr("no profile of 1 of the ranks"));
  whatif::JobShape shape;
  shape.dp_size = 4;
  EXPECT_THAT(Refused(Read({}, kMapping, {}, shape)), HasSubstr("the mapping says dp 2, the metadata say 4"));
}

TEST(Kineto, StepsChosenAndTheLimit) {
  TableOptions options;
  options.steps = {{11, 11}};
  const std::vector<std::pair<std::string, std::string>> files = {{"a.json", File(Events(3), 0)},
                                                                  {"b.json", File(Events(3), 1)}};
  EXPECT_EQ(Read(files, kMapping, options)->records.size(), 6 + 2);
  options.steps.clear();
  options.max_operations = 10;
  EXPECT_THAT(Refused(Read(files, kMapping, options)),
              HasSubstr("b.json: event 1: the job has more than 10"));
  options.max_operations = 4;
  EXPECT_THAT(Refused(Read(files, kMapping, options)), HasSubstr("a.json: event 6: more than 4 events"));
}

TEST(KinetoBadInput, Json) {
  const std::string good = File(Events(1), 0);
  const auto refused = [](const std::string& text) { return Refused(Read({{"a.json", text}})); };
  EXPECT_THAT(refused(""), HasSubstr("a.json: byte 0: the text ends where a '{' or a '['"));
  EXPECT_THAT(refused("rank,step"), HasSubstr("a.json: byte 0: this is no JSON"));
  EXPECT_THAT(refused("{}"), HasSubstr("a.json: it has no traceEvents"));
  EXPECT_THAT(refused(good + "{"), HasSubstr("more follows"));
  EXPECT_THAT(refused(With(good, "\"x\"}", "\"x\",\"traceEvents\":[]}")), HasSubstr("a second traceEvents"));
  EXPECT_THAT(refused(With(good, "\"rank\":0", "\"rank\":-1")), HasSubstr("rank is not a whole number"));
  const size_t in_event_1 = good.find("forward");
  EXPECT_THAT(
      refused(good.substr(0, in_event_1)),
      HasSubstr(absl::StrCat("a.json: event 1, byte ", in_event_1, ": the text ends within a string")));
  EXPECT_THAT(refused(With(good, "forward", "for\\qard")), HasSubstr("event 1, byte "));
  EXPECT_THAT(refused(With(good, "forward", "for\nard")), HasSubstr("a control character within a string"));
  EXPECT_THAT(refused(With(good, "\"ts\":100,", "\"ts\":01,")), HasSubstr("event 1, byte "));
  EXPECT_THAT(refused(With(good, "},\n{", "}\n{")), HasSubstr("here should be a ',' or a ']'"));
  EXPECT_THAT(refused(With(good, "\"tid\":2,", "\"tid\":2,\"a\":" + std::string(300, '[') + ",")),
              HasSubstr("more than 200 levels"));
  EXPECT_THAT(refused(With(good, "forward", std::string((1 << 20) + 1, 'f'))),
              HasSubstr("a string of more than"));
  for (size_t length = 0; length + 1 < good.size(); ++length) {  // wherever it is cut off
    EXPECT_THAT(refused(good.substr(0, length)), HasSubstr("cut off")) << length;
  }
}

TEST(KinetoBadInput, Events) {
  std::vector<std::string> events = Events(3);
  const auto with = [&events](size_t at, const std::string& event) {
    std::vector<std::string> changed = events;
    changed[at] = event;
    return ReadBoth(changed);
  };
  EXPECT_THAT(Refused(with(1, With(events[1], "\"ts\":100,", ""))),
              HasSubstr("a.json: event 1: it has no ts"));
  EXPECT_THAT(Refused(with(1, Event("forward", "\"soon\"", "1"))), HasSubstr("event 1: its ts is 'soon'"));
  EXPECT_THAT(Refused(with(1, Event("forward", "1e300", "1"))), HasSubstr("event 1: its ts is '1e300'"));
  EXPECT_THAT(Refused(with(1, Event("forward mb=x", "100", "1"))),
              HasSubstr("takes 'x' for its micro_batch"));
  EXPECT_THAT(Refused(with(0, Event("ProfilerStep#10", "0", "-50"))),
              HasSubstr("event 0: it marks a step, and its duration is negative"));
  for (const auto& [event, why] :
       {std::pair(Event("forward", "100", "-5"), "its duration is negative (-5 us)"),
        std::pair(Event("forward", "100", "null"), "its dur is 'null'"),
        std::pair(With(events[1], ",\"dur\":1000", ""), "it has no dur")}) {
    const auto table = with(1, event);
    ASSERT_TRUE(table.ok()) << table.status();
    const auto trace = whatif::BuildTrace(table->records, {});
    ASSERT_TRUE(trace.ok()) << trace.status();
    EXPECT_THAT(trace->steps, ElementsAre(11, 12));
    EXPECT_THAT(trace->left_out.at(10), HasSubstr(absl::StrCat("a.json: event 1: ", why)));
  }
  // What no rule takes may be as it likes.
  std::vector<std::string> more = events;
  more.push_back(
      R"x({"ph":"X","cat":"Trace","name":"PyTorch Profiler (0)","pid":"Spans","ts":"","dur":NaN})x");
  more.push_back(R"({"ph":"M","name":"process_name","args":{"name":"\ud83d\ude00 \ud83d x"}})");
  EXPECT_TRUE(ReadBoth(more).ok());
  more.push_back(Event("optimizer", "9500", "5"));
  more.push_back(events[1]);
  EXPECT_THAT(
      ReadBoth(more)->notes,
      ElementsAre(
          HasSubstr("1 operations that start within no step are left out, the first is a.json: event 14"),
          HasSubstr("1 operations are there twice with the same times, the first is a.json: event 15")));
}

TEST(KinetoBadInput, Job) {
  std::vector<std::string> events = Events(3);
  EXPECT_THAT(Refused(Read({{"a.json", File(events, 0)}, {"b.json", File(events, 0)}})),
              HasSubstr("b.json: it is of rank 0, and so is a.json"));
  EXPECT_THAT(Refused(Read({{"a.json", File(events, 0)}})),
              HasSubstr("no profile of 1 of the ranks that the layout wants: rank 1"));
  EXPECT_THAT(Refused(Read({{"a.json", File(events, 2)}})), HasSubstr("a.json: it is of rank 2, but"));
  EXPECT_THAT(Refused(Read({{"a.json", With(File(events, 0), "size\":2", "size\":16")}})),
              HasSubstr("a.json: its distributedInfo says world_size 16, the sizes of the layout make 2"));
  EXPECT_THAT(Refused(ReadBoth({events[1]})), HasSubstr("a.json: it has no step"));
  const std::string other = absl::StrReplaceAll(kMapping, {{"^forward", "^fwd"}});
  EXPECT_THAT(ReadBoth(events, other)->notes,
              ElementsAre(HasSubstr(
                  "rule 1 (forward-compute, '^fwd(?: mb=([^ ]+))?$') of the mapping matches no event")));
  const std::string none = absl::StrReplaceAll(
      other, {{"\"backward*\"", "\"bwd\""}, {"\"name\": \"optimizer\"", "\"name\": \"adam\""}});
  EXPECT_THAT(Refused(ReadBoth(events, none)),
              HasSubstr("no event in a step comes under any rule of the mapping: rule 1 (forward-compute"));
}

}  // namespace
}  // namespace c4::traces
