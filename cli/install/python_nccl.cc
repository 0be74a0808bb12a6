#include "cli/install/python_nccl.h"

#include <cerrno>
#include <chrono>
#include <cstring>

#include "cli/base/child.h"
#include "cli/base/memory_file.h"
#include "cli/base/plain_text.h"

namespace c4::cli {
namespace {

constexpr std::chrono::seconds kPythonLimit(60);
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

StatusOr<std::string> Ask(const std::string& python, const std::vector<std::string>& environment) {
  const MemoryFile out("c4-python");
  if (out.fd() < 0) return ErrnoStatus(errno, "cannot make a file in memory");
  const StatusOr<pid_t> pid = StartProgram({.program = python,
                                            .arguments = {"-c", kScript},
                                            .environment = environment,
                                            .stdout_fd = out.fd(),
                                            .stderr_fd = out.fd()});
  const StatusOr<int> ended = pid.ok() ? ReapWithin(*pid, kPythonLimit) : pid.status();
  const std::string text = out.Text();
  if (!pid.ok()) return pid.status();
  if (!ended.ok()) {
    return DeadlineExceededError(Cat(python, " did not answer: ", ended.status().message()));
  }
  if (*ended == 0) return text;
  std::string said = text.substr(0, text.find_last_not_of('\n') + 1);
  said = said.substr(said.rfind('\n') + 1);
  return FailedPreconditionError(
      Cat(python, " cannot be asked where its NCCL is: it ", DescribeExit(*ended), " (", said, ")"));
}

}  // namespace

StatusOr<std::string> PythonNcclFolder(const std::string& python) {
  const std::vector<std::string> environment = OwnEnvironment();
  std::string program = python;
  if (program.empty()) program = ProgramPath("python3", environment).ok() ? "python3" : "python";
  const StatusOr<std::string> text = Ask(program, environment);
  if (IsNotFound(text.status())) {
    return NotFoundError(Cat(text.status().message(), ": name one with --python PATH, or NCCL's folder"));
  }
  if (!text.ok()) return text.status();
  std::string who = program;
  for (const std::string& line : Split(*text, "\n")) {
    if (line.starts_with(kVersion)) who = line.substr(strlen(kVersion));
    if (line.starts_with(kAnswer)) return line.substr(strlen(kAnswer));
  }
  return NotFoundError(Cat(who,
                           " has no nvidia/nccl/lib/libnccl.so.2: pip install "
                           "nvidia-nccl-cu12 or -cu13 there, name another Python "
                           "with --python PATH, or NCCL's folder"));
}

}  // namespace c4::cli
