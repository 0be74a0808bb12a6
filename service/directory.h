// The directory of masters: one JSON file per job that says where the job's master listens,
// <dir>/<job>.json with every character outside [A-Za-z0-9._-] of the job replaced by '_':
// {"job","address","http_address","epoch","pid","host"}. A master publishes itself once it listens
// (temporary file and rename: readers see the old entry or the new one, never a part) and takes its entry
// out when it leaves in order. Agents and command line look up again at every (re)connect.
// No state but the path: any thread, any number of processes.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "service/status.h"

namespace c4::service {

struct MasterEntry {
  std::string job;
  std::string address;       // host:port of gRPC
  std::string http_address;  // host:port; empty where there is none
  uint64_t epoch = 0;        // a new one each time the master starts
  int64_t pid = 0;
  std::string host;
};

// The entry of the cluster's path master, which no job may be called.
inline constexpr char kPathMasterName[] = "c4p";

class MasterDirectory {
 public:
  explicit MasterDirectory(std::string path);

  const std::string& path() const { return path_; }

  // Creates the directory when missing. Replaces an entry of the same job; an entry of another job that
  // maps to the same file name is an error.
  absl::Status Publish(const MasterEntry& entry) const;
  // Takes the entry out if it is still the one of this epoch; no entry is no error.
  absl::Status Remove(std::string_view job, uint64_t epoch) const;
  // NotFound when no master of this job is known.
  absl::StatusOr<MasterEntry> LookUp(std::string_view job) const;
  // By job. A file that is no entry is left out, its fault put into `faults` where given. A directory
  // that does not exist has no entries.
  absl::StatusOr<std::vector<MasterEntry>> List(std::vector<std::string>* faults = nullptr) const;

 private:
  std::string path_;
};

// "<job>.json" with the characters replaced.
std::string DirectoryFileName(std::string_view job);

}  // namespace c4::service
