#include "traces/kineto_matcher.h"

#include <algorithm>
#include <charconv>

#include "absl/strings/str_cat.h"

namespace c4::traces {
namespace {

constexpr size_t kMostKnown = 65536;
constexpr std::array<const char*, 4> kNumberNames = {"step", "micro_batch", "chunk", "global_chunk"};
constexpr std::array<int32_t, 4> kMostOfNumber = {2000000000, 1 << 24, 1023, 32766};

std::array<const NumberSource*, 4> Sources(const KinetoRule& rule) {
  return {&rule.step, &rule.micro_batch, &rule.chunk, &rule.global_chunk};
}

constexpr char kMark[] = "user_annotation";

uint8_t Place(const std::vector<std::string>& categories, const std::string& category) {
  const auto found = std::find(categories.begin(), categories.end(), category);
  if (found == categories.end()) return KinetoMatch::kNowhere;
  return static_cast<uint8_t>(found - categories.begin());
}

// Where what was launched within this event counts for the rule: in events of the CPU that the rule lists,
// and where it lists none in the program's marks.
uint8_t PlaceOfLaunched(const std::vector<std::string>& categories, const std::string& category) {
  if (IsOnGpu(category)) return KinetoMatch::kNowhere;
  const bool lists_one = std::any_of(categories.begin(), categories.end(), [](const std::string& one) {
    return one != kLaunched && !IsOnGpu(one);
  });
  const bool counts = lists_one ? Place(categories, category) != KinetoMatch::kNowhere : category == kMark;
  return counts ? Place(categories, kLaunched) : KinetoMatch::kNowhere;
}

}  // namespace

KinetoMatcher::KinetoMatcher(const KinetoMapping& mapping) : mapping_(mapping) {
  categories_.insert(mapping.step_categories.begin(), mapping.step_categories.end());
  for (const KinetoRule& rule : mapping.rules) {
    categories_.insert(rule.categories.begin(), rule.categories.end());
    if (Place(rule.categories, kLaunched) != KinetoMatch::kNowhere) {
      wants_launches_ = true;
      categories_.insert(kMark);
      args_.insert(kCorrelation);
    }
    for (const auto& [key, glob] : rule.args) args_.insert(key);
    if (!rule.join.empty()) args_.insert(rule.join);
    for (const NumberSource* source : Sources(rule)) {
      if (!source->arg.empty()) args_.insert(source->arg);
    }
  }
}

const std::vector<KinetoMatcher::Candidate>& KinetoMatcher::Candidates(const KinetoEvent& event) {
  key_.assign(event.category);
  key_.push_back('\0');
  key_.append(event.name);
  if (const auto found = known_.find(key_); found != known_.end()) return found->second;
  constexpr size_t kLongestKept = 2000;
  if (known_.size() >= kMostKnown || key_.size() > kLongestKept) known_.clear();
  std::vector<Candidate>& candidates = known_[key_];
  std::vector<std::optional<std::string>> groups;
  if (const uint8_t place = Place(mapping_.step_categories, event.category); place != KinetoMatch::kNowhere) {
    if (mapping_.step_name.Matches(event.name, &groups)) {
      Candidate step;
      step.kind = KinetoMatch::Kind::kStep;
      step.preference = place;
      step.texts[0] = groups[1].value_or("");
      candidates.push_back(std::move(step));
      return candidates;
    }
  }
  for (size_t i = 0; i < mapping_.rules.size(); ++i) {
    const KinetoRule& rule = mapping_.rules[i];
    const uint8_t place = Place(rule.categories, event.category);
    const uint8_t launched = PlaceOfLaunched(rule.categories, event.category);
    if (std::min(place, launched) == KinetoMatch::kNowhere) continue;
    if (!rule.name.Matches(event.name, &groups)) continue;
    Candidate candidate;
    candidate.kind = KinetoMatch::Kind::kOperation;
    candidate.rule = static_cast<uint16_t>(i);
    candidate.preference = place;
    candidate.launched = launched;
    const auto sources = Sources(rule);
    for (size_t n = 0; n < kNumbers; ++n) {
      if (sources[n]->group > 0) {
        candidate.texts[n] = groups[static_cast<size_t>(sources[n]->group)].value_or("");
      }
    }
    candidates.push_back(std::move(candidate));
    if (rule.args.empty()) break;  // it takes them all
  }
  return candidates;
}

bool KinetoMatcher::ArgsMatch(const KinetoRule& rule, const KinetoEvent& event) const {
  return std::all_of(rule.args.begin(), rule.args.end(), [&event](const auto& wanted) {
    const std::string* value = event.Arg(wanted.first);
    return value != nullptr && wanted.second.Matches(*value);
  });
}

absl::Status KinetoMatcher::TakeNumbers(const Candidate& candidate, const KinetoEvent& event,
                                        KinetoMatch* match) const {
  const bool is_step = candidate.kind == KinetoMatch::Kind::kStep;
  int32_t* const targets[kNumbers] = {&match->step, &match->micro_batch, &match->chunk, &match->global_chunk};
  for (size_t n = 0; n < kNumbers; ++n) {
    std::string text = candidate.texts[n];
    bool needed = is_step && n == 0;
    if (!is_step) {
      const NumberSource& source = *Sources(mapping_.rules[candidate.rule])[n];
      needed = n == 0 && source.said();
      const std::string* arg = source.arg.empty() ? nullptr : event.Arg(source.arg);
      if (arg != nullptr) text = *arg;
    }
    if (text.empty() && !needed) continue;
    int32_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error == std::errc() && end == text.data() + text.size() && value >= 0 && value <= kMostOfNumber[n]) {
      *targets[n] = value;
      continue;
    }
    constexpr size_t kShown = 40;
    return absl::InvalidArgumentError(
        absl::StrCat(is_step ? std::string("the pattern of steps") : RuleName(mapping_, candidate.rule),
                     " takes '", text.substr(0, kShown), "' for its ", kNumberNames[n],
                     ", which is not a whole number from 0 to ", kMostOfNumber[n]));
  }
  return absl::OkStatus();
}

absl::StatusOr<KinetoMatch> KinetoMatcher::Match(const KinetoEvent& event) {
  KinetoMatch match;
  if (!categories_.contains(event.category)) return match;
  for (const Candidate& candidate : Candidates(event)) {
    const bool is_step = candidate.kind == KinetoMatch::Kind::kStep;
    if (!is_step && !ArgsMatch(mapping_.rules[candidate.rule], event)) continue;
    match.kind = candidate.kind;
    match.rule = candidate.rule;
    match.preference = candidate.preference;
    match.launched = candidate.launched;
    const std::string* value = is_step ? nullptr : event.Arg(mapping_.rules[candidate.rule].join);
    if (value != nullptr) match.join = std::hash<std::string>()(*value) | 1;
    if (absl::Status taken = TakeNumbers(candidate, event, &match); !taken.ok()) return taken;
    break;
  }
  return match;
}

}  // namespace c4::traces
