#include "c4d_master/alerts/labels.h"

#include <algorithm>

#include "absl/strings/str_join.h"
#include "service/text.h"
#include "service/verdict_json.h"

namespace c4::c4d {

using service::Concat;

namespace {

constexpr size_t kMaxPatternBytes = 256;
constexpr size_t kMaxMatchers = 20;

}  // namespace

const std::vector<std::string>& LabelNames() {
  static const auto* const kNames = new std::vector<std::string>{
      "rule", "severity", "job", "syndrome", "culprit", "rank", "host", "nic", "link", "verdict"};
  return *kNames;
}

Labels LabelsOf(const v1::Verdict& verdict) {
  const v1::Culprit& culprit = verdict.culprit();
  Labels labels = {{"syndrome", std::string(service::SyndromeWord(verdict.syndrome()))},
                   {"culprit", std::string(service::CulpritKindWord(culprit.kind()))},
                   {"verdict", verdict.id()}};
  if (culprit.kind() == v1::CULPRIT_KIND_RANK) labels["rank"] = Concat(culprit.rank());
  if (!culprit.host().empty()) labels["host"] = culprit.host();
  if (!culprit.nic().empty()) labels["nic"] = culprit.nic();
  if (!culprit.cable().empty()) labels["link"] = culprit.cable();
  return labels;
}

absl::StatusOr<Matcher> ParseMatcher(const std::string& text) {
  const size_t at = text.find('=');
  const auto wrong = [&text](const std::string& what) {
    return absl::InvalidArgumentError(Concat("\"", service::ToUtf8(text), "\" ", what));
  };
  if (at == std::string::npos || at == 0) {
    return wrong("chooses nothing; give NAME=PATTERN or NAME!=PATTERN, as host=node7 or syndrome=*slow");
  }
  Matcher matcher;
  matcher.equal = text[at - 1] != '!';
  matcher.name = text.substr(0, matcher.equal ? at : at - 1);
  matcher.pattern = text.substr(at + 1);
  const std::vector<std::string>& names = LabelNames();
  if (std::find(names.begin(), names.end(), matcher.name) == names.end()) {
    return wrong(Concat("chooses by what alerts do not have; there are ", absl::StrJoin(names, ", ")));
  }
  if (matcher.pattern.size() > kMaxPatternBytes) return wrong("is longer than 256 bytes");
  return matcher;
}

absl::StatusOr<std::vector<Matcher>> ParseMatchers(const std::vector<std::string>& texts) {
  if (texts.empty()) {
    return absl::InvalidArgumentError(
        "say what it is about: NAME=PATTERN, as host=node7; rule=* is about everything");
  }
  if (texts.size() > kMaxMatchers) {
    return absl::InvalidArgumentError(
        Concat("there are ", texts.size(), " words that choose; ", kMaxMatchers, " are allowed"));
  }
  std::vector<Matcher> matchers;
  for (const std::string& text : texts) {
    absl::StatusOr<Matcher> matcher = ParseMatcher(text);
    if (!matcher.ok()) return matcher.status();
    matchers.push_back(*std::move(matcher));
  }
  return matchers;
}

std::string MatchersText(const std::vector<Matcher>& matchers) {
  std::string text;
  for (const Matcher& matcher : matchers) {
    text += Concat(text.empty() ? "" : " ", matcher.name, matcher.equal ? "=" : "!=", matcher.pattern);
  }
  return text;
}

bool MatchesPattern(const std::string& pattern, const std::string& text) {
  size_t p = 0, t = 0, star = std::string::npos, after_star = 0;
  while (t < text.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      after_star = t;
    } else if (p < pattern.size() && pattern[p] == text[t]) {
      ++p;
      ++t;
    } else if (star != std::string::npos) {
      p = star + 1;
      t = ++after_star;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

bool Matches(const std::vector<Matcher>& matchers, const Labels& labels) {
  return std::all_of(matchers.begin(), matchers.end(), [&labels](const Matcher& matcher) {
    const auto found = labels.find(matcher.name);
    const std::string& value = found == labels.end() ? std::string() : found->second;
    return MatchesPattern(matcher.pattern, value) == matcher.equal;
  });
}

}  // namespace c4::c4d
