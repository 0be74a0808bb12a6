// What `c4 whatif` is asked and what it prints: --fix, --keep and --steps, the JSON, the heat map, the
// timeline.
#include <cmath>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <map>
#include <regex>

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "analysis/whatif/causes.h"
#include "analysis/whatif/drawings.h"
#include "analysis/whatif/report.h"
#include "cli/whatif/whatif_input.h"
#include "cli/whatif/whatif_timeline.h"
#include "traces/byte_source.h"
#include "traces/table_reader.h"

namespace c4::cli {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using Json = nlohmann::json;

constexpr char kHeader[] = "dp_rank,stage,rank,step,optype,start_ts,duration,seq_id\n";

// Two data-parallel ranks of one stage, with ranks 0 and 5, in steps 10, 11 and 13; rank 5 computes longer.
// Gc is recorded by rank 0 alone.
std::string Table(double compute_s, double communication_s) {
  std::string text = kHeader;
  for (const int step : {10, 11, 13}) {
    for (const int dp : {0, 1}) {
      const double longer_s = compute_s * (1 + dp);
      const auto add = [&](const char* type, double start_s, double duration_s) {
        absl::StrAppend(&text, dp, ",0,", dp * 5, ",", step, ",", type, ",", start_s, ",", duration_s,
                        ",0\n");
      };
      add("params-all-gather", 0, communication_s);
      add("forward-compute", 1, longer_s);
      add("backward-compute", 3, longer_s);
      if (dp == 0) add("gc", 6, 0.5);
      add("grads-reduce-scatter", 7, communication_s);
      add("optimizer", 8, 0.25);
    }
  }
  return text;
}

whatif::Job JobOf(const std::string& text, const whatif::JobShape& shape = {}) {
  const auto source = traces::MemoryBytes(text);
  const auto table = traces::ReadTable(source.get(), {});
  EXPECT_TRUE(table.ok()) << table.status();
  auto trace = whatif::BuildTrace(table->records, shape);
  EXPECT_TRUE(trace.ok()) << trace.status();
  auto job = whatif::MakeJob(*std::move(trace));
  EXPECT_TRUE(job.ok()) << job.status();
  return *std::move(job);
}

whatif::Analysis AnalysisOf(const whatif::Job& job) {
  const auto analysis = whatif::Analyse(job, 1);
  EXPECT_TRUE(analysis.ok()) << analysis.status();
  return *analysis;
}

std::string TimelineOf(const whatif::Job& job) {
  char* text = nullptr;
  size_t size = 0;
  FILE* file = open_memstream(&text, &size);
  EXPECT_TRUE(WriteTimeline(job, file));
  fclose(file);
  std::string written(text, size);
  free(text);
  return written;
}

class Selections : public testing::Test {
 protected:
  absl::StatusOr<whatif::Selection> Parse(const std::string& text) {
    return ParseSelection(text, job_.trace);
  }
  std::string Refused(const std::string& text) {
    const auto selection = Parse(text);
    EXPECT_FALSE(selection.ok()) << text;
    return std::string(selection.status().message());
  }

  const whatif::Job job_ = JobOf(Table(1, 0.25));
};

TEST_F(Selections, OfTypes) {
  const auto forward = Parse("type=forward-compute");
  ASSERT_TRUE(forward.ok()) << forward.status();
  EXPECT_EQ(forward->types, whatif::TypeBit(whatif::OperationType::kForwardCompute));
  const auto both = Parse("type=forward-compute+backward-compute");
  EXPECT_EQ(both->types, Parse("type=compute")->types);
  EXPECT_EQ(both->types & Parse("type=communication")->types, 0U);
  // A group's name stands for both ends.
  EXPECT_EQ(Parse("type=forward-pp-comm")->types, Parse("type=forward-send+forward-recv")->types);
  EXPECT_THAT(both->steps, IsEmpty());
  EXPECT_THAT(both->dp_ranks, IsEmpty());
}

TEST_F(Selections, OfPlacesAndSteps) {
  const auto all = Parse("dp=0+1,stage=0,step=11+13");
  ASSERT_TRUE(all.ok()) << all.status();
  EXPECT_THAT(all->dp_ranks, ElementsAre(0, 1));
  EXPECT_THAT(all->stages, ElementsAre(0));
  EXPECT_THAT(all->steps, ElementsAre(1, 2));  // where they stand among those analysed
  EXPECT_THAT(Parse("step=11-99")->steps, ElementsAre(1, 2));
  const auto worker = Parse("worker=5");
  EXPECT_THAT(worker->dp_ranks, ElementsAre(1));
  EXPECT_THAT(worker->stages, ElementsAre(0));
}

TEST_F(Selections, AreRefusedWithTheWordAndWhatToDo) {
  EXPECT_THAT(Refused(""), HasSubstr("key=value"));
  EXPECT_THAT(Refused("stage"), HasSubstr("'stage': it is not of the form key=value"));
  EXPECT_THAT(Refused("dp=0,"), HasSubstr("key=value"));
  EXPECT_THAT(Refused("rank=5"), HasSubstr("the keys are type, worker, dp, stage and step, and"));
  EXPECT_THAT(Refused("type=lunch"), HasSubstr("'type=lunch': there is no such type"));
  EXPECT_THAT(Refused("type="), HasSubstr("there is no such type"));
  EXPECT_THAT(Refused("dp=2"), HasSubstr("no such data-parallel rank"));
  EXPECT_THAT(Refused("dp=-1"), HasSubstr("no such data-parallel rank"));
  EXPECT_THAT(Refused("stage=1"), HasSubstr("no such stage"));
  EXPECT_THAT(Refused("stage=0x0"), HasSubstr("not a whole number"));
  EXPECT_THAT(Refused("worker=1"), HasSubstr("no such rank"));
  EXPECT_THAT(Refused("worker=0+5"), HasSubstr("repeat the option"));
  EXPECT_THAT(Refused("step=12"), HasSubstr("none of these steps is analysed"));
  EXPECT_THAT(Refused("step=13-11"), HasSubstr("neither a step nor a range"));
  EXPECT_THAT(Refused("step=99999999999"), HasSubstr("neither a step nor a range"));
}

TEST_F(Selections, CausesStandBesideThem) {
  const auto fix =
      ParseFix({"cause=pauses+stage-imbalance", "worker=5", "cause=micro-batch-dealing"}, job_.trace);
  ASSERT_TRUE(fix.ok()) << fix.status();
  EXPECT_EQ(fix->causes, whatif::CauseBit(whatif::CauseKind::kPauses) |
                             whatif::CauseBit(whatif::CauseKind::kStageImbalance) |
                             whatif::kDealMicroBatches);
  ASSERT_EQ(fix->chosen.size(), 1U);
  EXPECT_THAT(fix->chosen[0].dp_ranks, ElementsAre(1));
  for (const char* word : {"cause=", "cause=lunch", "cause=pauses,dp=0"}) {
    EXPECT_THAT(std::string(ParseFix({word}, job_.trace).status().message()),
                HasSubstr("the causes are worker,"))
        << word;
  }
  EXPECT_THAT(Refused("cause=pauses"), HasSubstr("of --fix alone cause"));
}

TEST(Steps, AreNumbersAndRanges) {
  const auto steps = ParseSteps("12,20-23,-1");
  ASSERT_TRUE(steps.ok()) << steps.status();
  EXPECT_THAT(*steps, ElementsAre(testing::Pair(12, 12), testing::Pair(20, 23), testing::Pair(-1, -1)));
  for (const char* text : {"", "a", "1,", "3-1", "1-2-3", "1 "}) EXPECT_FALSE(ParseSteps(text).ok()) << text;
}

// Jobs whose ratios have nothing to divide by, and one that has everything.
std::vector<whatif::Job> OddJobs() {
  std::vector<whatif::Job> jobs;
  jobs.push_back(JobOf(Table(1, 0.25)));
  jobs.push_back(JobOf(Table(0, 0)));
  jobs.push_back(JobOf(Table(0, 0.25)));
  jobs.push_back(
      JobOf(absl::StrCat(kHeader, "0,0,0,1,forward-compute,0,1,0\n0,0,0,1,backward-compute,1,0,0\n")));
  jobs.push_back(JobOf(Table(1e-30, 1e-30)));
  jobs.push_back(JobOf(Table(1e30, 1e-30)));
  return jobs;
}

// No number that is none, and no name of one where a number belongs.
void ExpectNumbers(const std::string& text) {
  static const std::regex none(R"((^|[^a-z])-?(nan|inf|infinity)([^a-z]|$))", std::regex::icase);
  std::smatch found;
  EXPECT_FALSE(std::regex_search(text, found, none)) << found.str() << " in\n" << text;
}

TEST(Reports, AreJsonWithoutNumbersThatAreNone) {
  for (const whatif::Job& job : OddJobs()) {
    const whatif::Analysis analysis = AnalysisOf(job);
    const whatif::Causes causes = whatif::FindCauses(job, analysis, 1);
    whatif::Question question;
    question.words = {"type=compute"};
    question.answer = whatif::Ask(job, analysis, whatif::Scenario::Chosen::kFix, {whatif::Selection()}, 1);
    const whatif::Report report = {job, analysis, causes, {question}};
    const std::string text = whatif::ReportJson(report);
    const Json json = Json::parse(text, nullptr, false);
    ASSERT_FALSE(json.is_discarded()) << text;
    EXPECT_TRUE(json.at("slowdown").is_number()) << text;
    EXPECT_TRUE(json.at("waste").is_number()) << text;
    EXPECT_TRUE(json.at("discrepancy").is_number()) << text;
    for (const char* key : {"slowdown_by_type", "slowdown_by_worker", "slowdown_by_step"}) {
      for (const auto& [name, value] : json.at(key).items()) EXPECT_TRUE(value.is_number()) << key << text;
    }
    ExpectNumbers(text);
    ExpectNumbers(whatif::ReportText(report));
    ExpectNumbers(HeatmapSvg(whatif::MapOf(job, analysis)));
    ExpectNumbers(TimelineOf(job));
  }
}

TEST(Reports, CarryNamesThatAreNoUtf8) {
  whatif::JobShape shape;
  shape.name = "\xff\"<&\n";
  const whatif::Job job = JobOf(Table(1, 0.25), shape);
  const whatif::Analysis analysis = AnalysisOf(job);
  const std::string text = whatif::ReportJson({job, analysis, {}, {}});
  EXPECT_FALSE(Json::parse(text, nullptr, false).is_discarded()) << text;
}

// Every element that begins ends, in order, and what stands in it is escaped.
void ExpectWellFormed(const std::string& svg) {
  static const std::regex tag(R"(<(/?)([a-z]+)((?: [a-z\-]+="[^"<&]*")*)(/?)>)");
  std::vector<std::string> open;
  size_t seen = 0;
  for (std::sregex_iterator it(svg.begin(), svg.end(), tag), end; it != end; ++it, ++seen) {
    if (it->str(1).empty() && it->str(4).empty()) open.push_back(it->str(2));
    if (it->str(1).empty()) continue;
    ASSERT_FALSE(open.empty()) << it->str();
    EXPECT_EQ(open.back(), it->str(2));
    open.pop_back();
  }
  EXPECT_THAT(open, IsEmpty());
  EXPECT_EQ(seen, static_cast<size_t>(std::count(svg.begin(), svg.end(), '<'))) << svg;
}

TEST(Heatmaps, HaveACellForEachWorkerTheSlowOneDarker) {
  whatif::JobShape shape;
  shape.name = "a<b & c";
  const whatif::Job job = JobOf(Table(1, 0.25), shape);
  const std::string svg = HeatmapSvg(whatif::MapOf(job, AnalysisOf(job)));
  ExpectWellFormed(svg);
  EXPECT_THAT(svg, HasSubstr("a&lt;b &amp; c"));
  static const std::regex cell("fill=\"#([0-9a-f]{6})\"[^>]*><title>rank ([0-9]+) ");
  std::map<std::string, std::string> color_of;
  for (std::sregex_iterator it(svg.begin(), svg.end(), cell), end; it != end; ++it) {
    color_of[it->str(2)] = it->str(1);
  }
  ASSERT_EQ(color_of.size(), 2U);
  EXPECT_EQ(color_of.at("0"), "ffffff");
  EXPECT_LT(color_of.at("5").substr(2, 2), "ff");
}

TEST(Timelines, ShowWhatWasRecordedAboveTheIdeal) {
  const whatif::Job job = JobOf(Table(1, 0.25));
  const std::string text = TimelineOf(job);
  const Json json = Json::parse(text, nullptr, false);
  ASSERT_FALSE(json.is_discarded()) << text;
  std::map<std::string, int> process_of;
  std::map<int, int> order_of;
  std::map<int, double> end_us;  // of the first step, by process
  std::map<int, int> events;
  for (const Json& event : json.at("traceEvents")) {
    const int process = event.at("pid").get<int>();
    if (event.at("name") == "process_name") process_of[event.at("args").at("name")] = process;
    if (event.at("name") == "process_sort_index")
      order_of[process] = event.at("args").at("sort_index").get<int>();
    if (event.at("ph") != "X") continue;
    ++events[process];
    EXPECT_GE(event.at("ts").get<double>(), 0);
    EXPECT_GE(event.at("dur").get<double>(), 0);
    if (event.at("args").at("step") != 10) continue;
    end_us[process] = std::max(end_us[process], event.at("ts").get<double>() + event.at("dur").get<double>());
  }
  ASSERT_TRUE(process_of.contains("recorded") && process_of.contains("ideal")) << text;
  const int recorded = process_of.at("recorded");
  const int ideal = process_of.at("ideal");
  EXPECT_LT(order_of.at(recorded), order_of.at(ideal));
  EXPECT_EQ(events[recorded], 3 * (2 * 5 + 1));
  EXPECT_LT(end_us.at(ideal), end_us.at(recorded));
}

}  // namespace
}  // namespace c4::cli
