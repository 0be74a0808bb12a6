// Traces as they should not be: each is refused with its line, or what it spoils is left out and said.
#include <array>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <string>
#include <unistd.h>
#include <vector>
#include <zlib.h>
#include <zstd.h>

#include "analysis/whatif/analysis.h"
#include "traces/byte_source.h"
#include "traces/job_metadata.h"
#include "traces/table_reader.h"

namespace c4::traces {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using whatif::JobShape;
using whatif::Trace;

constexpr char kHeader[] = "dp_rank,stage,rank,step,optype,start_ts,duration,seq_id,mc,mb_id,gmc\n";

// Steps of two data-parallel ranks, one stage, two micro-batches.
std::string Lines(int steps, int dp_size = 2) {
  std::string text;
  const auto add = [&text](int dp, int step, const char* type, double start, double duration, int seq) {
    text += std::to_string(dp) + ",0," + std::to_string(dp) + "," + std::to_string(step) + "," + type + "," +
            std::to_string(start) + "," + std::to_string(duration) + "," + std::to_string(seq) + ",0," +
            std::to_string(seq) + ",0\n";
  };
  for (int step = 10; step < 10 + steps; ++step) {
    for (int dp = 0; dp < dp_size; ++dp) {
      add(dp, step, "params-all-gather", 0, 0.1, 0);
      add(dp, step, "forward-compute", 0.1, 0.2 + 0.1 * dp, 0);
      add(dp, step, "backward-compute", 0.3 + 0.1 * dp, 0.4, 0);
      add(dp, step, "forward-compute", 0.7 + 0.1 * dp, 0.2, 1);
      add(dp, step, "backward-compute", 0.9 + 0.1 * dp, 0.4, 1);
      add(dp, step, "grads-reduce-scatter", 1.3 + 0.1 * dp, 0.2 - 0.1 * dp, 0);
      add(dp, step, "optimizer", 1.5, 0.1, 0);
    }
  }
  return text;
}

absl::StatusOr<Trace> Build(const std::string& text, const JobShape& shape = {},
                            const TableOptions& options = {}) {
  absl::StatusOr<std::unique_ptr<ByteSource>> source = Unpacked(MemoryBytes(text));
  if (!source.ok()) return source.status();
  absl::StatusOr<TableContents> table = ReadTable(source->get(), options);
  if (!table.ok()) return table.status();
  absl::StatusOr<Trace> trace = BuildTrace(table->records, shape);
  if (trace.ok()) trace->notes.insert(trace->notes.begin(), table->notes.begin(), table->notes.end());
  return trace;
}

std::string Refused(const std::string& text, const JobShape& shape = {}) {
  const absl::StatusOr<Trace> trace = Build(text, shape);
  EXPECT_FALSE(trace.ok()) << text;
  return std::string(trace.status().message());
}

std::string With(std::string text, const std::string& what, const std::string& instead) {
  const size_t at = text.find(what);
  EXPECT_NE(at, std::string::npos) << what;
  return text.replace(at, what.size(), instead);
}

double SlowdownOf(const absl::StatusOr<Trace>& trace) {
  EXPECT_TRUE(trace.ok()) << trace.status();
  const absl::StatusOr<whatif::Job> job = whatif::MakeJob(*trace);
  EXPECT_TRUE(job.ok()) << job.status();
  const absl::StatusOr<whatif::Analysis> analysis = whatif::Analyse(*job, 1);
  EXPECT_TRUE(analysis.ok()) << analysis.status();
  return analysis->slowdown;
}

TEST(BadInput, TheGoodOneIsTaken) {
  const absl::StatusOr<Trace> trace = Build(kHeader + Lines(3));
  EXPECT_NEAR(SlowdownOf(trace), 1.6 / 1.55, 1e-6);
  EXPECT_TRUE(trace->notes.empty());
}

TEST(BadInput, EmptyAndNotATable) {
  EXPECT_THAT(Refused(""), HasSubstr("line 1: the file is empty"));
  EXPECT_THAT(Refused(kHeader), HasSubstr("no operations"));
  EXPECT_THAT(Refused("hello\nworld\n"), HasSubstr("no column dp_rank, stage, step"));
  EXPECT_THAT(Refused("{\"traceEvents\":[]}\n"), HasSubstr("line 1"));
  EXPECT_THAT(Refused("PAR1xxxx"), HasSubstr("Parquet"));
  EXPECT_THAT(Refused(std::string("step,") + kHeader + Lines(1)), HasSubstr("two columns for step"));
}

TEST(BadInput, WrongNumbersAreRefusedWithTheirLine) {
  EXPECT_THAT(Refused(kHeader + With(Lines(2), "0.200000", "soon")), HasSubstr("line 3: duration is 'soon'"));
  EXPECT_THAT(Refused(kHeader + With(Lines(2), "0,0,0,10,", "0,x,0,10,")), HasSubstr("line 2: stage is 'x'"));
  EXPECT_THAT(Refused(kHeader + With(Lines(2), "0,0,0,10,", "-1,0,0,10,")),
              HasSubstr("line 2: dp_rank is -1"));
  EXPECT_THAT(Refused(kHeader + With(Lines(2), "0,0,0,10,", "0,0,10,")),
              HasSubstr("line 2: it has 10 fields"));
  EXPECT_THAT(Refused(kHeader + With(Lines(2), "0,0,0,10,", "\"0,0,0,10,")),
              HasSubstr("line 2: a quotation mark"));
  EXPECT_THAT(Refused(kHeader + With(Lines(2), "0,0,0,10,", "0,0,0,,")), HasSubstr("line 2: step is ''"));
}

TEST(BadInput, QuotedNumbersAndFloatsForWholeNumbersAreNumbers) {
  EXPECT_NEAR(SlowdownOf(Build(kHeader + With(Lines(3), "0,0,0,10,", "\"0\",0.0,0,10,"))), 1.6 / 1.55, 1e-6);
}

// As spreadsheets write them. Names longer than what a string holds in itself.
TEST(BadInput, QuotedColumnNames) {
  std::string quoted = "\"";
  for (const char c : std::string(kHeader)) {
    quoted += c == ','    ? "\",\""
              : c == '\n' ? "\",\"a name of more than fifteen bytes\"\n"
                          : std::string(1, c);
  }
  std::string lines = Lines(3);
  for (size_t end = 0; (end = lines.find('\n', end)) != std::string::npos; end += 3) lines.insert(end, ",x");
  EXPECT_NEAR(SlowdownOf(Build(quoted + lines)), 1.6 / 1.55, 1e-6);
}

TEST(BadInput, ColumnsInAnyOrderAndSeparatedBySemicolons) {
  std::string turned = "optype;gmc;duration;step;rank;stage;dp_rank;start_ts;extra\r\n";
  std::string text = Lines(2);
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = text.find('\n', begin);
    std::vector<std::string> fields(1);
    for (const char c : text.substr(begin, end - begin)) {
      if (c == ',') {
        fields.emplace_back();
      } else {
        fields.back() += c;
      }
    }
    turned += fields[4] + ";" + fields[10] + ";" + fields[6] + ";" + fields[3] + ";" + fields[2] + ";" +
              fields[1] + ";" + fields[0] + ";" + fields[5] + ";x\r\n";
    begin = end + 1;
  }
  EXPECT_NEAR(SlowdownOf(Build(turned)), 1.6 / 1.55, 1e-6);  // sequence by start
}

TEST(BadInput, DamagedOperationsTakeTheirStepOut) {
  for (const char* duration : {"-0.200000", "nan", "", "inf"}) {
    const absl::StatusOr<Trace> trace = Build(kHeader + With(Lines(3), "0.200000", duration));
    ASSERT_TRUE(trace.ok()) << trace.status();
    EXPECT_THAT(trace->steps, ElementsAre(11, 12));
    EXPECT_THAT(trace->left_out.at(10), HasSubstr("line 3: "));
    EXPECT_FALSE(trace->notes.empty());
  }
  EXPECT_THAT(Refused(kHeader + With(Lines(1), "0.200000", "-1")),
              HasSubstr("no step of the trace is complete"));
}

TEST(BadInput, IncompleteStepsAreLeftOut) {
  const absl::StatusOr<Trace> lacking =
      Build(kHeader + With(Lines(3), "0,0,0,10,optimizer,1.500000,0.100000,0,0,0,0\n", ""));
  ASSERT_TRUE(lacking.ok()) << lacking.status();
  EXPECT_THAT(lacking->steps, ElementsAre(11, 12));
  EXPECT_THAT(lacking->left_out.at(10),
              HasSubstr("rank 0 (dp_rank 0, stage 0) has 0 optimizer operations, not 1"));
  // A worker that a step lacks altogether.
  const std::string theirs = Lines(1).substr(Lines(1, 1).size());
  const absl::StatusOr<Trace> missing = Build(kHeader + With(Lines(3), theirs, ""));
  ASSERT_TRUE(missing.ok()) << missing.status();
  EXPECT_THAT(missing->left_out.at(10), HasSubstr("rank 1 (dp_rank 1, stage 0) has no operations"));
}

TEST(BadInput, WarmUpOfTheBatchSizeIsLeftOut) {
  std::string text = Lines(4);
  for (const char* line : {"0,0,0,10,forward-compute,0.700000,0.200000,1,0,1,0\n",
                           "0,0,0,10,backward-compute,0.900000,0.400000,1,0,1,0\n",
                           "1,0,1,10,forward-compute,0.800000,0.200000,1,0,1,0\n",
                           "1,0,1,10,backward-compute,1.000000,0.400000,1,0,1,0\n"}) {
    text = With(text, line, "");
  }
  const absl::StatusOr<Trace> trace = Build(kHeader + text);
  ASSERT_TRUE(trace.ok()) << trace.status();
  EXPECT_THAT(trace->left_out.at(10), HasSubstr("warm-up of the batch size"));
}

TEST(BadInput, DurationsThatDoNotAddUpAreRefusedWithTheRecord) {
  for (const char* huge : {"3.5e38", "1e300", "9e33"}) {
    const std::string line = std::string("0,0,0,10,gc,0,") + huge + ",0,0,0,0\n";
    EXPECT_THAT(Refused(kHeader + Lines(2) + line), HasSubstr("line 30: gc of step 10")) << huge;
  }
}

TEST(BadInput, FoldersAndLinksToThemselvesAreNoFiles) {
  char name[] = "/tmp/c4-bad-input-XXXXXX";
  const std::string folder = mkdtemp(name);
  const std::string link = folder + "/link";
  ASSERT_EQ(symlink(link.c_str(), link.c_str()), 0);
  for (const std::string& path : {folder, link}) {
    const auto source = OpenBytes(path);
    EXPECT_TRUE(absl::IsNotFound(source.status())) << source.status();
    EXPECT_THAT(source.status().message(), HasSubstr(path));
  }
  unlink(link.c_str());
  rmdir(folder.c_str());
}

TEST(BadInput, UnknownTypesAreCountedAndLeftOut) {
  const absl::StatusOr<Trace> trace = Build(kHeader + Lines(2) + "0,0,0,10,coffee-break,0,9,0,0,0,0\n");
  ASSERT_TRUE(trace.ok()) << trace.status();
  EXPECT_THAT(trace->notes.front(), HasSubstr("1 operations of type 'coffee-break', the first in line 30"));
}

TEST(BadInput, CopiesAreTakenOnceAndContradictionsRefused) {
  const std::string copy = "0,0,0,10,optimizer,1.500000,0.100000,0,0,0,0\n";
  const absl::StatusOr<Trace> trace = Build(kHeader + Lines(2) + copy);
  EXPECT_NEAR(SlowdownOf(trace), 1.6 / 1.55, 1e-6);
  EXPECT_THAT(trace->notes.front(), HasSubstr("1 operations stand in the trace twice"));
  EXPECT_THAT(Refused(kHeader + Lines(2) + With(copy, "0.1", "0.2")),
              HasSubstr("lines 8 and 30 are both optimizer"));
}

TEST(BadInput, MetadataThatContradictTheTraceAreRefused) {
  JobShape shape;
  shape.dp_size = 4;
  EXPECT_THAT(Refused(kHeader + Lines(2), shape), HasSubstr("dp_size 4, the trace has 2"));
  shape = {};
  shape.pp_size = 2;
  EXPECT_THAT(Refused(kHeader + Lines(2), shape), HasSubstr("pp_size 2"));
  shape = {};
  shape.vpp_size = 2;
  EXPECT_THAT(Refused(kHeader + Lines(2), shape), HasSubstr("vpp_size 2"));
  shape = {};
  shape.tp_size = 2;
  shape.world_size = 8;
  EXPECT_THAT(Refused(kHeader + Lines(2), shape), HasSubstr("world_size 8"));
}

TEST(BadInput, RanksThatContradictThemselvesAreRefusedAndGroupsFolded) {
  EXPECT_THAT(
      Refused(kHeader + With(Lines(1, 1) + Lines(1, 2).substr(Lines(1, 1).size()), "1,0,1,10", "1,0,0,10")),
      HasSubstr("rank 0 stands for two different"));
  EXPECT_THAT(Refused(kHeader + With(Lines(1, 1), "0,0,0,10", "5,0,0,10")),
              HasSubstr("the trace has no operation of"));
}

TEST(BadInput, OneRankAndOneStepAreEnough) {
  EXPECT_NEAR(SlowdownOf(Build(kHeader + Lines(1, 1))), 1, 1e-9);
}

TEST(BadInput, PackedTracesAndTheirDamages) {
  const std::string text = kHeader + Lines(50);
  std::string gzip(compressBound(text.size()) + 64, '\0');
  z_stream stream{};
  ASSERT_EQ(deflateInit2(&stream, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(gzip.data());
  stream.avail_out = static_cast<uInt>(gzip.size());
  ASSERT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  gzip.resize(stream.total_out);
  deflateEnd(&stream);
  std::string zstd(ZSTD_compressBound(text.size()), '\0');
  zstd.resize(ZSTD_compress(zstd.data(), zstd.size(), text.data(), text.size(), 3));
  EXPECT_NEAR(SlowdownOf(Build(gzip)), 1.6 / 1.55, 1e-6);
  EXPECT_NEAR(SlowdownOf(Build(zstd)), 1.6 / 1.55, 1e-6);
  EXPECT_THAT(Refused(gzip.substr(0, gzip.size() / 2)), HasSubstr("gzip stream breaks off"));
  EXPECT_THAT(Refused(gzip.substr(0, gzip.size() - 4)), HasSubstr("gzip stream breaks off"));
  EXPECT_THAT(Refused(zstd.substr(0, zstd.size() / 2)), HasSubstr("zstd stream breaks off"));
  gzip[gzip.size() / 2] = static_cast<char>(gzip[gzip.size() / 2] ^ 0x55);
  EXPECT_FALSE(Build(gzip).ok());
}

TEST(BadInput, LongTracesAreRefusedAndStepsChosen) {
  TableOptions options;
  options.max_operations = 20;
  const absl::StatusOr<Trace> trace = Build(kHeader + Lines(3), {}, options);
  EXPECT_THAT(std::string(trace.status().message()),
              HasSubstr("line 22: the trace has more than 20 operations"));
  options.steps = {{11, 11}};
  EXPECT_THAT(Build(kHeader + Lines(3), {}, options)->steps, ElementsAre(11));
}

TEST(JobMetadata, YamlAndJson) {
  const absl::StatusOr<JobShape> yaml = ParseJobMetadata(
      "---\n# a job\ntrial_name: 'ST' # name\ndp_size: 2\nextra:\n  nested: 1\npp_size: 4\n");
  ASSERT_TRUE(yaml.ok()) << yaml.status();
  EXPECT_EQ(yaml->name, "ST");
  EXPECT_EQ(yaml->dp_size, 2);
  EXPECT_EQ(yaml->pp_size, 4);
  const absl::StatusOr<JobShape> json =
      ParseJobMetadata("{\"trial_name\":\"ST\",\"dp_size\":2,\"dsp_size\":3}");
  ASSERT_TRUE(json.ok()) << json.status();
  EXPECT_EQ(json->cp_size, 3);
  for (const char* bad :
       {"", "dp_size: many\n", "dp_size: 0\n", "dp_size: 2.5\n", "{\"dp_size\":", "just words\n"}) {
    EXPECT_FALSE(ParseJobMetadata(bad).ok()) << bad;
  }
  EXPECT_THAT(std::string(ParseJobMetadata("a: 1\ndp_size: x\n").status().message()),
              HasSubstr("line 2: dp_size"));
}

}  // namespace
}  // namespace c4::traces
