// The `c4-install` command, for training images: what `c4 install`, `c4 doctor --image` and `c4 env` do, in a
// program that needs nothing but libc. `c4` itself needs some sixty libraries, which an image has not.
#include <cstdio>
#include <string>

#include "cli/base/child.h"
#include "cli/base/program.h"
#include "cli/doctor/image_check.h"
#include "cli/exit_codes.h"
#include "cli/options.h"
#include "cli/verb.h"
#include "cli/verbs/show_environment.h"

namespace c4::cli {
namespace {

int RunImageDoctor(const Arguments& arguments) {
  ImageCheck check;
  Options options("doctor", "check library and settings of this image, and say what to do");
  check.Declare(&options);
  if (const std::optional<int> exit_code = options.Parse(arguments)) return *exit_code;
  return check.Show(check.Run(ImageKnobTables(), OwnEnvironment()));
}

int RunImageEnv(const Arguments& arguments) {
  return ShowEnvironment(arguments, ImageKnobTables(), Manual::kNot);
}

int Run(const Arguments& arguments) {
  const std::string first = arguments.empty() ? "" : arguments.front();
  if (first == "doctor") return RunImageDoctor({arguments.begin() + 1, arguments.end()});
  if (first == "env") return RunImageEnv({arguments.begin() + 1, arguments.end()});
  const int exit_code = kInstallVerb.run(arguments);
  if (first == "--help" || first == "-h") {
    fputs(
        "\nalso:\n"
        "  c4-install doctor     check library and settings of this image; as `c4 doctor --image`\n"
        "  c4-install env        show the library's environment variables; as `c4 env`\n"
        "                        (a folder of that name: ./doctor, ./env)\n",
        stdout);
  }
  return exit_code;
}

}  // namespace
}  // namespace c4::cli

int main(int argc, char** argv) {
  c4::cli::BecomeImageProgram();
  return c4::cli::Run(c4::cli::Arguments(argv + 1, argv + argc));
}
