// When to do what about a fail-slow (papers/falcon.txt, section 5.2): a ski-rental over the strategies S1 (do
// nothing) to S4 (restart from a checkpoint). Nobody knows how long an event lasts. So a strategy is chosen
// when what the event has cost since the last step equals what the strategy costs; the account then begins
// anew, with what is still lost. Costs that were measured in this job come before estimates (CostBook).
//
// Each event has an account of its own; one action at a time is under way in a job, as each changes what the
// others are measured by. Relief takes a step back by the same rule: once the part that was slow is well,
// what the action still costs is counted, and it is taken back when that equals the cost of taking it back.
// That is S2 alone: other places, once taken, cost nothing any more, and a restart is over when it is done.
//
// Pure: times are the caller's, in seconds of one clock. One thread.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace c4::mitigation {

enum class Strategy { kIgnore = 1, kMicroBatches = 2, kPlacement = 3, kRestart = 4 };
// "S1" to "S4".
const char* StrategyName(Strategy strategy);

// What a strategy has cost so far in this job: the time that it stood still or lost.
class CostBook {
 public:
  void Measured(Strategy strategy, double cost_s);
  // The median of the newest five; nothing: never measured.
  std::optional<double> Of(Strategy strategy) const;
  size_t Times(Strategy strategy) const;

 private:
  std::map<Strategy, std::vector<double>> costs_;
  std::map<Strategy, size_t> times_;
};

// What could be done about an event now.
struct Offer {
  Strategy strategy = Strategy::kIgnore;
  std::string unavailable;  // why it cannot be done, a sentence; empty: it can
  double estimate_s = 0;    // of its cost, for as long as none was measured; 0: nobody can say
  double promised_s = 0;    // an iteration with it
};

enum class Part { kUnknown, kSlow, kWell };

// An event as it is seen now (a verdict of the syndrome fail-slow).
struct EventState {
  std::string id;
  double healthy_s = 0;     // an iteration before it
  double iteration_s = 0;   // now
  uint64_t iterations = 0;  // since its onset
  double lost_s = 0;        // that these took beyond healthy_s each
  Part part = Part::kUnknown;
  bool is_over = false;  // there will be nothing more of it: the job has ended, or is another one
};

struct Decision {
  enum class Kind {
    kAct,       // do it
    kStepBack,  // take back what was done last
    kSkip,      // a strategy that is not for this event
    kBrought,   // what an action has brought was measured
    kFailed,    // an action was not taken
    kRelieved,  // the event is over, and nothing of ours is left
  };
  Kind kind = Kind::kSkip;
  double at_s = 0;
  std::string event;
  Strategy strategy = Strategy::kIgnore;
  double account_s = 0;  // what the event had cost since the last step
  double cost_s = 0;     // of the strategy; of kBrought: as measured
  bool cost_measured = false;
  double healthy_s = 0;
  double iteration_s = 0;  // when it was decided
  double promised_s = 0;   // an iteration with it; 0: nothing is promised
  std::string why;         // a sentence
};
const char* DecisionWord(Decision::Kind kind);

struct PlannerOptions {
  double least_share = 0.05;     // of the slow-down: who promises less is left out
  double rest_share = 0.1;       // of an iteration: so little, once something is in force, is left alone
  uint64_t measured_after = 10;  // iterations, for what an action has brought
  double answer_s = 120;  // for a plan to be taken: a framework may never ask; a restart takes what it takes
  uint64_t well_iterations = 10;  // that the part has to be well for
};

class Planner {
 public:
  explicit Planner(const PlannerOptions& options = {}) : options_(options) {}

  // What is to be done, and what was learnt. `offers`: for this event, any order. An action that is decided
  // is under way until Done or Refused is called, or its time is over.
  std::vector<Decision> Observe(const EventState& event, const std::vector<Offer>& offers, double now_s);
  // The action under way was taken; it cost so much.
  void Done(double cost_s, double now_s);
  std::vector<Decision> Refused(const std::string& why, double now_s);

  bool acting() const { return acting_.has_value(); }
  // About this event; kIgnore: nothing.
  Strategy ActingOn(const std::string& event) const {
    return acting_.has_value() && acting_->event == event ? acting_->strategy : Strategy::kIgnore;
  }
  // What has been done about it last and not been taken back; kIgnore: nothing.
  Strategy LevelOf(const std::string& event) const;
  bool IsInForce(const std::string& event, Strategy strategy) const;
  CostBook& costs() { return costs_; }
  const CostBook& costs() const { return costs_; }

 private:
  struct Applied {
    Strategy strategy = Strategy::kIgnore;
    double promised_s = 0;
    double cost_s = 0;
    uint64_t at_iterations = 0;
    double at_lost_s = 0;
    bool told = false;  // what it brought
  };
  struct Account {
    EventState newest;
    double since_lost_s = 0;                  // lost_s at the last step
    std::vector<Applied> applied;             // the last one is in force
    std::map<Strategy, std::string> skipped;  // told already, with the reason
    std::optional<uint64_t> well_since;       // iterations
    double well_lost_s = 0;
  };
  struct Acting {
    std::string event;
    Strategy strategy = Strategy::kIgnore;
    bool back = false;
    double since_s = 0;
    double promised_s = 0;
  };
  double CostOf(const Offer& offer, bool* measured) const;
  Decision Base(const Account& account, Decision::Kind kind, Strategy strategy, double now_s) const;
  void Tell(Account* account, double now_s, std::vector<Decision>* decisions);
  bool StepBack(Account* account, double now_s, std::vector<Decision>* decisions);
  void Choose(Account* account, const std::vector<Offer>& offers, double now_s,
              std::vector<Decision>* decisions);
  void Skip(Account* account, Strategy strategy, const std::string& why, double now_s,
            std::vector<Decision>* decisions);

  const PlannerOptions options_;
  CostBook costs_;
  std::map<std::string, Account> accounts_;  // by event
  std::optional<Acting> acting_;
};

}  // namespace c4::mitigation
