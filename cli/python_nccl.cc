#include "cli/python_nccl.h"

#include <cerrno>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "cli/memory_file.h"
#include "cli/process.h"

namespace c4::cli {
namespace {

constexpr absl::Duration kPythonLimit = absl::Seconds(60);
constexpr char kAnswer[] = "c4-nccl-folder:";
constexpr char kVersion[] = "c4-python:";

// Not from the folder that it is started in, and without loading the package.
constexpr char kScript[] = R"py(
import importlib.util, os, sys
sys.path = [p for p in sys.path if p not in ("", os.getcwd())]
print("c4-python:" + sys.executable + " (" + sys.version.split()[0] + ")")
try:
    spec = importlib.util.find_spec("nvidia.nccl")
except ImportError:
    spec = None
for folder in (spec.submodule_search_locations or []) if spec else []:
    folder = os.path.join(folder, "lib")
    if os.path.lexists(os.path.join(folder, "libnccl.so.2")):
        print("c4-nccl-folder:" + os.path.abspath(folder))
        break
)py";

absl::StatusOr<std::string> Ask(const std::string& python, const std::vector<std::string>& environment) {
  const MemoryFile out("c4-python");
  if (out.fd() < 0) return service::ErrnoStatus(errno, "cannot make a file in memory");
  const absl::StatusOr<pid_t> pid = Spawn({.program = python,
                                           .arguments = {"-c", kScript},
                                           .environment = environment,
                                           .stdout_fd = out.fd(),
                                           .stderr_fd = out.fd()});
  const absl::StatusOr<int> ended = pid.ok() ? WaitForEnd(*pid, kPythonLimit) : pid.status();
  const std::string text = out.Text();
  if (!pid.ok()) return pid.status();
  if (!ended.ok()) {
    return absl::DeadlineExceededError(absl::StrCat(python, " did not answer: ", ended.status().message()));
  }
  if (*ended == 0) return text;
  std::string said = text.substr(0, text.find_last_not_of('\n') + 1);
  said = said.substr(said.rfind('\n') + 1);
  return absl::FailedPreconditionError(
      absl::StrCat(python, " cannot be asked where its NCCL is: it ", DescribeExit(*ended), " (", said, ")"));
}

}  // namespace

absl::StatusOr<std::string> PythonNcclFolder(const std::string& python) {
  const std::vector<std::string> environment = OwnEnvironment();
  std::string program = python;
  if (program.empty()) program = FindProgram("python3", environment).ok() ? "python3" : "python";
  const absl::StatusOr<std::string> text = Ask(program, environment);
  if (absl::IsNotFound(text.status())) {
    return absl::NotFoundError(
        absl::StrCat(text.status().message(), ": name one with --python PATH, or NCCL's folder"));
  }
  if (!text.ok()) return text.status();
  std::string who = program;
  for (const absl::string_view line : absl::StrSplit(*text, '\n')) {
    if (absl::StartsWith(line, kVersion)) who = std::string(absl::StripPrefix(line, kVersion));
    if (absl::StartsWith(line, kAnswer)) return std::string(absl::StripPrefix(line, kAnswer));
  }
  return absl::NotFoundError(absl::StrCat(who,
                                          " has no nvidia/nccl/lib/libnccl.so.2: pip install "
                                          "nvidia-nccl-cu12 or -cu13 there, name another Python "
                                          "with --python PATH, or NCCL's folder"));
}

}  // namespace c4::cli
