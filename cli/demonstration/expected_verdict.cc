#include "cli/demonstration/expected_verdict.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "service/verdict_json.h"

namespace c4::cli {
namespace {

// A queue pair that carried less while the link was slow may not have had chunks enough to be judged by.
constexpr uint64_t kLeastJudgedBytes = 262144;
// More than the signs of life of some seconds, which are not data.
constexpr uint64_t kLeastStuckBytes = 1024;

Flow FlowOf(const fabric::FiveTuple& tuple) {
  return {absl::StrCat(tuple.source, ":", tuple.source_port),
          absl::StrCat(tuple.destination, ":", tuple.destination_port)};
}

bool TakesAny(const fabric::Path& path, const std::vector<fabric::Link>& links) {
  return std::any_of(links.begin(), links.end(),
                     [&](const fabric::Link& link) { return fabric::Takes(path, link); });
}

bool IsUplink(const fabric::Applied& applied) {
  return !applied.links.empty() && applied.links.front().kind == fabric::Link::Kind::kUplink;
}

void ExpectRank(const fabric::Applied& applied, v1::Syndrome syndrome, ExpectedVerdict* expected) {
  expected->syndrome = syndrome;
  expected->kind = v1::CULPRIT_KIND_RANK;
  expected->rank = applied.ranks.empty() ? -1 : applied.ranks.front();
}

void ExpectLink(const fabric::Applied& applied, ExpectedVerdict* expected) {
  expected->kind = v1::CULPRIT_KIND_LINK;
  expected->cable = fabric::LinkName(applied.links.front());
  expected->expected = absl::StrCat(std::string(service::SyndromeWord(expected->syndrome)), ": that link");
}

std::set<std::string> CablesOf(const fabric::Flow& flow) {
  std::set<std::string> cables;
  for (const fabric::Path* path : {&flow.data, &flow.acks}) {
    for (const fabric::Link& link : path->links) cables.insert(fabric::LinkName(link));
  }
  return cables;
}

void KeepCommon(const std::set<std::string>& cables, std::optional<std::set<std::string>>* common) {
  if (!common->has_value()) {
    *common = cables;
    return;
  }
  std::erase_if(**common, [&](const std::string& cable) { return !cables.contains(cable); });
}

}  // namespace

ExpectedVerdict ExpectedVerdictOf(const fabric::Applied& applied, const NetworkTerms& network) {
  ExpectedVerdict expected;
  expected.fault = absl::StrCat(fabric::KindName(applied.injection.kind), " ", applied.injection.target);
  if (!applied.hosts.empty()) {
    expected.host = fabric::HostName(applied.hosts.front());
  } else if (!applied.links.empty() && !IsUplink(applied)) {
    expected.host = fabric::HostName(applied.links.front().host);
  }
  expected.ends_job = fabric::EndsTheJob(applied.injection.kind);
  switch (applied.injection.kind) {
    case fabric::Kind::kStop:
      ExpectRank(applied, v1::SYNDROME_NON_COMMUNICATION_HANG, &expected);
      expected.expected = "non-communication hang: that rank";
      break;
    case fabric::Kind::kKill:
      ExpectRank(applied, v1::SYNDROME_CRASH, &expected);
      expected.expected = "crash: that rank";
      break;
    case fabric::Kind::kMismatch:
      ExpectRank(applied, v1::SYNDROME_MISMATCH, &expected);
      expected.expected = "mismatch: that rank";
      break;
    case fabric::Kind::kSlowRank:
      ExpectRank(applied, v1::SYNDROME_NON_COMMUNICATION_SLOW, &expected);
      expected.expected = "non-communication slow: that host's rank";
      expected.limit_s = 10;
      if (applied.ranks.size() < 2) break;
      expected.kind = v1::CULPRIT_KIND_NODE;
      expected.rank = -1;
      expected.expected = "non-communication slow: that node";
      break;
    case fabric::Kind::kSlowNic:
      expected.syndrome = v1::SYNDROME_COMMUNICATION_SLOW;
      expected.kind = v1::CULPRIT_KIND_NIC;
      expected.expected = "communication slow: that host's NIC";
      expected.limit_s = 10;
      break;
    case fabric::Kind::kSlowLink:
      expected.syndrome = v1::SYNDROME_COMMUNICATION_SLOW;
      expected.kind = v1::CULPRIT_KIND_CONNECTION;
      expected.expected = "communication slow: exactly the queue pairs on that link";
      if (network.paths_known) ExpectLink(applied, &expected);
      expected.limit_s = 10;
      break;
    case fabric::Kind::kCut:
      expected.syndrome = v1::SYNDROME_COMMUNICATION_HANG;
      expected.kind = IsUplink(applied) ? v1::CULPRIT_KIND_CONNECTION : v1::CULPRIT_KIND_NIC;
      expected.expected = IsUplink(applied) ? "communication hang: the queue pairs on that link"
                                            : "communication hang: that host's NIC";
      if (!IsUplink(applied)) break;
      if (network.fail_over && !network.paths_known) {
        expected.syndrome = v1::SYNDROME_UNSPECIFIED;
        expected.kind = v1::CULPRIT_KIND_UNSPECIFIED;
        expected.expected = "no verdict: the transport goes around it";
      } else if (network.paths_known) {
        if (network.fail_over) expected.syndrome = v1::SYNDROME_PATH_LOST;
        ExpectLink(applied, &expected);
      }
      break;
    case fabric::Kind::kNodeLoss:
      expected.syndrome = v1::SYNDROME_LOST_NODE;
      expected.kind = v1::CULPRIT_KIND_NODE;
      expected.expected = "lost node: that node";
      expected.limit_s = 10;
      break;
    case fabric::Kind::kJitter:
    case fabric::Kind::kAgentStop:
      expected.expected = "no verdict";
      break;
  }
  return expected;
}

ExpectedFlows ExpectedFlowsOf(const fabric::Applied& applied, const std::vector<fabric::Flow>& now) {
  std::map<fabric::FiveTuple, uint64_t> sent_before;
  for (const fabric::Flow& flow : applied.flows) sent_before[flow.tuple] = flow.sent_bytes;
  ExpectedFlows expected;
  std::optional<std::set<std::string>> of_must;
  std::optional<std::set<std::string>> of_all;
  for (const fabric::Flow& flow : now) {
    const bool data = TakesAny(flow.data, applied.links);
    const bool acks = TakesAny(flow.acks, applied.links);
    if (!data && !acks) continue;
    const auto before = sent_before.find(flow.tuple);
    const uint64_t carried = flow.sent_bytes - (before == sent_before.end() ? 0 : before->second);
    const bool must = applied.injection.kind == fabric::Kind::kCut ? flow.queued_bytes >= kLeastStuckBytes
                                                                   : data && carried >= kLeastJudgedBytes;
    (must ? expected.must : expected.may).insert(FlowOf(flow.tuple));
    if (must) KeepCommon(CablesOf(flow), &of_must);
    KeepCommon(CablesOf(flow), &of_all);
    // Where little was sent the acknowledgements may have been more than the data.
    expected.may.insert(FlowOf(fabric::Reversed(flow.tuple)));
  }
  const auto& common = of_must.has_value() ? of_must : of_all;
  if (common.has_value()) expected.shared = *common;
  for (const fabric::Link& link : applied.links) expected.shared.erase(fabric::LinkName(link));
  return expected;
}

}  // namespace c4::cli
