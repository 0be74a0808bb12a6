// The labels of an alert, by which silences and maintenance windows choose, and which Alertmanager routes by;
// and the words that choose: NAME=PATTERN or NAME!=PATTERN, where '*' in a pattern stands for anything. Pure;
// any thread.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "c4/v1/c4d.pb.h"
#include "service/status.h"

namespace c4::c4d {

using Labels = std::map<std::string, std::string>;

// The names that there are: a word that chooses by another one is a mistake.
const std::vector<std::string>& LabelNames();

// syndrome, culprit, rank, host, nic, link, verdict; those that the verdict says.
Labels LabelsOf(const v1::Verdict& verdict);

struct Matcher {
  std::string name;
  bool equal = true;
  std::string pattern;
};
// "host=node7", "syndrome!=*slow*".
absl::StatusOr<Matcher> ParseMatcher(const std::string& text);
// InvalidArgument also for an empty list: what would choose everything has to say so (rule=*).
absl::StatusOr<std::vector<Matcher>> ParseMatchers(const std::vector<std::string>& texts);
std::string MatchersText(const std::vector<Matcher>& matchers);

// '*': any number of any characters; nothing else is special.
bool MatchesPattern(const std::string& pattern, const std::string& text);
// A label that is not there is an empty text. All of them have to match.
bool Matches(const std::vector<Matcher>& matchers, const Labels& labels);

}  // namespace c4::c4d
