// Mapping files: what is wrong with one is said with the place in it.
#include "traces/kineto_mapping.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <string>

#include "absl/strings/str_cat.h"

namespace c4::traces {
namespace {

using testing::HasSubstr;

constexpr char kLayout[] = R"("layout": {"order": "dp-pp", "sizes": {"dp": 2, "pp": 1}})";

std::string WithRule(const std::string& rule) {
  return absl::StrCat("{", kLayout, ", \"rules\": [{\"type\": \"gc\", \"name\": \"gc\"}, ", rule, "]}");
}

std::string WithLayout(const std::string& layout) {
  return absl::StrCat(R"({"rules": [{"type": "gc", "name": "gc"}], "layout": )", layout, "}");
}

std::string Refused(const std::string& text) {
  const absl::StatusOr<KinetoMapping> mapping = ParseKinetoMapping(text);
  EXPECT_FALSE(mapping.ok()) << text;
  return std::string(mapping.status().message());
}

TEST(KinetoMapping, DefaultsAndPatterns) {
  const absl::StatusOr<KinetoMapping> mapping =
      ParseKinetoMapping(WithRule(R"x({"type": "grads-sync", "name": "a.b*?)", "comment": "x"})x"));
  ASSERT_TRUE(mapping.ok()) << mapping.status();
  const KinetoRule& rule = mapping->rules[1];
  EXPECT_EQ(rule.type, whatif::OperationType::kGradsReduceScatter);
  EXPECT_THAT(rule.categories, testing::ElementsAre("launched", "gpu_user_annotation", "user_annotation"));
  EXPECT_TRUE(rule.name.Matches("a.b\xff.c)"));
  EXPECT_FALSE(rule.name.Matches("aXb.c)"));
  EXPECT_FALSE(rule.name.Matches("a.b)"));
  EXPECT_FALSE(rule.name.Matches("a.bc) "));
  std::vector<std::optional<std::string>> groups;
  EXPECT_TRUE(mapping->step_name.Matches("ProfilerStep#17", &groups));
  EXPECT_EQ(groups[1], "17");
}

TEST(KinetoMapping, WrongRules) {
  EXPECT_THAT(Refused("{\"rules\": ["), HasSubstr("byte 12: this is no JSON"));
  EXPECT_THAT(Refused("{\"rules\": 55e555}"), HasSubstr("a number: it is beyond what can be held"));
  EXPECT_THAT(Refused("[]"), HasSubstr("the mapping: this has to be an object"));
  EXPECT_THAT(Refused("{\"rule\": []}"),
              HasSubstr("there is no key 'rule'; the keys are rules, steps, rank"));
  EXPECT_THAT(Refused("{\"rules\": []}"), HasSubstr("rules: this has to be a list of 1"));
  EXPECT_THAT(Refused(WithRule("7")), HasSubstr("rules[1]: this has to be an object"));
  EXPECT_THAT(Refused(WithRule("{}")), HasSubstr("rules[1]: it has no type"));
  EXPECT_THAT(Refused(WithRule(R"({"type": "coffee"})")),
              HasSubstr("rules[1].type: there is no operation 'coffee'"));
  EXPECT_THAT(Refused(WithRule(R"({"type": "gc"})")), HasSubstr("rules[1]: either name (a glob) or regex"));
  EXPECT_THAT(Refused(WithRule(R"({"type": "gc", "name": 1})")),
              HasSubstr("rules[1].name: this has to be a text"));
  EXPECT_THAT(Refused(WithRule(R"({"type": "gc", "regex": "("})")),
              HasSubstr("rules[1].regex: '(' is no regular"));
  EXPECT_THAT(Refused(WithRule(R"({"type": "gc", "name": "a", "category": []})")),
              HasSubstr("rules[1].category: 1 to"));
  EXPECT_THAT(Refused(WithRule(R"({"type": "gc", "name": "a", "category": ["k", "k"]})")),
              HasSubstr("twice"));
  EXPECT_THAT(Refused(WithRule(R"({"type": "gc", "name": "a", "args": {"k": 1}})")),
              HasSubstr("rules[1].args.k: "));
  EXPECT_THAT(Refused(WithRule(R"({"type": "gc", "name": "a", "chunk": {"group": 1}})")),
              HasSubstr("no regex with a group"));
  EXPECT_THAT(Refused(WithRule(R"x({"type": "gc", "regex": "(a)", "chunk": {"group": 2}})x")),
              HasSubstr("rules[1].chunk.group: this has to be a whole number from 1 to 1"));
  EXPECT_THAT(Refused(WithRule(R"x({"type": "gc", "regex": "(a)", "chunk": {}})x")),
              HasSubstr("either group or arg"));
  EXPECT_THAT(Refused(WithRule(R"({"type": "gc", "name": "a", "optional": 1})")), HasSubstr("true or false"));
  EXPECT_THAT(Refused(WithRule(R"({"type": "gc", "name": "a", "categroy": "x"})")),
              HasSubstr("no key 'categroy'"));
}

TEST(KinetoMapping, WrongLayoutsStepsAndRanks) {
  EXPECT_THAT(Refused(R"({"rules": [{"type": "gc", "name": "gc"}]})"), HasSubstr("layout: it is missing"));
  EXPECT_THAT(Refused(WithLayout("{}")), HasSubstr("either order (with sizes) or ranks"));
  EXPECT_THAT(Refused(WithLayout(R"({"order": "dp-ep"})")),
              HasSubstr("layout.order: this has to be tp, cp, dp and pp"));
  EXPECT_THAT(Refused(WithLayout(R"({"order": "dp-dp"})")), HasSubstr("layout.order"));
  EXPECT_THAT(Refused(WithLayout(R"({"order": "dp", "sizes": {"dp": "2"}})")),
              HasSubstr("layout.sizes.dp: this has to be a whole"));
  EXPECT_THAT(Refused(WithLayout(R"({"order": "dp", "sizes": {"dp": 2, "tp": 8}})")),
              HasSubstr("does not say where"));
  EXPECT_THAT(Refused(WithLayout(R"({"ranks": [{"rank": 0, "dp": 0}]})")),
              HasSubstr("layout.ranks[0]: it has no stage"));
  EXPECT_THAT(Refused(WithLayout(
                  R"({"ranks": [{"rank": 0, "dp": 0, "stage": 0}, {"rank": 1, "dp": 0, "stage": 0}]})")),
              HasSubstr("ranks 0 and 1 are both dp 0, stage 0"));
  const std::string good = WithLayout(R"({"order": "dp"})");
  const auto with = [&good](const std::string& more) { return good.substr(0, good.size() - 1) + more + "}"; };
  EXPECT_THAT(Refused(with(R"(, "steps": {"regex": "step"})")), HasSubstr("steps.regex: its first group"));
  EXPECT_THAT(Refused(with(R"(, "rank": {"file_regex": "rank"})")),
              HasSubstr("rank.file_regex: its first group"));
  EXPECT_THAT(Refused(with(R"(, "rank": 3)")), HasSubstr("rank: this has to be an object"));
}

}  // namespace
}  // namespace c4::traces
