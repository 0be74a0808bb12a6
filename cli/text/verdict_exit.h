// The exit code of `c4 verdicts`: what the worst open verdict is. Pure; any thread.
#pragma once

#include "c4/v1/c4d.pb.h"
#include "cli/exit_codes.h"

namespace c4::cli {

inline bool IsOpen(const v1::Verdict& verdict) {
  return verdict.state() != v1::VERDICT_STATE_CLEARED;
}

template <typename Verdicts>
int VerdictsExitCode(const Verdicts& verdicts) {
  int exit_code = kExitOk;
  for (const v1::Verdict& verdict : verdicts) {
    if (verdict.state() == v1::VERDICT_STATE_CONFIRMED) return kExitConfirmed;
    if (IsOpen(verdict)) exit_code = kExitSuspected;
  }
  return exit_code;
}

// A master that no agent has found: that it has no verdict means nothing.
inline bool KnowsNothing(const v1::ListVerdictsReply& reply) {
  return reply.has_agents() && reply.agents() == 0 && VerdictsExitCode(reply.verdicts()) == kExitOk;
}

inline int VerdictsExitCode(const v1::ListVerdictsReply& reply) {
  return KnowsNothing(reply) ? kExitUnreachable : VerdictsExitCode(reply.verdicts());
}

}  // namespace c4::cli
