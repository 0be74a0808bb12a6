#include "cli/base/program.h"

#include "cli/base/plain_text.h"

namespace c4::cli {
namespace {

bool of_image = false;

}  // namespace

void BecomeImageProgram() {
  of_image = true;
}

std::string ProgramName() {
  return of_image ? "c4-install" : "c4";
}

std::string CommandFor(std::string_view verb) {
  return of_image && verb == "install" ? ProgramName() : Cat(ProgramName(), " ", verb);
}

}  // namespace c4::cli
