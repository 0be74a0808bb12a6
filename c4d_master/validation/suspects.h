// For detectors: has suspects validated, and says what came of it as evidence. The job is suspended for it,
// so whoever calls this does so only where the operator has allowed it.
//
// On the state thread. The answer comes later, on that thread, once.
#pragma once

#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "c4/v1/c4d.pb.h"
#include "c4/v1/validation.pb.h"
#include "c4d_master/job_snapshot.h"
#include "c4d_master/job_state.h"
#include "c4d_master/validation/validator.h"
#include "service/status.h"

namespace c4::c4d {

struct Suspects {
  std::vector<int32_t> ranks;                      // whose devices, and the links from and to them
  std::vector<std::pair<int32_t, int32_t>> links;  // from one rank to another
};

// `evidence` as EvidenceOf; empty where nothing could be tested, and validation.why() says why.
using OnValidated =
    std::function<void(const v1::Validation& validation, const std::vector<v1::Evidence>& evidence)>;

// FailedPrecondition: the job cannot be suspended now, or is already. InvalidArgument: it has no such rank,
// or no such connection. `on_validated` is not called then.
absl::Status ValidateSuspects(Validator* validator, const JobSnapshot& snapshot, const Suspects& suspects,
                              OnValidated on_validated, Now now);

}  // namespace c4::c4d
