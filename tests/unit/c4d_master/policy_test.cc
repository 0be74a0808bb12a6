// The table of thresholds holds together, files are read or refused with a sentence that helps, and equal
// policies have one version.
#include "c4d_master/policy.h"

#include <set>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace c4::c4d {
namespace {

using ::testing::HasSubstr;

std::string Refusal(std::string_view text) {
  const absl::StatusOr<Policy> policy = ParsePolicy(text, "p.policy");
  return policy.ok() ? "it was taken" : std::string(policy.status().message());
}

TEST(PolicyTableTest, DefaultsLieInTheirRanges) {
  for (const PolicyEntry& entry : PolicyTable()) {
    const double value = PolicyValue(entry, Policy());
    EXPECT_GE(value, entry.low) << entry.name;
    EXPECT_LE(value, entry.high) << entry.name;
    EXPECT_LT(entry.low, entry.high) << entry.name;
  }
  EXPECT_TRUE(CheckPolicy(Policy()).ok()) << CheckPolicy(Policy());
}

TEST(PolicyTableTest, EachLineSaysWhatItIs) {
  std::set<std::string> names;
  for (const PolicyEntry& entry : PolicyTable()) {
    EXPECT_TRUE(names.insert(entry.name).second) << entry.name << " stands there twice";
    EXPECT_EQ(FindPolicyEntry(entry.name), &entry);
    EXPECT_NE(std::string(entry.meaning), "") << entry.name;
    EXPECT_NE(std::string(entry.tuned_on), "") << entry.name;
    Policy policy;
    const bool time = std::holds_alternative<int64_t*>(entry.field(policy));
    EXPECT_EQ(time, std::string(entry.unit) == "s") << entry.name;
    EXPECT_EQ(time, std::string(entry.name).ends_with("-s")) << entry.name;
    const std::string unit = entry.unit;
    EXPECT_TRUE(unit != "share" || (entry.low >= 0 && entry.high <= 1)) << entry.name;
  }
  EXPECT_EQ(FindPolicyEntry("hang-suspect"), nullptr);
}

// A threshold that is added to a detector and not to the table is found here: each line has a field of its
// own, and together they are all that a policy consists of.
TEST(PolicyTableTest, HoldsEveryThreshold) {
  Policy policy;
  std::set<const void*> fields;
  for (const PolicyEntry& entry : PolicyTable()) {
    const PolicyField field = entry.field(policy);
    const void* at = std::visit([](const auto* pointer) -> const void* { return pointer; }, field);
    EXPECT_TRUE(fields.insert(at).second) << entry.name << " is another line's field";
  }
  EXPECT_EQ(fields.size() * sizeof(double), sizeof(Policy));
}

TEST(PolicyTableTest, OrdersNameLinesOfOneUnit) {
  for (const PolicyOrder& order : PolicyOrders()) {
    const PolicyEntry* less = FindPolicyEntry(order.less);
    const PolicyEntry* more = FindPolicyEntry(order.more);
    ASSERT_NE(less, nullptr) << order.less;
    ASSERT_NE(more, nullptr) << order.more;
    EXPECT_STREQ(less->unit, more->unit);
  }
}

TEST(ParsePolicyTest, TakesWhatIsGivenAndLeavesTheRest) {
  const absl::StatusOr<Policy> policy = ParsePolicy(
      "# of this cluster\n"
      "hang-suspect-s = 3.5   # checkpoints\r\n"
      "\n"
      "  late-factor=2.5\n"
      "slow-persist = 4",
      "p.policy");
  ASSERT_TRUE(policy.ok()) << policy.status();
  EXPECT_EQ(policy->detectors.hang.suspect_ns, 3'500'000'000);
  EXPECT_EQ(policy->detectors.slow.late_factor, 2.5);
  EXPECT_EQ(policy->detectors.slow.persist, 4U);
  EXPECT_EQ(policy->detectors.hang.suspect_max_ns, 5 * kSecondNs);
}

TEST(ParsePolicyTest, SaysWhichLineIsWrongAndWhatToDo) {
  EXPECT_EQ(Refusal("\nhang-suspekt-s = 3\n"),
            "p.policy, line 2: there is no threshold \"hang-suspekt-s\"; `c4 policy` lists what there is");
  EXPECT_EQ(Refusal("slow-nic-share = 1.5"),
            "p.policy, line 1: slow-nic-share is \"1.5\": give a number from 0 to 1 (share)");
  EXPECT_EQ(Refusal("slow-persist = 2.5"),
            "p.policy, line 1: slow-persist is \"2.5\": give a whole number from 0 to 6 (slices)");
  EXPECT_THAT(Refusal("hang-limit-s = soon"), HasSubstr("is \"soon\": give a number from 1 to 86400 (s)"));
  EXPECT_THAT(Refusal("hang-limit-s = nan"), HasSubstr("give a number"));
  EXPECT_THAT(Refusal("hang-limit-s = -inf"), HasSubstr("give a number"));
  EXPECT_THAT(Refusal("hang-limit-s ="), HasSubstr("give a number"));
  EXPECT_THAT(Refusal("slow-persist = 1e300"), HasSubstr("give a whole number"));
  EXPECT_THAT(Refusal("hang-limit-s"), HasSubstr("line 1: it is no \"key = value\""));
  EXPECT_THAT(Refusal("= 3"), HasSubstr("a name is missing before the ="));
  EXPECT_THAT(Refusal("[hang]\n"), HasSubstr("line 1: it is no"));
  EXPECT_THAT(Refusal("\xff = 3"), HasSubstr("there is no threshold \"?"));
  EXPECT_EQ(Refusal("late-few = 0.5\nlate-few = 0.5\n"),
            "p.policy, line 2: late-few stands in line 1 already");
}

TEST(ParsePolicyTest, SaysWhatContradictsWhat) {
  EXPECT_EQ(Refusal("late-factor = 3\nhang-suspect-s = 6\n"),
            "p.policy, line 2: hang-suspect-max-s 5 is less than hang-suspect-s 6; change one of them");
  EXPECT_THAT(Refusal("hang-limit-s = 9\nhang-suspect-max-s = 10\n"), HasSubstr("line 2: hang-limit-s 9"));
  for (const PolicyOrder& order : PolicyOrders()) {
    Policy policy;
    const PolicyEntry& less = *FindPolicyEntry(order.less);
    const PolicyEntry& more = *FindPolicyEntry(order.more);
    ASSERT_TRUE(SetPolicyValue(more, more.low, &policy).ok());
    ASSERT_TRUE(SetPolicyValue(less, less.high, &policy).ok());
    EXPECT_FALSE(CheckPolicy(policy).ok()) << order.less;
  }
}

TEST(LoadPolicyTest, SaysWhichFileIsMissing) {
  const absl::StatusOr<Policy> policy = LoadPolicy("/nowhere/p.policy");
  ASSERT_FALSE(policy.ok());
  EXPECT_THAT(std::string(policy.status().message()), HasSubstr("/nowhere/p.policy"));
}

TEST(PolicyVersionTest, IsThatOfTheValues) {
  const std::string defaults = PolicyVersion(Policy());
  EXPECT_EQ(defaults.size(), 8U);
  EXPECT_EQ(PolicyVersion(*ParsePolicy("hang-suspect-s = 2.000\n# as it was\n", "p")), defaults);
  std::set<std::string> versions = {defaults};
  for (const PolicyEntry& entry : PolicyTable()) {
    Policy policy;
    const double value = PolicyValue(entry, policy);
    ASSERT_TRUE(SetPolicyValue(entry, value == entry.low ? entry.high : entry.low, &policy).ok());
    EXPECT_TRUE(versions.insert(PolicyVersion(policy)).second) << entry.name << " does not count";
  }
}

// What is printed is read back as the same.
TEST(PolicyVersionTest, SurvivesBeingWrittenAndRead) {
  Policy policy;
  std::string text;
  for (const PolicyEntry& entry : PolicyTable()) {
    text += std::string(entry.name) + " = " + PolicyValueText(entry, policy) + "\n";
  }
  const absl::StatusOr<Policy> again = ParsePolicy(text, "p");
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(PolicyVersion(*again), PolicyVersion(policy));
}

}  // namespace
}  // namespace c4::c4d
