#include "service/config.h"

#include <gmock/gmock.h>
#include <map>

#include "tests/unit/service/temporary_directory.h"

namespace c4::service {
namespace {

using testing::HasSubstr;
using testing::Not;

struct Options {
  std::string run_dir = "/dev/shm/c4";
  std::string job;
  std::string level = "coarse";
  int64_t interval_ms = 100;
  double limit_s = 2.5;
  bool keep = false;
};

class ConfigTest : public testing::Test {
 protected:
  absl::StatusOr<std::optional<std::string>> Parse(const std::vector<std::string>& arguments) {
    const Program program{.name = "tool", .description = "a tool", .environment_prefix = "TOOL_"};
    return ParseConfig(program, Settings(), arguments, [this](const char* name) -> const char* {
      const auto found = environment_.find(name);
      return found == environment_.end() ? nullptr : found->second.c_str();
    });
  }

  std::vector<Setting> Settings() {
    return {
        {.name = "run-dir", .field = &options_.run_dir, .help = "where", .also_environment = "C4_RUN_DIR"},
        {.name = "job", .field = &options_.job, .help = "the job", .required = job_required_},
        {.name = "record-level",
         .field = &options_.level,
         .help = "level",
         .choices = {"off", "coarse", "fine"}},
        {.name = "scan-interval-ms",
         .field = &options_.interval_ms,
         .help = "interval",
         .min = 10,
         .max = 60000},
        {.name = "limit-s", .field = &options_.limit_s, .help = "limit", .min = 0.1, .given = &limit_given_},
        {.name = "keep", .field = &options_.keep, .help = "keep it"},
    };
  }

  std::string Error(const std::vector<std::string>& arguments) {
    const auto result = Parse(arguments);
    EXPECT_FALSE(result.ok());
    return std::string(result.status().message());
  }

  test::TemporaryDirectory directory_;
  std::map<std::string, std::string> environment_;
  Options options_;
  bool job_required_ = false;
  bool limit_given_ = false;
};

TEST_F(ConfigTest, DefaultsStayWhereNothingIsSaid) {
  const auto result = Parse({});
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_FALSE(result->has_value());
  EXPECT_EQ(options_.run_dir, "/dev/shm/c4");
  EXPECT_EQ(options_.interval_ms, 100);
}

TEST_F(ConfigTest, FlagOverEnvironmentOverFileOverDefault) {
  const std::string file = directory_.Write("tool.toml",
                                            "# a comment\nscan-interval-ms = 300\nlimit-s = 7.5\n"
                                            "record-level = \"fine\"\nkeep = true\n");
  environment_ = {{"TOOL_SCAN_INTERVAL_MS", "200"}, {"TOOL_LIMIT_S", "5"}, {"TOOL_JOB", ""}};
  ASSERT_TRUE(Parse({"--config", file, "--limit-s=3"}).ok());
  EXPECT_EQ(options_.limit_s, 3);        // flag
  EXPECT_EQ(options_.interval_ms, 200);  // environment
  EXPECT_EQ(options_.level, "fine");     // file
  EXPECT_TRUE(options_.keep);            // file
  EXPECT_EQ(options_.job, "");           // an empty variable counts as not set
  EXPECT_EQ(options_.run_dir, "/dev/shm/c4");
}

// Also where what is given is the default.
TEST_F(ConfigTest, TellsWhatWasGiven) {
  ASSERT_TRUE(Parse({"--scan-interval-ms", "20"}).ok());
  EXPECT_FALSE(limit_given_);
  ASSERT_TRUE(Parse({"--limit-s", "2.5"}).ok());
  EXPECT_TRUE(limit_given_);
  limit_given_ = false;
  environment_["TOOL_LIMIT_S"] = "2.5";
  ASSERT_TRUE(Parse({}).ok());
  EXPECT_TRUE(limit_given_);
}

TEST_F(ConfigTest, TheOtherVariableCountsLessThanTheProgramsOwn) {
  environment_ = {{"C4_RUN_DIR", "/shared"}};
  ASSERT_TRUE(Parse({}).ok());
  EXPECT_EQ(options_.run_dir, "/shared");
  environment_["TOOL_RUN_DIR"] = "/own";
  ASSERT_TRUE(Parse({}).ok());
  EXPECT_EQ(options_.run_dir, "/own");
}

TEST_F(ConfigTest, TheFileMayComeFromTheEnvironment) {
  environment_ = {{"TOOL_CONFIG", directory_.Write("tool.ini", "job = from-file\n")}};
  ASSERT_TRUE(Parse({}).ok());
  EXPECT_EQ(options_.job, "from-file");
}

TEST_F(ConfigTest, TheLastOfARepeatedFlagCounts) {
  ASSERT_TRUE(Parse({"--job", "a", "--job", "b", "--keep"}).ok());
  EXPECT_EQ(options_.job, "b");
  EXPECT_TRUE(options_.keep);
}

TEST_F(ConfigTest, UnknownFlagIsAnError) {
  EXPECT_THAT(Error({"--scan-intervall-ms", "3"}), HasSubstr("--scan-intervall-ms"));
  EXPECT_THAT(Error({"stray"}), HasSubstr("stray"));
}

TEST_F(ConfigTest, UnknownKeyIsAnErrorThatNamesTheFile) {
  const std::string file = directory_.Write("tool.toml", "scan-interval = 5\n");
  EXPECT_THAT(Error({"--config", file}), AllOf(HasSubstr("\"scan-interval\""), HasSubstr(file)));
  const std::string section = directory_.Write("section.toml", "[tool]\njob = x\n");
  EXPECT_THAT(Error({"--config", section}), HasSubstr("unknown key"));
  const std::string twice = directory_.Write("twice.toml", "job = x\njob = y\n");
  EXPECT_FALSE(Parse({"--config", twice}).ok());
}

TEST_F(ConfigTest, MissingFileIsAnErrorThatNamesIt) {
  EXPECT_THAT(Error({"--config", "/nowhere/tool.toml"}), HasSubstr("/nowhere/tool.toml"));
}

TEST_F(ConfigTest, ValuesOutOfRangeNameTheirSource) {
  EXPECT_THAT(Error({"--scan-interval-ms", "5"}),
              AllOf(HasSubstr("--scan-interval-ms"), HasSubstr("10 to 60000")));
  EXPECT_THAT(Error({"--scan-interval-ms", "12x"}), HasSubstr("whole number"));
  EXPECT_THAT(Error({"--scan-interval-ms", "99999999999999999999"}), HasSubstr("whole number"));
  EXPECT_THAT(Error({"--limit-s", "nan"}), HasSubstr("at least 0.1"));
  EXPECT_THAT(Error({"--record-level", "loud"}), HasSubstr("off|coarse|fine"));
  environment_ = {{"TOOL_LIMIT_S", "0"}};
  EXPECT_THAT(Error({}), HasSubstr("TOOL_LIMIT_S"));
  environment_.clear();
  const std::string file = directory_.Write("tool.toml", "keep = perhaps\n");
  EXPECT_THAT(Error({"--config", file}), AllOf(HasSubstr("keep in"), HasSubstr("true or false")));
}

TEST_F(ConfigTest, RequiredMeansRequired) {
  job_required_ = true;
  EXPECT_THAT(Error({}), AllOf(HasSubstr("--job"), HasSubstr("TOOL_JOB")));
  EXPECT_TRUE(Parse({"--job", "x"}).ok());
}

TEST_F(ConfigTest, HelpAndVersionAreTextsToPrint) {
  const auto help = Parse({"--help"});
  ASSERT_TRUE(help.ok() && help->has_value());
  EXPECT_THAT(**help, AllOf(HasSubstr("--scan-interval-ms"), HasSubstr("TOOL_SCAN_INTERVAL_MS"),
                            HasSubstr("10 to 60000"), HasSubstr("default 100"), HasSubstr("C4_RUN_DIR")));
  const auto version = Parse({"--version"});
  ASSERT_TRUE(version.ok() && version->has_value());
  EXPECT_THAT(**version, AllOf(HasSubstr("tool "), Not(HasSubstr("--"))));
}

TEST_F(ConfigTest, CommonSettingsReachTheirFields) {
  CommonOptions common;
  std::vector<Setting> settings;
  AppendCommonSettings(&common, &settings);
  const Program program{.name = "tool", .description = "", .environment_prefix = "TOOL_"};
  const auto none = [](const char*) -> const char* { return nullptr; };
  ASSERT_TRUE(
      ParseConfig(program, settings,
                  {"--log-level=debug", "--log-format=json", "--log-file=l", "--tls-ca=a", "--tls-cert=c",
                   "--tls-key=k", "--token-file=t", "--key-file=f", "--http-address=127.0.0.1:0"},
                  none)
          .ok());
  EXPECT_EQ(common.log.level + common.log.format + common.log.file, "debugjsonl");
  EXPECT_EQ(common.security.tls.ca + common.security.tls.cert + common.security.tls.key +
                common.security.token_file + common.security.key_file,
            "acktf");
  EXPECT_EQ(common.http_address, "127.0.0.1:0");
  EXPECT_THAT(DescribeConfig(settings), AllOf(HasSubstr("log-level=debug"), HasSubstr("token-file=t")));
}

}  // namespace
}  // namespace c4::service
