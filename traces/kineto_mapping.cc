#include "traces/kineto_mapping.h"

#include <algorithm>
#include <initializer_list>
#include <re2/re2.h>

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "analysis/whatif/trace.h"

namespace c4::traces {
namespace {

using nlohmann::json;

constexpr size_t kMostRules = 256;
constexpr size_t kLongestPattern = 2000;
constexpr int kMostRanks = 1 << 24;
constexpr char kStepName[] = "^ProfilerStep#([0-9]+)$";

absl::Status Wrong(const std::string& where, const std::string& what) {
  return absl::InvalidArgumentError(absl::StrCat(where, ": ", what));
}

// The keys that an object may have; says which others there are.
absl::Status CheckKeys(const json& object, const std::string& where,
                       std::initializer_list<const char*> known) {
  if (!object.is_object()) return Wrong(where, "this has to be an object");
  for (const auto& [key, value] : object.items()) {
    const bool is_known = key == "comment" || std::any_of(known.begin(), known.end(),
                                                          [&k = key](const char* one) { return k == one; });
    if (!is_known) {
      return Wrong(where, absl::StrCat("there is no key '", key, "'; the keys are ",
                                       absl::StrJoin(known, ", "), " and comment"));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> Text(const json& value, const std::string& where) {
  if (!value.is_string() || value.get_ref<const std::string&>().empty()) {
    return Wrong(where, "this has to be a text that is not empty");
  }
  return value.get<std::string>();
}

absl::StatusOr<int> Whole(const json& value, const std::string& where, int min, int max) {
  if (!value.is_number_integer() || value < min || value > max) {
    return Wrong(where, absl::StrCat("this has to be a whole number from ", min, " to ", max));
  }
  return value.get<int>();
}

absl::StatusOr<TextPattern> Placed(absl::StatusOr<TextPattern> pattern, const std::string& where) {
  if (!pattern.ok()) return Wrong(where, std::string(pattern.status().message()));
  return pattern;
}

absl::StatusOr<TextPattern> Glob(const json& value, const std::string& where) {
  const absl::StatusOr<std::string> text = Text(value, where);
  if (!text.ok()) return text.status();
  return Placed(TextPattern::Glob(*text), where);
}

absl::StatusOr<TextPattern> Regex(const json& value, const std::string& where) {
  const absl::StatusOr<std::string> text = Text(value, where);
  if (!text.ok()) return text.status();
  return Placed(TextPattern::Regex(*text), where);
}

// One or several.
absl::StatusOr<std::vector<std::string>> Categories(const json& object, const std::string& where,
                                                    std::vector<std::string> otherwise) {
  const auto found = object.find("category");
  if (found == object.end()) return otherwise;
  const json list = found->is_array() ? *found : json::array({*found});
  std::vector<std::string> categories;
  for (const json& one : list) {
    absl::StatusOr<std::string> text = Text(one, where + ".category");
    if (!text.ok()) return text.status();
    if (std::find(categories.begin(), categories.end(), *text) != categories.end()) {
      return Wrong(where + ".category", absl::StrCat("'", *text, "' stands there twice"));
    }
    categories.push_back(*std::move(text));
  }
  constexpr size_t kMost = 16;
  if (categories.empty() || categories.size() > kMost) {
    return Wrong(where + ".category", absl::StrCat("1 to ", kMost, " categories belong here"));
  }
  return categories;
}

absl::Status Number(const json& rule, const std::string& where, const char* key, int groups,
                    NumberSource* source) {
  const auto found = rule.find(key);
  if (found == rule.end()) return absl::OkStatus();
  const std::string here = absl::StrCat(where, ".", key);
  if (absl::Status known = CheckKeys(*found, here, {"group", "arg"}); !known.ok()) return known;
  if (found->contains("group") == found->contains("arg")) {
    return Wrong(here, "either group or arg belongs here");
  }
  if (found->contains("arg")) {
    absl::StatusOr<std::string> arg = Text((*found)["arg"], here + ".arg");
    if (!arg.ok()) return arg.status();
    source->arg = *std::move(arg);
    return absl::OkStatus();
  }
  if (groups == 0) return Wrong(here, "the rule has no regex with a group in parentheses");
  const absl::StatusOr<int> group = Whole((*found)["group"], here + ".group", 1, groups);
  if (!group.ok()) return group.status();
  source->group = *group;
  return absl::OkStatus();
}

absl::StatusOr<KinetoRule> ParseRule(const json& json_rule, const std::string& where) {
  absl::Status good = CheckKeys(json_rule, where,
                                {"type", "name", "regex", "category", "args", "micro_batch", "chunk",
                                 "global_chunk", "step", "join", "runs", "last", "optional"});
  if (!good.ok()) return good;
  KinetoRule rule;
  if (!json_rule.contains("type")) return Wrong(where, "it has no type");
  const absl::StatusOr<std::string> type = Text(json_rule["type"], where + ".type");
  if (!type.ok()) return type.status();
  const std::optional<whatif::OperationType> known = whatif::ParseOperationType(*type);
  if (!known) {
    return Wrong(where + ".type",
                 absl::StrCat("there is no operation '", *type, "' (docs/whatif.md names them)"));
  }
  rule.type = *known;
  if (json_rule.contains("name") == json_rule.contains("regex")) {
    return Wrong(where, "either name (a glob) or regex belongs here");
  }
  absl::StatusOr<TextPattern> name = json_rule.contains("name") ? Glob(json_rule["name"], where + ".name")
                                                                : Regex(json_rule["regex"], where + ".regex");
  if (!name.ok()) return name.status();
  rule.name = *std::move(name);
  absl::StatusOr<std::vector<std::string>> categories =
      Categories(json_rule, where, {kLaunched, "gpu_user_annotation", "user_annotation"});
  if (!categories.ok()) return categories.status();
  rule.categories = *std::move(categories);
  if (const auto args = json_rule.find("args"); args != json_rule.end()) {
    if (!args->is_object()) return Wrong(where + ".args", "this has to be an object of globs");
    for (const auto& [key, value] : args->items()) {
      absl::StatusOr<TextPattern> glob = Glob(value, absl::StrCat(where, ".args.", key));
      if (!glob.ok()) return glob.status();
      rule.args.emplace_back(key, *std::move(glob));
    }
  }
  const int groups = rule.name.groups();
  for (const auto& [key, source] :
       {std::pair("micro_batch", &rule.micro_batch), std::pair("chunk", &rule.chunk),
        std::pair("global_chunk", &rule.global_chunk), std::pair("step", &rule.step)}) {
    good = Number(json_rule, where, key, groups, source);
    if (!good.ok()) return good;
  }
  if (json_rule.contains("join")) {
    absl::StatusOr<std::string> join = Text(json_rule["join"], where + ".join");
    if (!join.ok()) return join.status();
    rule.join = *std::move(join);
  }
  for (const auto& [key, flag] : {std::pair("runs", &rule.runs), std::pair("last", &rule.last),
                                  std::pair("optional", &rule.optional)}) {
    if (!json_rule.contains(key)) continue;
    if (!json_rule[key].is_boolean())
      return Wrong(absl::StrCat(where, ".", key), "this has to be true or false");
    *flag = json_rule[key].get<bool>();
  }
  return rule;
}

absl::Status ParseOrder(const json& layout, KinetoLayout* parsed) {
  const absl::StatusOr<std::string> order = Text(layout["order"], "layout.order");
  if (!order.ok()) return order.status();
  parsed->order = absl::StrSplit(*order, '-');
  std::vector<std::string> sorted = parsed->order;
  std::sort(sorted.begin(), sorted.end());
  const bool twice = std::adjacent_find(sorted.begin(), sorted.end()) != sorted.end();
  const auto is_axis = [](const std::string& axis) {
    return axis == "tp" || axis == "cp" || axis == "dp" || axis == "pp";
  };
  if (twice || !std::all_of(sorted.begin(), sorted.end(), is_axis)) {
    return Wrong("layout.order", "this has to be tp, cp, dp and pp, each at most once, joined by '-'");
  }
  if (!layout.contains("sizes")) return absl::OkStatus();
  const json& sizes = layout["sizes"];
  if (absl::Status known = CheckKeys(sizes, "layout.sizes", {"tp", "cp", "dp", "pp"}); !known.ok())
    return known;
  for (const auto& [axis, value] : sizes.items()) {
    if (axis == "comment") continue;
    const absl::StatusOr<int> size = Whole(value, "layout.sizes." + axis, 1, kMostRanks);
    if (!size.ok()) return size.status();
    if (std::find(sorted.begin(), sorted.end(), axis) == sorted.end() && *size != 1) {
      return Wrong("layout.sizes." + axis, "layout.order does not say where it stands");
    }
    parsed->sizes[axis] = *size;
  }
  return absl::OkStatus();
}

absl::Status ParseRanks(const json& ranks, KinetoLayout* parsed) {
  if (!ranks.is_array() || ranks.empty())
    return Wrong("layout.ranks", "this has to be a list that is not empty");
  std::map<std::pair<int, int>, int> taken;
  for (size_t i = 0; i < ranks.size(); ++i) {
    const std::string where = absl::StrCat("layout.ranks[", i, "]");
    if (absl::Status known = CheckKeys(ranks[i], where, {"rank", "dp", "stage"}); !known.ok()) return known;
    int values[3] = {};
    int* value = values;
    for (const auto& [key, most] : {std::pair("rank", kMostRanks), std::pair("dp", whatif::kMaxDpRanks - 1),
                                    std::pair("stage", whatif::kMaxStages - 1)}) {
      if (!ranks[i].contains(key)) return Wrong(where, absl::StrCat("it has no ", key));
      const absl::StatusOr<int> number = Whole(ranks[i][key], absl::StrCat(where, ".", key), 0, most);
      if (!number.ok()) return number.status();
      *value++ = *number;
    }
    const auto [rank, dp, stage] = values;
    if (!parsed->ranks.try_emplace(rank, dp, stage).second) {
      return Wrong(where, absl::StrCat("rank ", rank, " stands there twice"));
    }
    if (const auto [other, fresh] = taken.try_emplace({dp, stage}, rank); !fresh) {
      return Wrong(where, absl::StrCat("ranks ", other->second, " and ", rank, " are both dp ", dp,
                                       ", stage ", stage, ": name one rank of a tensor or context group"));
    }
  }
  return absl::OkStatus();
}

absl::Status ParseLayout(const json& mapping, KinetoLayout* parsed) {
  if (!mapping.contains("layout"))
    return Wrong("layout", "it is missing: say which rank stands where in the job");
  const json& layout = mapping["layout"];
  if (absl::Status known = CheckKeys(layout, "layout", {"order", "sizes", "ranks"}); !known.ok())
    return known;
  if (layout.contains("order") == layout.contains("ranks")) {
    return Wrong("layout", "either order (with sizes) or ranks belongs here");
  }
  if (!layout.contains("ranks")) return ParseOrder(layout, parsed);
  if (layout.contains("sizes")) return Wrong("layout.sizes", "these go with order, not with ranks");
  return ParseRanks(layout["ranks"], parsed);
}

absl::Status ParseSteps(const json& mapping, KinetoMapping* parsed) {
  const json steps = mapping.contains("steps") ? mapping["steps"] : json::object();
  if (absl::Status known = CheckKeys(steps, "steps", {"regex", "category"}); !known.ok()) return known;
  absl::StatusOr<TextPattern> name =
      Regex(steps.contains("regex") ? steps["regex"] : json(kStepName), "steps.regex");
  if (!name.ok()) return name.status();
  if (name->groups() < 1)
    return Wrong("steps.regex", "its first group has to be the step's number: ([0-9]+)");
  parsed->step_name = *std::move(name);
  // Old profilers wrote marks as operators; nodes are of Chakra's execution traces.
  absl::StatusOr<std::vector<std::string>> categories = Categories(
      steps, "steps",
      {"gpu_user_annotation", "user_annotation", "cpu_op", "Operator", "METADATA_NODE", "COMP_NODE"});
  if (!categories.ok()) return categories.status();
  if (std::find(categories->begin(), categories->end(), kLaunched) != categories->end()) {
    return Wrong("steps.category", "'launched' is for rules: a step is a mark");
  }
  parsed->step_categories = *std::move(categories);
  return absl::OkStatus();
}

absl::Status ParseRank(const json& mapping, KinetoMapping* parsed) {
  if (!mapping.contains("rank")) return absl::OkStatus();
  if (absl::Status known = CheckKeys(mapping["rank"], "rank", {"file_regex"}); !known.ok()) return known;
  if (!mapping["rank"].contains("file_regex")) return absl::OkStatus();
  absl::StatusOr<TextPattern> regex = Regex(mapping["rank"]["file_regex"], "rank.file_regex");
  if (!regex.ok()) return regex.status();
  if (regex->groups() < 1) return Wrong("rank.file_regex", "its first group has to be the rank: ([0-9]+)");
  parsed->rank_of_file = *std::move(regex);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<TextPattern> TextPattern::Make(const std::string& regex, std::string_view source) {
  if (source.size() > kLongestPattern) {
    return absl::InvalidArgumentError(absl::StrCat("a pattern has at most ", kLongestPattern, " characters"));
  }
  RE2::Options options;
  options.set_encoding(RE2::Options::EncodingLatin1);  // names need not be UTF-8
  options.set_log_errors(false);
  options.set_dot_nl(true);
  options.set_max_mem(int64_t{4} << 20);
  TextPattern pattern;
  pattern.source_ = std::string(source);
  auto compiled = std::make_shared<RE2>(regex, options);
  if (!compiled->ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", std::string(source), "' is no regular expression of RE2: ", compiled->error()));
  }
  constexpr int kMostGroups = 16;
  if (compiled->NumberOfCapturingGroups() > kMostGroups) {
    return absl::InvalidArgumentError(absl::StrCat("a pattern has at most ", kMostGroups, " groups"));
  }
  pattern.regex_ = std::move(compiled);
  return pattern;
}

absl::StatusOr<TextPattern> TextPattern::Glob(std::string_view glob) {
  std::string regex = "^";
  for (const char c : glob) {
    if (c == '*') {
      regex += ".*";
    } else if (c == '?') {
      regex += ".";
    } else {
      regex += RE2::QuoteMeta(std::string(1, c));
    }
  }
  return Make(regex + "$", glob);
}

absl::StatusOr<TextPattern> TextPattern::Regex(std::string_view regex) {
  return Make(std::string(regex), regex);
}

bool TextPattern::Matches(std::string_view text, std::vector<std::optional<std::string>>* groups) const {
  const re2::StringPiece piece(text.data(), text.size());
  if (groups == nullptr) return regex_->Match(piece, 0, piece.size(), RE2::UNANCHORED, nullptr, 0);
  std::vector<re2::StringPiece> found(static_cast<size_t>(regex_->NumberOfCapturingGroups()) + 1);
  if (!regex_->Match(piece, 0, piece.size(), RE2::UNANCHORED, found.data(), static_cast<int>(found.size()))) {
    return false;
  }
  groups->clear();
  for (const re2::StringPiece& one : found) {
    groups->push_back(one.data() == nullptr ? std::nullopt
                                            : std::optional(std::string(one.data(), one.size())));
  }
  return true;
}

int TextPattern::groups() const {
  return regex_->NumberOfCapturingGroups();
}

std::string RuleName(const KinetoMapping& mapping, size_t rule) {
  return absl::StrCat("rule ", rule + 1, " (", whatif::OperationName(mapping.rules[rule].type), ", '",
                      mapping.rules[rule].name.source(), "')");
}

absl::StatusOr<KinetoMapping> ParseKinetoMapping(std::string_view text) {
  json parsed;
  try {
    parsed = json::parse(text);
  } catch (const json::parse_error& error) {
    return Wrong(absl::StrCat("byte ", error.byte), "this is no JSON, or it is cut off");
  } catch (const json::out_of_range&) {  // found by the fuzzer
    return Wrong("a number", "it is beyond what can be held");
  }
  absl::Status good = CheckKeys(parsed, "the mapping", {"rules", "steps", "rank", "layout"});
  if (!good.ok()) return good;
  if (!parsed.contains("rules") || !parsed["rules"].is_array() || parsed["rules"].empty() ||
      parsed["rules"].size() > kMostRules) {
    return Wrong("rules", absl::StrCat("this has to be a list of 1 to ", kMostRules, " rules"));
  }
  KinetoMapping mapping;
  for (size_t i = 0; i < parsed["rules"].size(); ++i) {
    absl::StatusOr<KinetoRule> rule = ParseRule(parsed["rules"][i], absl::StrCat("rules[", i, "]"));
    if (!rule.ok()) return rule.status();
    mapping.rules.push_back(*std::move(rule));
  }
  good = ParseSteps(parsed, &mapping);
  if (good.ok()) good = ParseRank(parsed, &mapping);
  if (good.ok()) good = ParseLayout(parsed, &mapping.layout);
  if (!good.ok()) return good;
  return mapping;
}

}  // namespace c4::traces
