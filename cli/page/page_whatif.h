// What-if questions of the operator's page about the profiles in recordings: each recording is analysed once,
// the newest analyses are kept, so that another question takes a replay and no more. Any thread; one question
// at a time.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "analysis/whatif/analysis.h"
#include "c4/v1/page.pb.h"
#include "service/status.h"

namespace c4::cli {

class WhatIfBook {
 public:
  static constexpr size_t kMostKept = 4;

  // `fix`: words of `c4 whatif --fix`; none: what the stragglers cost. FailedPrecondition: the recording
  // holds no profile, and how to get one; InvalidArgument: a word is none.
  absl::StatusOr<v1::PageWhatIf> Ask(const std::string& recording, const std::vector<std::string>& fix);

 private:
  struct Kept;
  absl::StatusOr<std::shared_ptr<const Kept>> Of(const std::string& recording);

  std::mutex mutex_;
  std::deque<std::shared_ptr<const Kept>> kept_;
};

}  // namespace c4::cli
