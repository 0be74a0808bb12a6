#include "cli/doctor/image_check.h"

#include <cstdio>

#include "cli/base/child.h"
#include "cli/base/plain_text.h"
#include "cli/base/program.h"
#include "cli/doctor/device_files.h"
#include "cli/exit_codes.h"
#include "cli/text/screen.h"

namespace c4::cli {

Findings JudgeKnobs(KnobTables tables, const std::vector<std::string>& environment) {
  Findings findings;
  for (const UnknownVariable& variable : UnknownVariables(tables, environment)) {
    findings.push_back({Grade::kNote, "settings", variable.name + ": nothing reads it",
                        variable.meant.empty() ? Cat("`", CommandFor("env"), "` shows what there is")
                                               : Cat("is ", variable.meant, " meant?")});
  }
  for (const KnobTable& table : tables) {
    for (const Knob& knob : table.knobs) {
      const std::optional<std::string> value = EnvironmentValue(environment, knob.name);
      if (!value.has_value() || value->empty()) continue;
      const std::optional<std::string> fault = ValueFault(knob, *value);
      if (!fault.has_value()) continue;
      // The library goes on with its default; a daemon and the command end.
      const bool of_library = table.knobs.data() == LibraryKnobs().data();
      findings.push_back({Grade::kProblem, "settings", Cat(knob.name, "=", *value, " ", *fault, ": refused"),
                          Cat(of_library ? "the default holds, " + knob.default_value
                                         : table.owner + " does not start with it",
                              "; correct it or unset it")});
    }
  }
  return findings;
}

void ImageCheck::Declare(Options* options) {
  options->Flag("--json", &json_, "one JSON document: {\"problems\",\"notes\",\"findings\":[...]}");
  options->Text("--library", &question_.library, "PATH",
                "look at this libnccl.so.2; default: the one that programs here get");
  options->Text("--python", &question_.python, "PATH",
                "the Python whose packages to look at; default: python3 of PATH");
}

Findings ImageCheck::Run(KnobTables tables, const std::vector<std::string>& environment) {
  question_.has_gpu = CountGpus("") > 0;
  Findings findings = JudgeLibraries(ReadLibraries(question_));
  for (Finding& finding : JudgeKnobs(tables, environment)) findings.push_back(std::move(finding));
  return findings;
}

int ImageCheck::Show(const Findings& findings) const {
  fputs((json_ ? FindingsJson(findings) : FindingsText(findings, ScreenOf(stdout).columns)).c_str(), stdout);
  return CountOf(findings, Grade::kProblem) == 0 ? kExitOk : kExitFailed;
}

}  // namespace c4::cli
