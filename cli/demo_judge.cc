#include "cli/demo_judge.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace c4::cli {
namespace {

bool IsOpen(const v1::Verdict& verdict) {
  return verdict.state() != v1::VERDICT_STATE_CLEARED;
}

std::string Key(const v1::Verdict& verdict) {
  return absl::StrCat(verdict.id(), "/", verdict.syndrome(), "/", verdict.culprit().kind(), "/",
                      verdict.culprit().rank());
}

}  // namespace

void DemoJudge::BeginPhase(DemoPhaseKind kind, const std::string& injected, const std::string& expected,
                           int64_t now_ns) {
  DemoPhase phase;
  phase.kind = kind;
  phase.injected = injected;
  phase.expected = expected;
  phases_.push_back(std::move(phase));
  phase_start_ns_ = now_ns;
  phase_open_ = true;
}

bool DemoJudge::NamesCulprit(const v1::Verdict& verdict) const {
  return verdict.syndrome() == v1::SYNDROME_NON_COMMUNICATION_HANG &&
         verdict.culprit().kind() == v1::CULPRIT_KIND_RANK && verdict.culprit().rank() == culprit_.rank;
}

void DemoJudge::Observe(const std::vector<v1::Verdict>& verdicts, int64_t now_ns) {
  const double since_onset_s = static_cast<double>(now_ns - phase_start_ns_) / 1e9;
  for (const v1::Verdict& verdict : verdicts) ObserveOne(verdict, since_onset_s);
}

void DemoJudge::ObserveOne(const v1::Verdict& verdict, double since_onset_s) {
  DemoPhase& phase = phases_.back();
  // Judged when it came up, and settled since: no news.
  if (!IsOpen(verdict) && verdict.id() != verdict_id_ && false_alarms_.contains(Key(verdict))) return;
  phase.verdicts[verdict.id()] = verdict;

  if (phase.kind == DemoPhaseKind::kStopped && verdict_id_.empty() && IsOpen(verdict) &&
      NamesCulprit(verdict)) {
    verdict_id_ = verdict.id();
  }
  const bool right = !verdict_id_.empty() && verdict.id() == verdict_id_ && NamesCulprit(verdict);
  const bool late =
      phase.kind == DemoPhaseKind::kResumed && phase.onset_to_cleared_s.has_value() && IsOpen(verdict);
  if (!right || late) {
    false_alarms_.insert(late ? Key(verdict) + "/again" : Key(verdict));
    return;
  }
  if (phase.kind == DemoPhaseKind::kStopped) {
    if (!phase.onset_to_verdict_s.has_value()) phase.onset_to_verdict_s = since_onset_s;
    if (verdict.state() == v1::VERDICT_STATE_CONFIRMED && !phase.onset_to_confirmed_s.has_value()) {
      phase.onset_to_confirmed_s = since_onset_s;
    }
  }
  if (phase.kind == DemoPhaseKind::kResumed && !IsOpen(verdict) && !phase.onset_to_cleared_s.has_value()) {
    phase.onset_to_cleared_s = since_onset_s;
  }
}

void DemoJudge::AddFault(const std::string& fault) {
  phases_.back().faults.push_back(fault);
}

const v1::Verdict* DemoJudge::verdict() const {
  if (phases_.empty()) return nullptr;
  const auto found = phases_.back().verdicts.find(verdict_id_);
  return found == phases_.back().verdicts.end() ? nullptr : &found->second;
}

void DemoJudge::CheckStopped() {
  const DemoPhase& phase = phases_.back();
  const v1::Verdict* found = verdict();
  if (found == nullptr) {
    AddFault(absl::StrCat("no verdict named rank ", culprit_.rank));
    return;
  }
  if (*phase.onset_to_verdict_s > suspect_limit_s_) {
    AddFault(absl::StrFormat("the verdict took %.1f s, more than %.0f s", *phase.onset_to_verdict_s,
                             suspect_limit_s_));
  }
  if (!phase.onset_to_confirmed_s.has_value()) AddFault("the verdict was not confirmed");
  if (!IsOpen(*found)) AddFault("the verdict was cleared while the rank was still stopped");
  const v1::ProcessId& process = found->culprit().process();
  if (process.pid() != culprit_.pid) {
    AddFault(absl::StrCat("the verdict names pid ", process.pid(), " instead of ", culprit_.pid));
  }
  if (process.host() != culprit_.host) {
    AddFault(absl::StrCat("the verdict names host '", process.host(), "' instead of '", culprit_.host, "'"));
  }
  if (found->culprit().state() != v1::PROCESS_STATE_STOPPED)
    AddFault("the verdict does not say that it is stopped");
  if (found->evidence().empty()) AddFault("the verdict has no evidence");
}

void DemoJudge::EndPhase() {
  if (!phase_open_) return;
  phase_open_ = false;
  DemoPhase& phase = phases_.back();
  if (phase.kind == DemoPhaseKind::kStopped) CheckStopped();
  if (phase.kind == DemoPhaseKind::kResumed && !phase.onset_to_cleared_s.has_value()) {
    AddFault("the verdict was not cleared");
  }
  for (const auto& [id, verdict] : phase.verdicts) {
    const bool wrong = false_alarms_.contains(Key(verdict));
    const bool again =
        phase.kind == DemoPhaseKind::kResumed && false_alarms_.contains(Key(verdict) + "/again");
    if (wrong || again) {
      AddFault(absl::StrCat("false alarm: verdict ", id, " names rank ", verdict.culprit().rank(),
                            again ? " again" : ""));
    }
  }
}

bool DemoJudge::AllRight() const {
  if (phases_.size() != 3 || phase_open_ || false_alarms() != 0) return false;
  for (const DemoPhase& phase : phases_) {
    if (!phase.correct()) return false;
  }
  return true;
}

}  // namespace c4::cli
