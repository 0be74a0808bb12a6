#include "c4d_master/recovery/slurm_words.h"

#include <algorithm>
#include <iterator>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "service/text.h"

namespace c4::c4d::recovery {

using service::Concat;

// The mark behind each field, so that the last one is known to be whole.
const char kSlurmJobFields[] = "State: |,RestartCnt: |,NodeList: |,Partition: |,Reason: |,Comment: |";
const char kSlurmNodeFields[] = "NodeList: |,NodeHost: |,StateComplete: |,User: |,Reason: |";
const char kSlurmStepFields[] = "%i|%N|";

namespace {

constexpr size_t kMaxName = 256;
constexpr size_t kMaxReason = 200;
constexpr size_t kMaxNodes = 100'000;
constexpr absl::string_view kMark = "c4 job ";

absl::Status Half(absl::string_view line) {
  return absl::InvalidArgumentError(
      Concat("Slurm's answer cannot be read: \"", service::ToUtf8(std::string(line.substr(0, 120))), "\""));
}

// The first count - 1 fields end with the first marks, the last one with the line: it may hold marks.
std::optional<std::vector<std::string>> Fields(absl::string_view line, size_t count) {
  line = absl::StripTrailingAsciiWhitespace(line);
  if (!absl::EndsWith(line, "|")) return std::nullopt;
  line.remove_suffix(1);
  std::vector<std::string> fields = absl::StrSplit(line, absl::MaxSplits('|', static_cast<int>(count) - 1));
  if (fields.size() != count) return std::nullopt;
  for (std::string& field : fields) {
    absl::StripAsciiWhitespace(&field);
    if (field == "(null)" || field == "N/A" || field == "none") field.clear();
  }
  return fields;
}

bool IsNameCharacter(char c) {
  return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '_' || c == '.';
}

// One word: scontrol would read the rest as another assignment.
std::string OneLine(const std::string& text) {
  std::string line = service::ToUtf8(text);
  for (char& c : line) {
    if (absl::ascii_iscntrl(static_cast<unsigned char>(c)) || c == '|' || c == '"' || c == '\'') c = ' ';
  }
  return line;
}

}  // namespace

std::optional<StepsComment> ReadStepsComment(absl::string_view text) {
  if (!absl::StartsWith(text, "c4 ")) return std::nullopt;
  StepsComment comment;
  for (const absl::string_view word : absl::StrSplit(text.substr(3), ' ', absl::SkipEmpty())) {
    const std::pair<absl::string_view, absl::string_view> pair =
        absl::StrSplit(word, absl::MaxSplits('=', 1));
    if (pair.first == "exclude") {
      comment.exclude = absl::StrSplit(pair.second, ',', absl::SkipEmpty());
      if (!std::all_of(comment.exclude.begin(), comment.exclude.end(), IsSlurmNodeName)) return std::nullopt;
      continue;
    }
    uint32_t number = 0;
    if (!absl::SimpleAtoi(pair.second, &number)) return std::nullopt;
    if (pair.first == "nodes") comment.nodes = number;
    if (pair.first == "began") comment.began = number;
    if (pair.first == "asked") comment.asked = number;
    if (pair.first == "requeues") comment.requeues = number;
  }
  if (comment.nodes == 0) return std::nullopt;
  return comment;
}

std::string StepsCommentText(const StepsComment& comment) {
  return Concat("c4 nodes=", comment.nodes, " began=", comment.began, " asked=", comment.asked,
                " requeues=", comment.requeues, " exclude=", absl::StrJoin(comment.exclude, ","));
}

absl::StatusOr<SlurmJob> ReadSlurmJob(const std::string& text) {
  const absl::string_view line = absl::StripAsciiWhitespace(text);
  if (line.empty()) return absl::NotFoundError("Slurm does not know the job, or no longer");
  const auto fields = Fields(line, 6);
  if (!fields || absl::StrContains(line, '\n') || (*fields)[0].empty() || (*fields)[3].empty())
    return Half(line);
  SlurmJob job;
  if (!absl::SimpleAtoi((*fields)[1], &job.requeues)) return Half(line);
  job.state = (*fields)[0];
  job.nodes = (*fields)[2];
  job.partitions = (*fields)[3];
  job.why = (*fields)[4];
  job.comment = (*fields)[5];
  return job;
}

absl::StatusOr<std::set<std::string>> ReadSlurmHosts(const std::string& text) {
  std::set<std::string> hosts;
  for (const absl::string_view line : absl::StrSplit(text, '\n', absl::SkipWhitespace())) {
    std::string name(absl::StripAsciiWhitespace(line));
    if (!IsSlurmNodeName(name)) return Half(line);
    hosts.insert(std::move(name));
  }
  if (hosts.empty() || !absl::EndsWith(text, "\n")) return Half(text);
  return hosts;
}

bool SlurmNode::down() const {
  static constexpr absl::string_view kDown[] = {
      "not_responding", "powered_down", "powering_down", "power_down",  "powering_up",
      "power_up",       "reboot",       "reboot_issued", "invalid_reg", "no_respond"};
  return base == "down" || base == "error" || base == "unknown" || base == "future" || base == "inval" ||
         std::any_of(std::begin(kDown), std::end(kDown),
                     [this](absl::string_view flag) { return flags.contains(std::string(flag)); });
}

absl::StatusOr<std::vector<SlurmNode>> ReadSlurmNodes(const std::string& text) {
  std::vector<SlurmNode> nodes;
  std::set<std::string> names;  // a node is listed once a partition
  for (const absl::string_view line : absl::StrSplit(text, '\n', absl::SkipWhitespace())) {
    const auto fields = Fields(line, 5);
    if (!fields || !IsSlurmNodeName((*fields)[0]) || (*fields)[2].empty()) return Half(line);
    if (!names.insert((*fields)[0]).second) continue;
    if (nodes.size() == kMaxNodes) return absl::ResourceExhaustedError("Slurm lists more than 100000 nodes");
    SlurmNode node;
    node.name = (*fields)[0];
    node.host = (*fields)[1].empty() ? node.name : (*fields)[1];
    if (!IsSlurmNodeName(node.host)) return Half(line);
    std::string states = absl::AsciiStrToLower((*fields)[2]);
    if (absl::EndsWith(states, "*")) {
      node.flags.insert("not_responding");
      states.pop_back();
    }
    for (const absl::string_view word : absl::StrSplit(states, '+', absl::SkipEmpty())) {
      if (node.base.empty()) {
        node.base = std::string(word);
      } else {
        node.flags.emplace(word);
      }
    }
    node.by = (*fields)[3];
    node.reason = (*fields)[4];
    nodes.push_back(std::move(node));
  }
  if (!nodes.empty() && !absl::EndsWith(text, "\n")) return Half(text.substr(text.rfind('\n') + 1));
  return nodes;
}

absl::StatusOr<std::vector<SlurmStep>> ReadSlurmSteps(const std::string& text) {
  std::vector<SlurmStep> steps;
  for (const absl::string_view line : absl::StrSplit(text, '\n', absl::SkipWhitespace())) {
    const auto fields = Fields(line, 2);
    if (!fields) return Half(line);
    const std::string& id = (*fields)[0];
    const size_t dot = id.rfind('.');
    if (dot == std::string::npos || !IsSlurmJobId(id.substr(0, dot))) return Half(line);
    uint32_t number = 0;
    if (absl::SimpleAtoi(id.substr(dot + 1), &number)) steps.push_back({id, (*fields)[1]});
  }
  return steps;
}

std::string SlurmReason(const std::string& job, const std::string& why) {
  return OneLine(Concat(kMark, job, ": ", why)).substr(0, kMaxReason);
}

bool IsOurReason(const std::string& job, const std::string& reason) {
  return absl::StartsWith(reason, OneLine(Concat(kMark, job, ":")));
}

Event::Seen SightOf(const std::string& job, const SlurmNode& node, bool of_job, bool in_use) {
  Event::Seen seen;
  seen.node = node.host;
  seen.in_use = in_use;
  const bool others = node.base == "allocated" || node.base == "mixed" || node.flags.contains("completing") ||
                      node.flags.contains("reserved") || node.flags.contains("maint") ||
                      node.base == "blocked" || node.base == "reserved" || node.base == "maint";
  if (node.drained()) {
    seen.sight = IsOurReason(job, node.reason) ? Event::Sight::kIsolated : Event::Sight::kOther;
  } else if (node.down()) {
    seen.sight = IsOurReason(job, node.reason) ? Event::Sight::kIsolated : Event::Sight::kGone;
  } else if (!of_job && others) {
    seen.sight = Event::Sight::kOther;
  }
  return seen;
}

bool IsSlurmRefusal(absl::string_view words) {
  static constexpr absl::string_view kTransient[] = {"unable to contact",
                                                     "timed out",
                                                     "timeout",
                                                     "connection refused",
                                                     "connect failure",
                                                     "zero bytes",
                                                     "munge",
                                                     "try again",
                                                     "temporar",
                                                     "unreachable",
                                                     "communication",
                                                     "standby mode",
                                                     "protocol authentication",
                                                     "by signal"};
  const std::string lower = absl::AsciiStrToLower(words);
  return std::none_of(std::begin(kTransient), std::end(kTransient),
                      [&lower](absl::string_view word) { return absl::StrContains(lower, word); });
}

bool IsSlurmJobId(const std::string& text) {
  const std::vector<absl::string_view> parts = absl::StrSplit(text, '_');
  return parts.size() <= 2 && text.size() <= 32 &&
         std::all_of(parts.begin(), parts.end(), [](absl::string_view part) {
           return !part.empty() && std::all_of(part.begin(), part.end(), [](char c) {
             return absl::ascii_isdigit(static_cast<unsigned char>(c));
           });
         });
}

std::string SlurmJobId(const std::string& job) {
  const std::string id = job.substr(0, job.find('.'));
  return IsSlurmJobId(id) ? id : "";
}

bool IsSlurmNodeName(const std::string& text) {
  return !text.empty() && text.size() <= kMaxName && text.front() != '-' &&
         std::all_of(text.begin(), text.end(), IsNameCharacter);
}

}  // namespace c4::c4d::recovery
