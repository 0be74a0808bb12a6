// What a master has told of its job so far, for tests of experiments (c4d_master/intervention). All read the
// handler anew; on the thread that owns it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "c4d_master/c4d_handler.h"
#include "service/verdict_json.h"

namespace c4::c4d {

inline std::vector<v1::Verdict> AllVerdicts(const C4dHandler& handler) {
  const v1::ListVerdictsReply reply = handler.ListVerdicts(/*include_cleared=*/true);
  return {reply.verdicts().begin(), reply.verdicts().end()};
}

// All of them as JSON, for the message of a test that fails.
inline std::string StoryOf(const C4dHandler& handler) {
  std::string story;
  for (const v1::Verdict& verdict : AllVerdicts(handler)) story += service::VerdictJson(verdict, 1) + "\n";
  return story;
}

// The newest experiment of any verdict.
inline std::optional<v1::Intervention> NewestExperiment(const C4dHandler& handler) {
  std::optional<v1::Intervention> newest;
  for (const v1::Verdict& verdict : AllVerdicts(handler)) {
    for (const v1::Intervention& one : verdict.interventions()) newest = one;
  }
  return newest;
}

inline bool IsExperimentOver(const C4dHandler& handler) {
  const std::optional<v1::Intervention> one = NewestExperiment(handler);
  return one && one->ended_unix_ns() != 0;
}

}  // namespace c4::c4d
