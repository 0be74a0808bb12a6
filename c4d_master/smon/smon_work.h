// What SMon has done elsewhere, because it takes long: analyses. Results are taken when the state thread
// looks for them, a few times a second, so that nobody waits for anybody.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "c4d_master/smon/profile_analysis.h"

namespace c4::c4d {

struct Analysed {
  uint64_t session = 0;
  absl::StatusOr<ProfileReport> report = absl::UnknownError("");
};

// Called by one thread, the state thread.
class SmonWork {
 public:
  virtual ~SmonWork() = default;

  // What is started ends, sooner or later, among what is taken.
  virtual void Analyse(uint64_t session, ProfiledJob profile) = 0;

  virtual std::vector<Analysed> TakeAnalysed() = 0;
};

}  // namespace c4::c4d
