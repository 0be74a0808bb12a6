// Guilt proved by intervention on the emulated fabric, over real sockets, the kernel's own hash and both real
// masters. Each connection of a ring has one queue pair: where one is slow, nothing that is seen tells the
// links that it takes from the NICs and the ranks at its ends. C4D has C4P move it, and the slowness tells.
#include <algorithm>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <map>
#include <optional>
#include <set>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "fabric/emulator/command.h"
#include "fabric/emulator/fabric.h"
#include "tests/service/harness.h"

namespace c4::net_test {
namespace {

using service_test::Binary;
using service_test::CommandResult;
using service_test::Eventually;
using service_test::Json;
using service_test::RunC4;
using service_test::RunningJob;
using service_test::Seconds;
using ::testing::HasSubstr;

constexpr int kRanks = 3;

class InterventionTest : public testing::Test {
 protected:
  void SetUp() override {
    if (const absl::Status rights = fabric::CheckRights(); !rights.ok()) GTEST_SKIP() << rights;
    absl::StatusOr<fabric::Fabric> up = fabric::Fabric::Up(spec_);
    ASSERT_TRUE(up.ok()) << up.status();
    fabric_.emplace(*std::move(up));
    job_.emplace(kRanks, std::vector<std::string>{"--fabric", spec_.name, "--intervene"},
                 std::vector<std::string>{Binary("all_reduce_perf"), "-b", "1M", "-e", "1M", "-N", "0", "-n",
                                          "5", "--pause-ms", "20"},
                 std::vector<std::string>{"C4_QUEUE_PAIRS=1"});
    ASSERT_TRUE(job_->AwaitAtWork(20, Seconds(30)));
    ASSERT_TRUE(Eventually(Seconds(30), [&] { return Crossing().size() == kRanks; })) << Paths().dump(2);
    // The detectors learn what is usual.
    std::this_thread::sleep_for(Seconds(30));
  }
  void TearDown() override {
    job_.reset();
    fabric::Fabric::Down(spec_.name).IgnoreError();
  }

  Json Paths() const {
    const CommandResult result = RunC4({"paths", "--json", "--run-dir", job_->base_dir()});
    return result.exit_code == 0 ? Json::parse(result.output) : Json::object();
  }
  // Spine of each connection, by sender's and receiver's rank, as far as it is on a port that was given out.
  std::map<std::pair<int, int>, int> Crossing() const {
    std::map<std::pair<int, int>, int> found;
    for (const Json& connection : Paths().value("connections", Json::array())) {
      const Json& pair = connection["queue_pairs"][0];
      if (pair["use"] != "live" || pair["advised_port"] == 0) continue;
      for (const Json& link : pair["links"]) {
        const auto name = link.get<std::string>();
        const size_t at = name.find(">spine");
        if (at == std::string::npos) continue;
        found[{connection["from_rank"].get<int>(), connection["to_rank"].get<int>()}] =
            std::stoi(name.substr(at + 6));
      }
    }
    return found;
  }
  std::optional<Json> Settled() const {
    for (const Json& verdict : job_->Verdicts()) {
      if (verdict["confirmed_by"] == "moved") return verdict;
    }
    return std::nullopt;
  }
  void Inject(const std::string& kind, const std::string& target) {
    const CommandResult result = RunC4({"inject", kind, target, "--run-dir", job_->base_dir()});
    ASSERT_EQ(result.exit_code, 0) << result.errors;
  }
  std::string Incident(const Json& verdict) const {
    return RunC4({"incident", verdict["id"].get<std::string>(), "--run-dir", job_->base_dir()}).output;
  }
  bool NothingIsHeld() const {
    for (const Json& connection : Paths().value("connections", Json::array())) {
      if (connection["queue_pairs"][0]["moved"] != "") return false;
    }
    return true;
  }

  fabric::FabricSpec spec_{.name = absl::StrCat("iv", getpid() % 100000),
                           .leaves = kRanks,
                           .spines = 2,
                           .hosts_per_leaf = 1,
                           .rate_mbps = 200};
  std::optional<fabric::Fabric> fabric_;
  std::optional<RunningJob> job_;
};

TEST_F(InterventionTest, ASlowLinkIsToldFromNicsAndRanks) {
  const int spine = Crossing().at({0, 1});
  const std::string cable = absl::StrCat("leaf0-spine", spine);
  Inject("slow-link", cable);
  ASSERT_TRUE(Eventually(Seconds(150), [&] { return Settled().has_value(); })) << job_->Verdicts().dump(2);
  const Json verdict = *Settled();
  // Between two leaves and one spine no queue pair of a ring tells the two links apart.
  const Json& culprit = verdict["culprit"];
  EXPECT_TRUE(culprit["kind"] == "link" || culprit["kind"] == "ambiguous") << verdict.dump(2);
  EXPECT_THAT(culprit["links"].dump(), HasSubstr(absl::StrCat("leaf0>spine", spine))) << verdict.dump(2);
  EXPECT_EQ(culprit["nic"], "");
  EXPECT_TRUE(culprit["candidates"].empty()) << "no rank is suspected any more";
  EXPECT_GT(verdict["confidence"], 0.9);
  EXPECT_EQ(verdict["evidence"][0]["kind"], "moved");
  EXPECT_THAT(verdict["evidence"][0]["text"].get<std::string>(), HasSubstr("from spine"));
  const std::string page = Incident(verdict);
  printf("%s\n", page.c_str());
  EXPECT_THAT(page, HasSubstr("QUEUE PAIRS WERE MOVED"));
  const std::string paths = RunC4({"paths", "--run-dir", job_->base_dir()}).output;
  EXPECT_THAT(paths, HasSubstr("moved to settle verdicts"));
  EXPECT_TRUE(Eventually(Seconds(10), [&] { return NothingIsHeld(); })) << paths;
  const uint64_t before = job_->LeastFinished();
  EXPECT_TRUE(Eventually(Seconds(10), [&] { return job_->LeastFinished() > before + 10; }))
      << "the job goes on";
}

TEST_F(InterventionTest, ASlowNicIsToldFromItsPath) {
  Inject("slow-nic", "host0");
  ASSERT_TRUE(Eventually(Seconds(150), [&] { return Settled().has_value(); })) << job_->Verdicts().dump(2);
  const Json verdict = *Settled();
  const Json& culprit = verdict["culprit"];
  EXPECT_TRUE(culprit["links"].empty()) << "no link is suspected any more: " << verdict.dump(2);
  const bool named = culprit["kind"] == "nic" && culprit["host"] == "host0";
  const bool candidate = culprit["kind"] == "ambiguous" && !culprit["candidates"].empty() &&
                         std::find(culprit["candidates"].begin(), culprit["candidates"].end(), Json(0)) !=
                             culprit["candidates"].end();
  EXPECT_TRUE(named || candidate) << verdict.dump(2);
  EXPECT_TRUE(Eventually(Seconds(15), [&] { return NothingIsHeld(); })) << Paths().dump(2);
}

}  // namespace
}  // namespace c4::net_test
