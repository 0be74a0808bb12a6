// The directory of masters: one JSON file per job that says where the job's master listens,
// <dir>/<job>.json with every character outside [A-Za-z0-9._-] of the job replaced by '_':
// {"job","address","http_address","epoch","pid","host","key_file","key_id"}. A master publishes itself once
// it listens (temporary file and rename: readers see the old entry or the new one, never a part) and takes
// its entry out when it leaves in order. Where another user sits on that file name the entry is
// <job>@<uid>.json: who reads believes the entries of the users that he names, root's before the others, and
// nobody's name is a dead end for somebody else. A file that others than its owner may write is no entry.
// Agents and command line look up again at every (re)connect. No state but the path: any thread, any number
// of processes.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "service/master_address.h"
#include "service/status.h"

namespace c4::service {

struct MasterEntry {
  std::string job;
  std::string address;       // host:port of gRPC
  std::string http_address;  // host:port; empty where there is none
  uint64_t epoch = 0;        // a new one each time the master starts
  int64_t pid = 0;
  std::string host;
  // Where its user keeps the key that it checks tokens with, on that host; empty: it has none.
  std::string key_file;
  std::string key_id;
  // The owner of the entry's file: who says all this. Not a part of the text; read only.
  int64_t published_by = -1;
};

// Where that master listens, with what a client needs to judge it.
MasterAddress AddressOf(const MasterEntry& entry);

// Users whose entries are believed: root, this program's own user, and those that are added.
class Believed {
 public:
  Believed();                        // root and the own user
  explicit Believed(int64_t owner);  // and the owner of the job
  bool Holds(int64_t uid) const;
  const std::vector<int64_t>& uids() const { return uids_; }

 private:
  std::vector<int64_t> uids_;
};

// The entry of the cluster's path master, which no job may be called.
inline constexpr char kPathMasterName[] = "c4p";

class MasterDirectory {
 public:
  explicit MasterDirectory(std::string path);

  const std::string& path() const { return path_; }

  // Creates the directory when missing. Replaces the own an entry of the same job; an entry of another job
  // that maps to the same file name is an error.
  absl::Status Publish(const MasterEntry& entry) const;
  // Takes the entry out if it is still the one of this epoch; no entry is no error.
  absl::Status Remove(std::string_view job, uint64_t epoch) const;
  // NotFound when no master of this job is known. PermissionDenied when there is one, but nobody of those
  // who are believed has published it.
  absl::StatusOr<MasterEntry> LookUp(std::string_view job, const Believed& believed = Believed()) const;
  // By job, of all users (MasterEntry::published_by says whose). A file that is no entry is left out, its
  // fault put into `faults` where given. A directory that does not exist has no entries.
  absl::StatusOr<std::vector<MasterEntry>> List(std::vector<std::string>* faults = nullptr) const;

 private:
  std::string path_;
};

// Whether a job can have this name: 1 to 127 bytes (what a segment has room for, wire/segment.h) of printable
// UTF-8, and not the path master's.
absl::Status CheckJobName(std::string_view job);

// "<job>.json" with the characters replaced; with a uid "<job>@<uid>.json".
std::string DirectoryFileName(std::string_view job, int64_t uid = -1);

}  // namespace c4::service
