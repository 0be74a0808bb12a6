#include "cli/verbs/ask_master.h"

#include <cstdio>

#include "cli/exit_codes.h"

namespace c4::cli {

std::string TakeVerb(Arguments* arguments) {
  if (arguments->empty() || arguments->front().starts_with('-')) return "";
  std::string word = arguments->front();
  arguments->erase(arguments->begin());
  return word;
}

int ComplainOf(const std::string& verb, const absl::Status& status) {
  fprintf(stderr, "c4 %s: %s\n", verb.c_str(), std::string(status.message()).c_str());
  const bool answered = absl::IsNotFound(status) || absl::IsInvalidArgument(status) ||
                        absl::IsFailedPrecondition(status) || absl::IsResourceExhausted(status);
  return answered ? kExitFailed : kExitUnreachable;
}

}  // namespace c4::cli
