// Keeps the set of monitored processes of the node in step with the run directory: finds new segments,
// reads known ones, forgets and unlinks those of processes that are no more.
//
// A file that is not a segment this agent can read is left alone, with one warning. A segment whose
// content contradicts itself stays, for the health of its process, but its content is no longer used.
// Segments of processes that left in order are unlinked once they were reported; those of processes that
// died are kept for keep_dead_s, so that the master sees them as gone. Files that somebody else removes stay
// known for as long: what counts is the process, not the name.
// One thread. The run directory is everybody's: nothing in it is trusted (no links, regular files only).
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <sys/stat.h>
#include <vector>

#include "c4a/clock_relation.h"
#include "c4a/exit_watch.h"
#include "c4a/proc_reader.h"
#include "c4a/segment_file.h"
#include "service/clock.h"
#include "service/status.h"

namespace c4::agent {

struct ScannerOptions {
  std::string run_dir;
  double keep_dead_s = 600;
};

// Files of one user that are no segments this agent can read.
struct RefusedFiles {
  uint64_t files = 0;
  std::string why;  // one of them is
};

// Of the last scan, and since the start.
struct ScanFigures {
  uint64_t processes = 0;
  uint64_t segments_refused = 0;            // now there
  std::map<int64_t, RefusedFiles> refused;  // the same, by their owners' uids
  uint64_t segments_suspect = 0;            // now there
  uint64_t records_read = 0;                // in all
  uint64_t records_lost = 0;                // in all
};

class Scanner {
 public:
  Scanner(ScannerOptions options, ProcReader proc, const service::Clock& clock);

  // Fails when the run directory cannot be read; the processes then stay as they were.
  absl::Status Scan();

  // By file name, as of the last scan.
  std::vector<SegmentFile*> Processes() const;
  const ScanFigures& figures() const { return figures_; }
  int64_t scanned_monotonic_ns() const { return scanned_monotonic_ns_; }
  int64_t scanned_unix_ns() const { return scanned_unix_ns_; }

 private:
  struct Refusal {
    dev_t device = 0;
    ino_t inode = 0;
    bool seen = false;
    int64_t owner_uid = -1;
    std::string why;
  };

  void SampleClock();
  void Visit(int directory, const std::string& name);
  void SweepHidden(int directory, const std::string& name) const;
  void Refuse(const std::string& name, const struct stat& file, const absl::Status& why);
  void KeepUnlinked();
  void UpdateAll(int directory);
  bool MayGo(const SegmentFile& segment) const;
  void FindStrays();

  const ScannerOptions options_;
  const ProcReader proc_;
  const service::Clock& clock_;
  ExitWatch exits_;
  TscRelation tsc_;
  std::map<std::string, std::unique_ptr<SegmentFile>> segments_;  // by file name
  std::map<std::string, Refusal> refused_;
  std::set<std::string> seen_;      // names of this scan
  std::set<std::string> unlinked_;  // removed by somebody else, their processes live
  std::set<std::string> strays_;    // copies of segments that are held, by name
  std::set<std::string> told_;      // segments whose fault has been logged
  ScanFigures figures_;
  bool first_scan_ = true;
  bool told_crowded_ = false;
  int64_t scanned_monotonic_ns_ = 0;
  int64_t scanned_unix_ns_ = 0;
};

}  // namespace c4::agent
