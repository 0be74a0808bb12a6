// What of the hardware's signs most likely caused what a verdict tells, and which class of the C4 paper's
// table 1 (errors of training clusters by root cause) that is: "CUDA error", "ECC/NVLink error", "NCCL
// timeout", "ACK timeout", "network error". A sign counts by what it can cause, how far it lies from the
// onset, and whether it names the culprit's process; where none counts enough, none is named.
//
// Pure; any thread; no errors.
#pragma once

#include <optional>
#include <string>

#include "c4/v1/c4d.pb.h"

namespace c4::c4d {

struct LikelyCause {
  // How the paper files it; by the syndrome alone where no sign says more. Empty: its table does not have it.
  std::string error_class;
  std::optional<int> sign;  // which of the verdict's; nothing: none was seen
  std::string text;         // a sentence, or "none was seen"
};

LikelyCause LikelyCauseOf(const v1::Verdict& verdict);

}  // namespace c4::c4d
