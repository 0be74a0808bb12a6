// c4 install: puts our library in the place of the vendor's NCCL, and back.
#include <cstdio>

#include <nlohmann/json.hpp>

#include "cli/base/plain_text.h"
#include "cli/base/program.h"
#include "cli/exit_codes.h"
#include "cli/install/installation.h"
#include "cli/install/installer.h"
#include "cli/install/own_library.h"
#include "cli/install/python_nccl.h"
#include "cli/options.h"
#include "cli/verb.h"

namespace c4::cli {
namespace {

constexpr char kSummary[] = "put C4's library in the place of NCCL's, and back";

const char* Word(InstallResult result) {
  switch (result) {
    case InstallResult::kInstalled:
      return "installed";
    case InstallResult::kUpdated:
      return "updated";
    case InstallResult::kAlready:
      return "already installed";
    case InstallResult::kUndone:
      return "undone";
    case InstallResult::kNothingToUndo:
      return "nothing to undo";
  }
  return "?";
}

std::string Text(const InstallOutcome& outcome) {
  const std::string library = Cat(outcome.folder, "/", kLibraryName);
  switch (outcome.result) {
    case InstallResult::kInstalled:
    case InstallResult::kUpdated:
    case InstallResult::kAlready:
      return Cat(Word(outcome.result), ": ", library, " is C4's; NCCL ", outcome.original_version,
                 " behind it is ", outcome.original, "; loaded and checked\n");
    case InstallResult::kUndone:
      return Cat("undone: ", library, " is NCCL ", outcome.original_version, " again, as it was before\n");
    case InstallResult::kNothingToUndo:
      return Cat("nothing to undo: ", library, " is not C4's\n");
  }
  return "";
}

std::string JsonText(const InstallOutcome& outcome) {
  const bool back =
      outcome.result == InstallResult::kUndone || outcome.result == InstallResult::kNothingToUndo;
  nlohmann::ordered_json document = {{"result", Word(outcome.result)},
                                     {"folder", outcome.folder},
                                     {"library", outcome.folder + "/" + kLibraryName},
                                     {"installed", !back}};
  document["original"] = back ? nlohmann::ordered_json(nullptr) : nlohmann::ordered_json(outcome.original);
  document["nccl"] = outcome.original_version.empty() ? nlohmann::ordered_json(nullptr)
                                                      : nlohmann::ordered_json(outcome.original_version);
  return document.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

int Fail(const Status& status) {
  fprintf(stderr, "%s: %s\n", CommandFor("install").c_str(), status.message().c_str());
  return kExitFailed;
}

int RunInstall(const Arguments& arguments) {
  InstallRequest request;
  std::string python;
  bool pip = false;
  bool undo = false;
  bool json = false;
  Options options("install", kSummary);
  options.Text("DIR", &request.folder, "DIR", "where libnccl.so.2 lies that the job loads");
  options.Flag("--pip", &pip, "in place of DIR: nvidia/nccl/lib of Python, which PyTorch's wheels load");
  options.Text("--python", &python, "PATH", "with --pip: that Python; default: python3 of PATH");
  options.Flag("--undo", &undo, "put back what was there before");
  options.Text("--library", &request.library, "PATH",
               "C4's library; default: the one that came with this program");
  options.Flag("--json", &json,
               "one JSON document: {\"result\",\"folder\",\"library\",\"installed\",\"original\",\"nccl\"}");
  if (const std::optional<int> exit_code = options.Parse(arguments)) return *exit_code;
  if (!pip && !python.empty()) return UsageError("install", "--python goes with --pip");
  if (pip == !request.folder.empty()) return UsageError("install", "name the folder, or give --pip");
  if (undo && !request.library.empty())
    return UsageError("install", "--undo and --library exclude each other");

  if (pip) {
    StatusOr<std::string> folder = PythonNcclFolder(python);
    if (!folder.ok()) return Fail(folder.status());
    request.folder = *std::move(folder);
  }
  if (!undo && request.library.empty()) {
    StatusOr<std::string> library = OwnLibrary();
    if (!library.ok()) return Fail(library.status());
    request.library = *std::move(library);
  }
  const StatusOr<InstallOutcome> outcome = undo ? UndoInstall(request) : Install(request);
  if (!outcome.ok()) return Fail(outcome.status());
  fputs((json ? JsonText(*outcome) : Text(*outcome)).c_str(), stdout);
  return kExitOk;
}

}  // namespace

constinit const Verb kInstallVerb = {"install", kSummary, RunInstall};

}  // namespace c4::cli
