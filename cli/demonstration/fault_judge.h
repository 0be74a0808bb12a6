// The judge of injected faults, for the demo and the accuracy benchmark: told what was injected and healed
// when, and shown the master's verdicts again and again, it says for each fault whether the verdict of the
// accepted table (docs/verdicts.md) came in time, and counts everything else as a false alarm.
//
// Only confirmed verdicts count; what was no more than suspected is neither right nor wrong. A confirmed
// verdict belongs to the fault in force when it was first seen confirmed, or to the one that was healed less
// than kAfterHealS before.
//
// Pure: times are passed in (seconds on one clock). One thread.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "c4/v1/c4d.pb.h"

namespace c4::cli {

inline constexpr double kAfterHealS = 15;

// A queue pair: address:port of its sender and of its receiver.
using Flow = std::pair<std::string, std::string>;

// What the table accepts for one fault.
struct ExpectedVerdict {
  std::string fault;     // as injected: "slow-link leaf0-spine1"
  std::string expected;  // a sentence for people
  v1::Syndrome syndrome = v1::SYNDROME_UNSPECIFIED;
  v1::CulpritKind kind = v1::CULPRIT_KIND_UNSPECIFIED;  // unspecified: no verdict at all
  int rank = -1;                                        // of a rank
  std::string host;                                     // of a rank or a NIC
  std::set<Flow> must;                                  // connections that have to be named
  std::set<Flow> may;                                   // others that may be
  std::string cable;                                    // of a link: "leaf0-spine1"
  std::set<std::string> shared;  // others that all take which have to be named: ambiguous with them is right
  double limit_s = 5;            // to the confirmed verdict
  bool ends_job = false;
};

struct FaultJudgement {
  ExpectedVerdict expected;
  double injected_s = 0;
  std::optional<double> healed_s;
  std::optional<double> suspected_after_s;
  std::optional<double> confirmed_after_s;
  std::optional<double> cleared_after_s;  // since healing
  std::string verdict_id;                 // the right one
  v1::Verdict verdict;                    // as last seen open
  std::vector<std::string> faults;        // why it is not right
  // By id: what was suspected while the fault was in force, as it was last seen before it was confirmed.
  std::map<std::string, v1::Verdict> suspected;

  bool right() const { return faults.empty(); }
};

// A confirmed verdict that was not to come.
struct FalseAlarm {
  std::string sentence;
  v1::Verdict verdict;  // as it was when it was judged
};

class FaultJudge {
 public:
  // Between two faults nothing is expected. REQUIRES: the last one was healed.
  void Injected(ExpectedVerdict expected, double now_s);
  // More became known of the flows of the fault in force (what was in flight when it struck).
  void Narrow(std::set<Flow> must, std::set<Flow> may, std::set<std::string> shared = {});
  void Healed(double now_s);
  // All verdicts that the master has, cleared ones too.
  void Observe(const std::vector<v1::Verdict>& verdicts, double now_s);
  // Nothing more will come; judges what is left open.
  void End(double now_s);

  // Of the fault that was injected last.
  bool suspected() const { return !judged_.empty() && judged_.back().suspected_after_s.has_value(); }
  bool confirmed() const { return !judged_.empty() && judged_.back().confirmed_after_s.has_value(); }
  bool cleared() const { return !judged_.empty() && judged_.back().cleared_after_s.has_value(); }

  const std::vector<FaultJudgement>& judged() const { return judged_; }
  const std::vector<FalseAlarm>& false_alarms() const { return false_alarms_; }
  bool AllRight() const;

 private:
  // Why the verdict is not the expected one; empty when it is.
  static std::string Mismatch(const ExpectedVerdict& expected, const v1::Verdict& verdict);
  // Of a fail-slow: why it does not follow from the fault; empty when it may.
  static std::string NoConsequence(const ExpectedVerdict& expected, const v1::Verdict& verdict);
  static std::string Missing(const ExpectedVerdict& expected, const v1::Verdict& verdict);
  FaultJudgement* Responsible(double now_s);
  void ObserveOne(const v1::Verdict& verdict, double now_s);
  void Close(FaultJudgement* judgement);

  std::vector<FaultJudgement> judged_;
  std::vector<FalseAlarm> false_alarms_;
  std::set<std::string> settled_;  // ids of verdicts that were judged wrong: counted once
  bool in_force_ = false;
};

// What was suspected of a fault that was not judged right: "suspected: ..." and the verdict's text; empty
// where there is nothing to tell.
std::string SuspectedText(const FaultJudgement& judgement);

// "non-communication hang of rank 2 on host2", for sentences.
std::string VerdictLine(const v1::Verdict& verdict);

}  // namespace c4::cli
