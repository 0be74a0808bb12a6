// What a communication is for in a training step: its type in the what-if analysis, from the role of its
// communicator, the stage of its peer, and the marks before and behind its call. Part of JoinProfile.
//
// Pure; any thread.
#pragma once

#include "analysis/whatif/operation_type.h"
#include "c4d_master/smon/communicator_roles.h"
#include "c4d_master/smon/worker_steps.h"

namespace c4::c4d {

struct OperationVerdict {
  enum class Kind {
    kTyped,    // `type` says what it is
    kWithin,   // a part of something that is marked, or of this worker alone
    kOther,    // the analysis has no place for it
    kUnknown,  // the members of its communicator are not known
  };
  Kind kind = Kind::kOther;
  whatif::OperationType type = whatif::OperationType::kGc;
  bool guessed = false;         // its direction: both ways lead to the same stage
  bool in_computation = false;  // a transfer between stages that began and ended within a marked computation
};

OperationVerdict JudgeOperation(const CommunicationSpan& operation, const RoledCommunicator& communicator,
                                const DeclaredWorker& worker, const WorkerSteps::Step& step);

}  // namespace c4::c4d
