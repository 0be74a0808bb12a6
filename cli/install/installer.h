// Puts our library in the place of the vendor's in a folder, and back. One at a time in each folder (a lock
// on it); blocking, some seconds for libraries of 400 MB. Forks: call it while this process has one thread.
//
// The order makes each moment safe for a job that starts then, and for a kill:
//   1. our library is copied beside, under a name that nobody loads
//   2. the record is written
//   3. the original gets its second name, libnccl-vendor.so.2
//   4. ours is renamed over libnccl.so.2
//   5. a child process loads it; when that fails the original goes back
// and back: the original is renamed over libnccl.so.2, then the record is removed. What a killed run leaves
// is what LookAtFolder and Judge (cli/install/installation.h) know how to carry on from.
#pragma once

#include <functional>
#include <string>

#include "cli/base/status.h"

namespace c4::cli {

struct InstallRequest {
  std::string folder;
  std::string library;  // ours; not for an undo
  // For tests. Called after each step with its name.
  std::function<void(const std::string& step)> after_step;
  bool without_hard_links = false;  // as on file systems that have none
};

enum class InstallResult {
  kInstalled,
  kUpdated,  // another copy of ours was there
  kAlready,  // this one was
  kUndone,
  kNothingToUndo,
};

struct InstallOutcome {
  InstallResult result = InstallResult::kInstalled;
  std::string folder;            // resolved
  std::string original;          // where it lies now
  std::string original_version;  // "2.28.9"; empty: not known
};

// FailedPrecondition and NotFound when what is there is not what it should be. After a failure of any kind of
// Install the library of before is in place; after one of UndoInstall (a disk that cannot be written) the
// next run carries on.
StatusOr<InstallOutcome> Install(const InstallRequest& request);
StatusOr<InstallOutcome> UndoInstall(const InstallRequest& request);

}  // namespace c4::cli
