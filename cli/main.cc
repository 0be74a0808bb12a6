// The `c4` command: finds the verb and runs it.
#include <cstdio>
#include <string>

#include "cli/exit_codes.h"
#include "cli/verb.h"
#include "service/version.h"

namespace {

void PrintUsage(FILE* out) {
  fprintf(out, "usage: c4 VERB [OPTIONS]\n\nverbs:\n");
  for (const c4::cli::Verb* verb : c4::cli::Verbs()) fprintf(out, "  %-10s %s\n", verb->name, verb->summary);
  fprintf(out, "\n`c4 VERB --help` tells a verb's options; `c4 --version` the version.\n");
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    PrintUsage(stderr);
    return c4::cli::kExitUsage;
  }
  const std::string name = argv[1];
  if (name == "--help" || name == "-h" || name == "help") {
    PrintUsage(stdout);
    return c4::cli::kExitOk;
  }
  if (name == "--version") {
    printf("c4 %s\n", std::string(c4::service::Version()).c_str());
    return c4::cli::kExitOk;
  }
  for (const c4::cli::Verb* verb : c4::cli::Verbs()) {
    if (name == verb->name) return verb->run(c4::cli::Arguments(argv + 2, argv + argc));
  }
  fprintf(stderr, "c4: there is no verb '%s'.\n\n", name.c_str());
  PrintUsage(stderr);
  return c4::cli::kExitUsage;
}
