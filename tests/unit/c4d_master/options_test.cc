#include "c4d_master/options.h"

#include <cstdlib>
#include <fstream>
#include <map>

#include "absl/strings/numbers.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/service/temporary_directory.h"

namespace c4::c4d {
namespace {

using ::testing::HasSubstr;

const service::Program kProgram{.name = "c4d_master", .description = "", .environment_prefix = "C4D_"};

absl::Status Parse(
    const std::vector<std::string>& arguments, MasterOptions* options,
    const service::ReadEnvironment& environment = [](const char*) { return nullptr; }) {
  const auto parsed = service::ParseConfig(kProgram, MasterSettings(options), arguments, environment);
  return parsed.ok() ? CompleteOptions(options) : parsed.status();
}

TEST(OptionsTest, Defaults) {
  MasterOptions options;
  ASSERT_TRUE(Parse({"--job", "a/b"}, &options).ok());
  EXPECT_EQ(options.job, "a/b");
  EXPECT_EQ(options.listen, "127.0.0.1:15141");
  EXPECT_EQ(options.common.http_address, "127.0.0.1:15142");
  EXPECT_THAT(options.directory, HasSubstr("/masters"));
  const HandlerOptions handler = options.ForHandler(3);
  EXPECT_EQ(handler.master_epoch, 3U);
  EXPECT_EQ(handler.policy.detectors.hang.suspect_ns, 2 * kSecondNs);
  EXPECT_EQ(handler.policy.detectors.hang.suspect_max_ns, 5 * kSecondNs);
  EXPECT_EQ(handler.policy.detectors.hang.no_progress_ns, 10 * kSecondNs);
  EXPECT_EQ(handler.policy.detectors.hang.limit_ns, 120 * kSecondNs);
  EXPECT_EQ(handler.policy.agent_stale_ns, 3 * kSecondNs);
}

// Defaults of numbers as docs/configuration.md gives them for this program, by setting.
std::map<std::string, double> DefaultsOnThePage() {
  const char* source = std::getenv("C4_SOURCE_DIR");  // NOLINT(concurrency-mt-unsafe)
  std::ifstream page(std::string(source == nullptr ? "." : source) + "/docs/configuration.md");
  std::map<std::string, double> defaults;
  bool ours = false;
  for (std::string line; std::getline(page, line);) {
    if (line.starts_with("## ")) ours = line == "## c4d_master";
    if (!ours || !line.starts_with("| `")) continue;
    const std::vector<std::string> cells = absl::StrSplit(line, '|');
    const std::vector<std::string> names =
        absl::StrSplit(absl::StrReplaceAll(cells[1], {{"`", ""}, {" ", ""}}), ',');
    const std::vector<std::string> values = absl::StrSplit(cells[2], ',');
    for (size_t i = 0; i < names.size() && names.size() == values.size(); ++i) {
      double value = 0;
      if (absl::SimpleAtod(values[i], &value)) defaults[names[i]] = value;
    }
  }
  return defaults;
}

TEST(OptionsTest, ThePageGivesTheDefaults) {
  const std::map<std::string, double> page = DefaultsOnThePage();
  MasterOptions options;
  for (const service::Setting& setting : MasterSettings(&options)) {
    const auto* const real = std::get_if<double*>(&setting.field);
    const auto* const whole = std::get_if<int64_t*>(&setting.field);
    if (real == nullptr && whole == nullptr) continue;
    const double value = real != nullptr ? **real : static_cast<double>(**whole);
    ASSERT_TRUE(page.contains(setting.name)) << "docs/configuration.md does not give " << setting.name;
    EXPECT_EQ(page.at(setting.name), value) << setting.name;
  }
}

TEST(OptionsTest, TheStoreStandsBesideTheDirectory) {
  for (const std::string directory : {"/run/c4/masters", "/run/c4/masters/"}) {
    MasterOptions options;
    ASSERT_TRUE(Parse({"--job", "a/b", "--directory", directory}, &options).ok());
    EXPECT_EQ(options.store, "/run/c4/c4d-a_b.db");
  }
}

TEST(OptionsTest, TheEnvironmentCounts) {
  MasterOptions options;
  ASSERT_TRUE(Parse({"--job", "j"}, &options, [](const char* name) {
                return std::string(name) == "C4D_HANG_SUSPECT_S" ? "1.5" : nullptr;
              }).ok());
  EXPECT_EQ(options.ForHandler(1).policy.detectors.hang.suspect_ns, 1500 * 1'000'000);
}

TEST(OptionsTest, ContradictionsAreErrors) {
  MasterOptions options;
  EXPECT_THAT(std::string(Parse({"--job", "j", "--hang-suspect-s", "6"}, &options).message()),
              HasSubstr("--hang-suspect-max-s 5 is less than --hang-suspect-s 6"));
  MasterOptions others;
  EXPECT_THAT(std::string(Parse({"--job", "j", "--hang-limit-s", "4"}, &others).message()),
              HasSubstr("--hang-limit-s"));
  MasterOptions unknown;
  EXPECT_FALSE(Parse({"--job", "j", "--no-such-option", "4"}, &unknown).ok());
  MasterOptions nowhere;
  EXPECT_THAT(std::string(Parse({"--job", "j", "--c4p", "somewhere"}, &nowhere).message()),
              HasSubstr("--c4p"));
  for (const std::string c4p : {"10.0.0.1:15151", "off"}) {
    MasterOptions right;
    EXPECT_TRUE(Parse({"--job", "j", "--c4p", c4p}, &right).ok()) << c4p;
    EXPECT_EQ(right.c4p, c4p);
  }
  MasterOptions nameless;
  EXPECT_FALSE(Parse({}, &nameless).ok());
}

TEST(OptionsTest, ThePolicysFileStandsBelowWhatIsGiven) {
  const test::TemporaryDirectory directory;
  const std::string file =
      directory.Write("p", "hang-suspect-s = 3\nhang-limit-s = 200\nno-progress-s = 20\nlate-factor = 2\n");
  MasterOptions options;
  ASSERT_TRUE(Parse({"--job", "j", "--policy", file, "--hang-limit-s", "90"}, &options, [](const char* name) {
                return std::string(name) == "C4D_NO_PROGRESS_S" ? "10" : nullptr;
              }).ok());
  const Policy policy = options.ForHandler(1).policy;
  EXPECT_EQ(policy.detectors.hang.suspect_ns, 3 * kSecondNs);
  EXPECT_EQ(policy.detectors.hang.limit_ns, 90 * kSecondNs);
  EXPECT_EQ(policy.detectors.hang.no_progress_ns, 10 * kSecondNs) << "given, though it is the default";
  EXPECT_EQ(policy.detectors.slow.late_factor, 2);
  EXPECT_EQ(options.hang_suspect_s, 3) << "what is in force is what the log tells";
  // The same of what the file says later.
  EXPECT_EQ(options.GoOver(*ParsePolicy("hang-limit-s = 300\n", "p"))->detectors.hang.limit_ns,
            90 * kSecondNs);
  EXPECT_THAT(std::string(options.GoOver(*ParsePolicy("hang-suspect-max-s = 100\n", "p")).status().message()),
              HasSubstr("--hang-limit-s 90 is less than --hang-suspect-max-s 100"));
}

TEST(OptionsTest, AWrongPolicyIsAnError) {
  const test::TemporaryDirectory directory;
  const std::string file = directory.Write("p", "\nlate-factor = 0\n");
  MasterOptions options;
  EXPECT_THAT(std::string(Parse({"--job", "j", "--policy", file}, &options).message()),
              HasSubstr(file + ", line 2: late-factor is"));
  MasterOptions missing;
  EXPECT_THAT(std::string(Parse({"--job", "j", "--policy", "/no/such"}, &missing).message()),
              HasSubstr("/no/such"));
}

TEST(OptionsTest, SmonsSettings) {
  MasterOptions defaults;
  ASSERT_TRUE(Parse({"--job", "j"}, &defaults).ok());
  EXPECT_EQ(defaults.ForSmon().every_ns, 0);
  EXPECT_EQ(defaults.ForSmon().limits.steps, 20);

  MasterOptions options;
  ASSERT_TRUE(Parse({"--job", "j", "--smon-every-s", "600", "--smon-steps", "30", "--smon-at-most-s", "120",
                     "--smon-keep-reports", "7", "--smon-keep-days", "2"},
                    &options)
                  .ok());
  const SmonOptions smon = options.ForSmon();
  EXPECT_EQ(smon.job, "j");
  EXPECT_EQ(smon.every_ns, 600 * kSecondNs);
  EXPECT_EQ(smon.limits.steps, 30);
  EXPECT_EQ(smon.limits.at_most_ns, 120 * kSecondNs);
  EXPECT_EQ(smon.retention.reports, 7U);
  EXPECT_EQ(smon.retention.report_age_ns, 2 * 86'400 * kSecondNs);

  MasterOptions overlapping;
  EXPECT_THAT(std::string(Parse({"--job", "j", "--smon-every-s", "100"}, &overlapping).message()),
              HasSubstr("run into each other"));
}

TEST(OptionsTest, TheFileOfAlerts) {
  MasterOptions defaults;
  ASSERT_TRUE(Parse({"--job", "j"}, &defaults).ok());
  EXPECT_TRUE(defaults.alert_config.rules.empty());
  EXPECT_FALSE(defaults.ReadsFilesAgain());
  const test::TemporaryDirectory directory;
  const std::string rules = directory.Write(
      "alerts.json", R"({"rules": [{"name": "r", "verdict": {}, "webhook": "https://h.example/"}]})");
  MasterOptions options;
  ASSERT_TRUE(Parse({"--job", "j", "--alerts", rules}, &options).ok());
  ASSERT_EQ(options.alert_config.rules.size(), 1U);
  EXPECT_EQ(options.alert_config.rules[0].name, "r");
  EXPECT_TRUE(options.ReadsFilesAgain());
  MasterOptions missing;
  EXPECT_THAT(std::string(Parse({"--job", "j", "--alerts", "/no/such/file"}, &missing).message()),
              HasSubstr("/no/such/file"));
}

}  // namespace
}  // namespace c4::c4d
