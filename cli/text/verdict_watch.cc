#include "cli/text/verdict_watch.h"

#include "cli/text/verdict_exit.h"

namespace c4::cli {

bool VerdictWatch::Take(const v1::Verdict& verdict) {
  const auto found = known_.find(verdict.id());
  if (found == known_.end()) {
    known_[verdict.id()] = verdict;
    return all_ || IsOpen(verdict);
  }
  v1::Verdict& before = found->second;
  // Ages and evidence move all the time; news is another state, culprit or set of waiting ranks.
  const bool news = before.state() != verdict.state() || before.syndrome() != verdict.syndrome() ||
                    before.culprit().kind() != verdict.culprit().kind() ||
                    before.culprit().rank() != verdict.culprit().rank() ||
                    before.culprit().state() != verdict.culprit().state() ||
                    !std::equal(before.waiting().begin(), before.waiting().end(), verdict.waiting().begin(),
                                verdict.waiting().end());
  before = verdict;
  return news;
}

int VerdictWatch::exit_code() const {
  std::vector<v1::Verdict> verdicts;
  for (const auto& [id, verdict] : known_) verdicts.push_back(verdict);
  return VerdictsExitCode(verdicts);
}

}  // namespace c4::cli
