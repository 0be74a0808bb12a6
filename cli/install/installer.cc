#include "cli/install/installer.h"

#include <cerrno>
#include <fcntl.h>
#include <filesystem>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/base/plain_file.h"
#include "cli/base/plain_text.h"
#include "cli/base/program.h"
#include "cli/install/elf_image.h"
#include "cli/install/installation.h"
#include "cli/install/library_probe.h"
#include "service/version.h"

namespace c4::cli {
namespace {

namespace fs = std::filesystem;

constexpr char kNewName[] = ".libnccl.so.2.c4-new";    // ours, being copied
constexpr char kKeptName[] = ".libnccl.so.2.c4-kept";  // the original, being copied
constexpr unsigned kRecordMode = 0644;

// Held until the object goes, or the process does.
class FolderLock {
 public:
  ~FolderLock() {
    if (fd_ >= 0) close(fd_);
  }
  FolderLock() = default;
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

  Status Take(const std::string& folder) {
    fd_ = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd_ < 0) return ErrnoStatus(errno, Cat("cannot open the folder ", folder));
    if (flock(fd_, LOCK_EX | LOCK_NB) == 0) return Status();
    if (errno != EWOULDBLOCK) return Status();  // a file system without locks
    return UnavailableError(
        Cat("another ", CommandFor("install"), " is at work in ", folder, ": wait for it"));
  }

 private:
  int fd_ = -1;
};

StatusOr<std::string> Resolved(const std::string& folder) {
  std::error_code error;
  const fs::path path = fs::canonical(folder, error);
  if (error) return ErrnoStatus(error.value(), Cat("cannot use the folder ", folder));
  if (!fs::is_directory(path, error)) {
    return InvalidArgumentError(Cat(folder, " is no folder: name the one that libnccl.so.2 lies in"));
  }
  return path.string();
}

// What killed runs left under names of their own.
Status RemoveLeftovers(const std::string& folder) {
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    if (name != kNewName && name != kKeptName && !name.starts_with(Cat(kRecordName, "."))) continue;
    if (unlink(entry.path().c_str()) != 0 && errno != ENOENT) {
      return ErrnoStatus(errno, Cat("cannot remove ", entry.path().string()));
    }
  }
  return Status();
}

// The file, as it is, would load as the library of a job on this machine.
StatusOr<ElfImage> CheckFile(const std::string& path) {
  ElfImage image = ElfImage::Read(path);
  if (!image.error.empty()) return FailedPreconditionError(image.error);
  if (!image.IsForThisMachine()) {
    return FailedPreconditionError(
        Cat(path, ": is a library for ", image.Machine(), ", not for this machine"));
  }
  return image;
}

Status CheckOurs(const std::string& path) {
  const StatusOr<ElfImage> image = CheckFile(path);
  if (!image.ok()) return image.status();
  if (!image->Exports(kOurMark)) {
    return FailedPreconditionError(Cat(path, ": is not C4's library; name that with --library"));
  }
  return Status();
}

// The vendor's library that ours will stand in front of: its version.
StatusOr<int> CheckOriginal(const std::string& path) {
  const StatusOr<ElfImage> image = CheckFile(path);
  if (!image.ok()) return image.status();
  if (!image->Exports("ncclGetVersion") || !image->Exports("ncclCommInitRank")) {
    return FailedPreconditionError(
        Cat(path, ": is no NCCL: it lacks ncclGetVersion or ncclCommInitRank; is this the right folder?"));
  }
  const StatusOr<LibraryProbe> probe = ProbeLibrary({.library = path});
  if (!probe.ok()) return probe.status();
  if (probe->version >= kOldestVendorVersion) return probe->version;
  return FailedPreconditionError(Cat(path, " is NCCL ", VersionText(probe->version), ": C4 needs ",
                                     VersionText(kOldestVendorVersion), " or later"));
}

// What a job gets now: ours, with the original behind it.
Status CheckInstalled(const InstallFolder& folder, const std::string& version) {
  const StatusOr<LibraryProbe> probe = ProbeLibrary({.library = folder.LibraryPath()});
  if (!probe.ok()) return probe.status();
  std::error_code error;
  if (!probe->ours) {
    return FailedPreconditionError(Cat("loading it gave ", probe->path, ", which is not C4's"));
  }
  if (probe->vendor_path.empty() || !fs::equivalent(probe->vendor_path, folder.OriginalPath(), error)) {
    return FailedPreconditionError(
        Cat("it does not use ", folder.OriginalPath(), " but ",
            probe->vendor_path.empty() ? "no library of the vendor's" : probe->vendor_path,
            probe->log.empty() ? "" : Cat(" (it says: ", probe->log.back(), ")")));
  }
  if (VersionText(probe->version) == version) return Status();
  return FailedPreconditionError(
      Cat("it says that it is NCCL ", VersionText(probe->version), ", the original is ", version));
}

class Work {
 public:
  Work(const InstallRequest& request, InstallFolder folder) : request_(request), folder_(std::move(folder)) {}

  InstallFolder& folder() { return folder_; }

  Status CopyOurs() {
    C4_RETURN_ON_FAILURE(CopyFile(request_.library, Temporary(kNewName), folder_.LibraryPath()));
    Did("copied");
    return Status();
  }

  Status WriteRecord(const InstallRecord& record) {
    C4_RETURN_ON_FAILURE(WriteFileAtomically(folder_.RecordPath(), RecordText(record), kRecordMode));
    folder_.record = record;
    Did("recorded");
    return Status();
  }

  // A second name for the same file or link, so that all of it stays; a copy where that is not to be had.
  Status KeepOriginal() {
    if (folder_.original.has_value()) return Status();  // by the run that was killed
    const std::string from = folder_.LibraryPath();
    const std::string to = folder_.OriginalPath();
    const bool linked =
        !request_.without_hard_links && linkat(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), 0) == 0;
    if (!linked && folder_.library->is_link) {
      C4_RETURN_ON_FAILURE(CopyLink(*folder_.library, to));
    } else if (!linked) {
      C4_RETURN_ON_FAILURE(CopyFile(from, Temporary(kKeptName), from));
      Did("original copied");
      C4_RETURN_ON_FAILURE(Rename(Temporary(kKeptName), to));
    }
    FlushFolder(folder_.path);
    Did("kept");
    return Status();
  }

  Status Swap() {
    C4_RETURN_ON_FAILURE(Rename(Temporary(kNewName), folder_.LibraryPath()));
    FlushFolder(folder_.path);
    Did("swapped");
    return Status();
  }

  // From kInstalled and from kBegun.
  Status PutBack(bool installed) {
    if (installed) C4_RETURN_ON_FAILURE(Rename(folder_.OriginalPath(), folder_.LibraryPath()));
    FlushFolder(folder_.path);
    Did("restored");
    // Still there after a run that was killed before the swap: both names are the original's then.
    C4_RETURN_ON_FAILURE(Remove(folder_.OriginalPath()));
    C4_RETURN_ON_FAILURE(Remove(folder_.RecordPath()));
    Did("record removed");
    return Status();
  }

 private:
  std::string Temporary(const char* name) const { return Cat(folder_.path, "/", name); }
  void Did(const std::string& step) const {
    if (request_.after_step) request_.after_step(step);
  }
  static Status Rename(const std::string& from, const std::string& to) {
    if (rename(from.c_str(), to.c_str()) == 0) return Status();
    return ErrnoStatus(errno, Cat("cannot rename ", from, " to ", to));
  }
  static Status Remove(const std::string& path) {
    if (unlink(path.c_str()) == 0 || errno == ENOENT) return Status();
    return ErrnoStatus(errno, Cat("cannot remove ", path));
  }

  const InstallRequest& request_;
  InstallFolder folder_;
};

// Before anything is touched, so that who may not write hears that and not a half-done thing.
Status CheckWritable(const std::string& folder) {
  if (access(folder.c_str(), W_OK | X_OK) == 0) return Status();
  return PermissionDeniedError(
      Cat("cannot write to ", folder, ": ",
          errno == EROFS ? "it is mounted read-only" : "run this as the owner of that folder"));
}

// Opens, locks, looks and judges.
StatusOr<InstallFolder> Begin(const std::string& wanted, FolderLock* lock, Standing* standing) {
  const StatusOr<std::string> path = Resolved(wanted);
  if (!path.ok()) return path.status();
  C4_RETURN_ON_FAILURE(lock->Take(*path));
  StatusOr<InstallFolder> folder = LookAtFolder(*path);
  if (!folder.ok()) return folder.status();
  const StatusOr<Standing> judged = Judge(*folder);
  if (!judged.ok()) return judged.status();
  *standing = *judged;
  return folder;
}

InstallOutcome Outcome(InstallResult result, const InstallFolder& folder) {
  InstallOutcome outcome;
  outcome.result = result;
  outcome.folder = folder.path;
  outcome.original = folder.OriginalPath();
  if (folder.record.has_value()) outcome.original_version = folder.record->original_version;
  return outcome;
}

StatusOr<InstallRecord> NewRecord(const InstallFolder& folder, Standing standing, const KeptFile& ours) {
  InstallRecord record;
  if (standing == Standing::kInstalled) {
    record = *folder.record;
  } else {
    const StatusOr<int> version = CheckOriginal(folder.LibraryPath());
    if (!version.ok()) return version.status();
    record.original = *folder.library;
    record.original_version = VersionText(*version);
  }
  record.our_sha256 = ours.sha256;
  record.our_version = std::string(service::Version());
  return record;
}

Status PutInPlace(Work* work, const InstallRecord& record) {
  C4_RETURN_ON_FAILURE(work->CopyOurs());
  C4_RETURN_ON_FAILURE(work->WriteRecord(record));
  C4_RETURN_ON_FAILURE(work->KeepOriginal());
  return work->Swap();
}

}  // namespace

StatusOr<InstallOutcome> Install(const InstallRequest& request) {
  C4_RETURN_ON_FAILURE(CheckOurs(request.library));
  FolderLock lock;
  Standing standing = Standing::kUntouched;
  StatusOr<InstallFolder> found = Begin(request.folder, &lock, &standing);
  if (!found.ok()) return found.status();
  const StatusOr<std::optional<KeptFile>> ours = LookAtFile(request.library);
  if (!ours.ok()) return ours.status();
  const bool there = standing == Standing::kInstalled && found->library->sha256 == (*ours)->sha256;

  Work work(request, *std::move(found));
  if (!there) {
    const StatusOr<InstallRecord> record = NewRecord(work.folder(), standing, **ours);
    if (!record.ok()) return record.status();
    C4_RETURN_ON_FAILURE(CheckWritable(work.folder().path));
    C4_RETURN_ON_FAILURE(RemoveLeftovers(work.folder().path));
    if (const Status placed = PutInPlace(&work, *record); !placed.ok()) {
      RemoveLeftovers(work.folder().path).IgnoreError();
      if (standing != Standing::kInstalled) work.PutBack(false).IgnoreError();
      return placed;
    }
  }
  const std::string version = work.folder().record->original_version;
  if (const Status checked = CheckInstalled(work.folder(), version); !checked.ok()) {
    const Status undone = work.PutBack(true);
    return FailedPreconditionError(Cat("C4's library does not work there: ", checked.message(), ". ",
                                       undone.ok()
                                           ? "The original is back in place"
                                           : Cat("It could not be taken out again: ", undone.message())));
  }
  return Outcome(there                              ? InstallResult::kAlready
                 : standing == Standing::kInstalled ? InstallResult::kUpdated
                                                    : InstallResult::kInstalled,
                 work.folder());
}

StatusOr<InstallOutcome> UndoInstall(const InstallRequest& request) {
  FolderLock lock;
  Standing standing = Standing::kUntouched;
  StatusOr<InstallFolder> found = Begin(request.folder, &lock, &standing);
  if (!found.ok()) return found.status();
  Work work(request, *std::move(found));
  C4_RETURN_ON_FAILURE(RemoveLeftovers(work.folder().path));
  if (standing == Standing::kUntouched) return Outcome(InstallResult::kNothingToUndo, work.folder());
  C4_RETURN_ON_FAILURE(CheckWritable(work.folder().path));
  C4_RETURN_ON_FAILURE(work.PutBack(standing == Standing::kInstalled));
  InstallOutcome outcome = Outcome(InstallResult::kUndone, work.folder());
  outcome.original = work.folder().LibraryPath();
  return outcome;
}

}  // namespace c4::cli
