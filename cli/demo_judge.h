// The judge of `c4 demo`: told what was injected and what the master's API gave at each look, says whether
// the right verdict came in time and counts false alarms.
//
// Pure: times are passed in (nanoseconds of one monotonic clock). One thread.
//
// A false alarm is a verdict of any state that names anybody but the injected rank, or that is open in a
// phase in which nothing is wrong, or a second verdict about the same fault. Each is counted once.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "c4/v1/c4d.pb.h"

namespace c4::cli {

enum class DemoPhaseKind {
  kHealthy,  // no verdict may be there
  kStopped,  // the stopped rank is to be suspected, then confirmed
  kResumed,  // that verdict is to be cleared, and no other may come
};

// Whom the verdict has to name.
struct DemoCulprit {
  int rank = 0;
  uint32_t pid = 0;
  std::string host;
};

struct DemoPhase {
  DemoPhaseKind kind = DemoPhaseKind::kHealthy;
  std::string injected;
  std::string expected;
  std::map<std::string, v1::Verdict> verdicts;  // by id, as last seen in this phase
  std::vector<std::string> faults;              // why it is not correct; empty when it is
  std::optional<double> onset_to_verdict_s;     // kStopped: from the injection to the first sight of it
  std::optional<double> onset_to_confirmed_s;
  std::optional<double> onset_to_cleared_s;  // kResumed

  bool correct() const { return faults.empty(); }
};

class DemoJudge {
 public:
  DemoJudge(DemoCulprit culprit, double suspect_limit_s)
      : culprit_(std::move(culprit)), suspect_limit_s_(suspect_limit_s) {}

  void BeginPhase(DemoPhaseKind kind, const std::string& injected, const std::string& expected,
                  int64_t now_ns);
  // All verdicts that the master has, cleared ones too.
  void Observe(const std::vector<v1::Verdict>& verdicts, int64_t now_ns);
  // Something that only the caller can see was wrong: the job stands still, the master does not answer.
  void AddFault(const std::string& fault);
  // Draws the conclusions of the phase; call once, before the next one begins.
  void EndPhase();

  // Of the phase under way.
  bool suspected() const { return phases_.back().onset_to_verdict_s.has_value(); }
  bool confirmed() const { return phases_.back().onset_to_confirmed_s.has_value(); }
  bool cleared() const { return phases_.back().onset_to_cleared_s.has_value(); }
  // The verdict about the injected fault; nullptr before there is one.
  const v1::Verdict* verdict() const;

  const std::vector<DemoPhase>& phases() const { return phases_; }
  int false_alarms() const { return static_cast<int>(false_alarms_.size()); }
  // All three phases ended, each correct, without a false alarm.
  bool AllRight() const;

 private:
  bool NamesCulprit(const v1::Verdict& verdict) const;
  void ObserveOne(const v1::Verdict& verdict, double since_onset_s);
  void CheckStopped();

  const DemoCulprit culprit_;
  const double suspect_limit_s_;
  std::vector<DemoPhase> phases_;
  int64_t phase_start_ns_ = 0;
  bool phase_open_ = false;
  std::string verdict_id_;              // of the right verdict, from kStopped on
  std::set<std::string> false_alarms_;  // id, syndrome and culprit
};

}  // namespace c4::cli
