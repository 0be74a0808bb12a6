// What a validation is to test, and where the job is to stand still for it, from the job as it is.
//
// Pure functions of the snapshot and the request; one thread. Errors are sentences for whoever asked.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "c4/v1/validation.pb.h"
#include "c4d_master/job_snapshot.h"
#include "service/status.h"

namespace c4::c4d {

inline constexpr size_t kMostTestedLinks = 4096;

struct PlannedProcess {
  std::string host;
  uint32_t pid = 0;
  int32_t rank = -1;
  bool device = false;  // its device is tested
  bool tester = false;  // it needs a tester: its device is tested, or a link of its host's
};

struct PlannedLink {
  size_t from = 0;  // indices of processes, whose testers send and receive
  size_t to = 0;
  std::string from_address;  // without ports
  std::string to_address;
};

struct ValidationPlan {
  std::vector<PlannedProcess> processes;  // all of the job: every one is held
  // 1: cut at a number of collectives of the communicator, which has all of them as its members; 2: there is
  // none, so at a number of marked steps.
  uint32_t count = 1;
  uint64_t communicator_id = 0;
  std::vector<PlannedLink> links;
  size_t links_left_out = 0;  // beyond kMostTestedLinks
};

// Beside what is asked for, a few others are tested, to be compared with. FailedPrecondition: the job cannot
// be suspended now. InvalidArgument: it has no such rank or link.
absl::StatusOr<ValidationPlan> PlanValidation(const JobSnapshot& snapshot,
                                              const v1::RunValidationRequest& request);

}  // namespace c4::c4d
