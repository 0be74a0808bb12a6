#include "cli/demonstration/fault_judge.h"

#include <algorithm>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "service/text.h"
#include "service/verdict_json.h"

namespace c4::cli {
namespace {

std::string FlowText(const Flow& flow) {
  return service::Concat(flow.first, " -> ", flow.second);
}

std::string CulpritText(const v1::Culprit& culprit) {
  switch (culprit.kind()) {
    case v1::CULPRIT_KIND_RANK:
      return service::Concat("rank ", culprit.rank(), " on ", culprit.process().host());
    case v1::CULPRIT_KIND_NODE:
      return service::Concat("node ", culprit.host());
    case v1::CULPRIT_KIND_NIC:
      return service::Concat("NIC ", culprit.nic(), " of ", culprit.host());
    case v1::CULPRIT_KIND_CONNECTION:
      return service::Concat(culprit.connections_size(), " queue pairs");
    case v1::CULPRIT_KIND_LINK:
      return service::Concat("link ", culprit.cable());
    case v1::CULPRIT_KIND_AMBIGUOUS:
      if (culprit.links_size() != 0)
        return service::Concat("ambiguous: one of links ", absl::StrJoin(culprit.links(), ", "));
      return service::Concat("ambiguous: one of ranks ", absl::StrJoin(culprit.candidates(), ", "));
    default:
      return "nobody";
  }
}

// "leaf0-spine1" of "leaf0>spine1" and "leaf0<spine1".
std::string CableOf(std::string link) {
  const size_t mark = link.find_first_of("<>");
  if (mark != std::string::npos) link[mark] = '-';
  return link;
}

// Of a fault of a link; empty: it is that link, or one of several that nothing tells from it.
std::string LinkMismatch(const ExpectedVerdict& expected, const v1::Culprit& culprit) {
  if (culprit.kind() == v1::CULPRIT_KIND_LINK && culprit.cable() == expected.cable) return {};
  if (culprit.kind() != v1::CULPRIT_KIND_AMBIGUOUS)
    return service::Concat("it blames ", CulpritText(culprit));
  bool named = false;
  for (const std::string& link : culprit.links()) {
    const std::string cable = CableOf(link);
    named = named || cable == expected.cable;
    if (cable != expected.cable && !expected.shared.contains(cable)) {
      return service::Concat(CulpritText(culprit), ", though not all that is bad takes ", cable);
    }
  }
  return named ? std::string() : service::Concat("it does not name ", expected.cable);
}

std::set<Flow> Named(const v1::Verdict& verdict) {
  std::set<Flow> named;
  for (const v1::ConnectionRef& connection : verdict.culprit().connections()) {
    named.emplace(connection.local(), connection.remote());
  }
  return named;
}

bool WasConfirmed(const v1::Verdict& verdict) {
  return verdict.confirmed_unix_ns() != 0;
}

}  // namespace

std::string VerdictLine(const v1::Verdict& verdict) {
  return service::Concat(service::SyndromeWord(verdict.syndrome()), ", ", CulpritText(verdict.culprit()));
}

std::string SuspectedText(const FaultJudgement& judgement) {
  std::string text;
  if (judgement.right()) return text;
  for (const auto& [id, verdict] : judgement.suspected) {
    text += service::Concat("suspected: ", service::VerdictText(verdict, verdict.suspected_unix_ns()));
  }
  return text;
}

std::string FaultJudge::Mismatch(const ExpectedVerdict& expected, const v1::Verdict& verdict) {
  const v1::Culprit& culprit = verdict.culprit();
  if (expected.kind == v1::CULPRIT_KIND_UNSPECIFIED) return "no verdict was to come";
  if (verdict.syndrome() != expected.syndrome) {
    return service::Concat("the syndrome is ", service::SyndromeWord(verdict.syndrome()), ", not ",
                           service::SyndromeWord(expected.syndrome));
  }
  if (expected.kind == v1::CULPRIT_KIND_LINK) return LinkMismatch(expected, culprit);
  if (culprit.kind() != expected.kind) return service::Concat("it blames ", CulpritText(culprit));
  switch (expected.kind) {
    case v1::CULPRIT_KIND_RANK:
      if (culprit.rank() != expected.rank) return service::Concat("it blames rank ", culprit.rank());
      if (culprit.process().host() != expected.host)
        return service::Concat("it blames host ", culprit.process().host());
      return {};
    case v1::CULPRIT_KIND_NIC:
    case v1::CULPRIT_KIND_NODE:
      return culprit.host() == expected.host ? std::string()
                                             : service::Concat("it blames host ", culprit.host());
    case v1::CULPRIT_KIND_CONNECTION: {
      const std::set<Flow> named = Named(verdict);
      if (named.empty()) return "it names no queue pair";
      for (const Flow& flow : named) {
        if (!expected.must.contains(flow) && !expected.may.contains(flow)) {
          return service::Concat("it names ", FlowText(flow), ", which does not take the link");
        }
      }
      return {};
    }
    default:
      return {};
  }
}

std::string FaultJudge::Missing(const ExpectedVerdict& expected, const v1::Verdict& verdict) {
  if (expected.kind != v1::CULPRIT_KIND_CONNECTION) return {};
  const std::set<Flow> named = Named(verdict);
  std::vector<std::string> missing;
  for (const Flow& flow : expected.must) {
    if (!named.contains(flow)) missing.push_back(FlowText(flow));
  }
  if (missing.empty()) return {};
  return absl::StrFormat("%d of %d queue pairs on the link are not named: %s", missing.size(),
                         expected.must.size(), absl::StrJoin(missing, ", "));
}

void FaultJudge::Injected(ExpectedVerdict expected, double now_s) {
  FaultJudgement judgement;
  judgement.expected = std::move(expected);
  judgement.injected_s = now_s;
  judged_.push_back(std::move(judgement));
  in_force_ = true;
}

void FaultJudge::Narrow(std::set<Flow> must, std::set<Flow> may, std::set<std::string> shared) {
  judged_.back().expected.shared = std::move(shared);
  judged_.back().expected.must = std::move(must);
  judged_.back().expected.may = std::move(may);
}

void FaultJudge::Healed(double now_s) {
  if (!in_force_) return;
  in_force_ = false;
  judged_.back().healed_s = now_s;
  Close(&judged_.back());
}

// The conclusions that can be drawn once the fault is over.
void FaultJudge::Close(FaultJudgement* judgement) {
  const ExpectedVerdict& expected = judgement->expected;
  if (expected.kind == v1::CULPRIT_KIND_UNSPECIFIED) return;
  if (!judgement->confirmed_after_s.has_value()) {
    judgement->faults.push_back(judgement->suspected_after_s.has_value() ? "no more than suspected"
                                                                         : "no verdict named it");
    return;
  }
  if (*judgement->confirmed_after_s > expected.limit_s) {
    judgement->faults.push_back(absl::StrFormat("confirmed after %.1f s, more than %.0f s",
                                                *judgement->confirmed_after_s, expected.limit_s));
  }
  if (std::string missing = Missing(expected, judgement->verdict); !missing.empty()) {
    judgement->faults.push_back(std::move(missing));
  }
}

// That a job's iterations take longer follows from what slows it down, or makes it go on with less; it blames
// whom the table blames, or nobody. A fault that stops a job makes one iteration longer, and no fail-slow.
std::string FaultJudge::NoConsequence(const ExpectedVerdict& expected, const v1::Verdict& verdict) {
  const bool slows = expected.syndrome == v1::SYNDROME_COMMUNICATION_SLOW ||
                     expected.syndrome == v1::SYNDROME_NON_COMMUNICATION_SLOW ||
                     expected.syndrome == v1::SYNDROME_PATH_LOST;
  if (!slows) return service::Concat(expected.fault, " does not make iterations longer");
  if (verdict.fail_slow().known_from().empty()) return {};
  v1::Verdict as_expected = verdict;
  as_expected.set_syndrome(expected.syndrome);
  return Mismatch(expected, as_expected);
}

FaultJudgement* FaultJudge::Responsible(double now_s) {
  if (judged_.empty()) return nullptr;
  FaultJudgement& last = judged_.back();
  return in_force_ || (last.healed_s.has_value() && now_s - *last.healed_s <= kAfterHealS) ? &last : nullptr;
}

void FaultJudge::Observe(const std::vector<v1::Verdict>& verdicts, double now_s) {
  for (const v1::Verdict& verdict : verdicts) ObserveOne(verdict, now_s);
}

void FaultJudge::ObserveOne(const v1::Verdict& verdict, double now_s) {
  if (settled_.contains(verdict.id())) return;
  const bool open = verdict.state() != v1::VERDICT_STATE_CLEARED;
  for (FaultJudgement& judgement : judged_) {
    if (judgement.verdict_id != verdict.id()) continue;
    if (!open) {
      if (!judgement.cleared_after_s.has_value() && judgement.healed_s.has_value()) {
        judgement.cleared_after_s = now_s - *judgement.healed_s;
      } else if (!judgement.healed_s.has_value() && !judgement.expected.ends_job) {
        judgement.faults.push_back("cleared while the fault was still in force");
        settled_.insert(verdict.id());
      }
      if (judgement.cleared_after_s.has_value()) settled_.insert(verdict.id());
      return;
    }
    // Still the right one? Its connections may have changed.
    if (!judgement.healed_s.has_value()) {
      judgement.verdict = verdict;
      if (std::string why = Mismatch(judgement.expected, verdict); !why.empty()) {
        judgement.faults.push_back(why);
        false_alarms_.push_back(
            {service::Concat(VerdictLine(verdict), " during ", judgement.expected.fault, ": ", why),
             verdict});
        settled_.insert(verdict.id());
      }
    }
    return;
  }
  FaultJudgement* judgement = Responsible(now_s);
  if (verdict.syndrome() == v1::SYNDROME_FAIL_SLOW && judgement != nullptr) {
    if (!WasConfirmed(verdict) || NoConsequence(judgement->expected, verdict).empty()) return;
  }
  const std::string why = judgement == nullptr ? "nothing was wrong" : Mismatch(judgement->expected, verdict);
  if (!WasConfirmed(verdict)) {
    if (judgement != nullptr && in_force_ && open) judgement->suspected[verdict.id()] = verdict;
    if (why.empty() && !judgement->suspected_after_s.has_value()) {
      judgement->suspected_after_s = now_s - judgement->injected_s;
    }
    return;
  }
  if (why.empty() && judgement->verdict_id.empty()) {
    judgement->verdict_id = verdict.id();
    judgement->verdict = verdict;
    judgement->confirmed_after_s = now_s - judgement->injected_s;
    if (!judgement->suspected_after_s.has_value())
      judgement->suspected_after_s = judgement->confirmed_after_s;
    return;
  }
  settled_.insert(verdict.id());
  const std::string reason = why.empty() ? "a second verdict about the same fault" : why;
  false_alarms_.push_back(
      {service::Concat(VerdictLine(verdict),
                       judgement == nullptr ? "" : service::Concat(" during ", judgement->expected.fault),
                       ": ", reason),
       verdict});
  if (judgement != nullptr)
    judgement->faults.push_back(service::Concat("false alarm: ", false_alarms_.back().sentence));
}

void FaultJudge::End(double now_s) {
  if (in_force_) Healed(now_s);
  for (FaultJudgement& judgement : judged_) {
    if (judgement.verdict_id.empty() || judgement.expected.ends_job) continue;
    if (!judgement.cleared_after_s.has_value()) {
      judgement.faults.push_back("the verdict was not cleared after healing");
    } else if (*judgement.cleared_after_s > kAfterHealS) {
      judgement.faults.push_back(absl::StrFormat("cleared %.1f s after healing", *judgement.cleared_after_s));
    }
  }
}

bool FaultJudge::AllRight() const {
  return false_alarms_.empty() &&
         std::all_of(judged_.begin(), judged_.end(),
                     [](const FaultJudgement& judgement) { return judgement.right(); });
}

}  // namespace c4::cli
