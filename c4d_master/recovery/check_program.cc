#include "c4d_master/recovery/check_program.h"

#include "absl/strings/str_replace.h"
#include "service/run_command.h"
#include "service/text.h"

namespace c4::c4d::recovery {

using service::Concat;

DriverReply CheckByProgram(const std::vector<std::string>& words, const char* driver, const std::string& node,
                           absl::Duration timeout, const Driver::Stop& stop) {
  if (words.empty()) {
    return {.outcome = Event::Outcome::kRefused,
            .text = Concat("no check is given (\"check\" of \"", driver,
                           "\"); see the node, then `c4 recovery release`")};
  }
  std::vector<std::string> given = words;
  for (std::string& word : given) word = absl::StrReplaceAll(word, {{"{node}", node}});
  std::string output;
  const absl::Status ran = service::RunCommand(given, "", timeout, stop, &output);
  if (ran.ok()) return {.outcome = Event::Outcome::kDone, .text = ""};
  // It has looked, and does not like what it saw; else it could not be started, or was killed.
  return {.outcome = absl::IsUnavailable(ran) ? Event::Outcome::kRefused : Event::Outcome::kUnknown,
          .text = service::ToUtf8(std::string(ran.message()))};
}

}  // namespace c4::c4d::recovery
