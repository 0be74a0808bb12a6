// What `c4 install` finds in a folder, and whether that is what it left there: the library, the original
// beside it, and the record of what was there before. LookAtFolder reads; Judge is pure. Any thread.
//
// The order in which things are put in place and removed (cli/install/installer.h) makes every state between
// two steps one of `Standing`, so that a run that was killed is carried on or undone by the next.
#pragma once

#include <optional>
#include <string>

#include "ccl/include/c4/installed.h"
#include "cli/base/status.h"
#include "cli/install/kept_file.h"

namespace c4::cli {

inline constexpr char kLibraryName[] = "libnccl.so.2";
inline constexpr char kRecordName[] = "libnccl.so.2.c4.json";

// Beside the library, so that images and moved folders carry it along.
struct InstallRecord {
  KeptFile original;
  std::string original_version;  // "2.28.9"
  std::string our_sha256;
  std::string our_version;  // of the c4 that wrote this
};

std::string RecordText(const InstallRecord& record);
// The reverse; the sentence of a failure tells what is wrong with the text.
StatusOr<InstallRecord> ParseRecord(const std::string& text);

struct InstallFolder {
  std::string path;
  std::optional<KeptFile> library;
  bool library_is_ours = false;
  std::optional<KeptFile> original;  // beside
  std::optional<InstallRecord> record;

  std::string LibraryPath() const { return path + "/" + kLibraryName; }
  std::string OriginalPath() const { return path + "/" + kInstalledName; }
  std::string RecordPath() const { return path + "/" + kRecordName; }
};

StatusOr<InstallFolder> LookAtFolder(const std::string& path);

enum class Standing {
  kUntouched,  // the vendor's library, and nothing of ours
  kBegun,  // the vendor's library, and some of ours: a run was killed before the swap, or after the undo's
  kInstalled,  // ours, with the original beside
};
// FailedPrecondition, with what to do, when somebody has changed what we left; NotFound without a library.
StatusOr<Standing> Judge(const InstallFolder& folder);

}  // namespace c4::cli
