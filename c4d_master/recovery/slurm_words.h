// What Slurm's tools say about a job and its nodes, read; and what C4 writes into Slurm (docs/recovery.md):
// the reason of a drained node, and the comment of a job whose steps C4 may start again inside the
// allocation. The tools are asked for fields with a mark of ours behind each, so a line that was cut off is
// noticed.
//
// Pure: no processes, no clock.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "c4d_master/recovery/model.h"
#include "service/status.h"

namespace c4::c4d::recovery {

// For squeue's and sinfo's -O; what others may write freely stands last.
extern const char kSlurmJobFields[];
extern const char kSlurmNodeFields[];
// For squeue's -o, of steps.
extern const char kSlurmStepFields[];

// The comment of a job that is led by c4-steps: "c4 nodes=4 began=1 asked=2 requeues=0 exclude=n3,n7".
struct StepsComment {
  uint32_t nodes = 0;     // that a step of it takes; the allocation's others are spare
  uint32_t began = 0;     // the incarnation that began last
  uint32_t asked = 0;     // the one that was asked for last
  uint32_t requeues = 0;  // of the job, when `asked` was written
  std::vector<std::string> exclude;

  friend bool operator==(const StepsComment&, const StepsComment&) = default;
};
std::optional<StepsComment> ReadStepsComment(absl::string_view comment);
std::string StepsCommentText(const StepsComment& comment);

struct SlurmJob {
  std::string state;  // "RUNNING", "COMPLETING"
  uint32_t requeues = 0;
  std::string nodes;  // as Slurm abbreviates them: "n[1-4]"; empty: none
  std::string partitions;
  std::string why;  // it does not run
  std::string comment;
};
// NotFound: no such job. InvalidArgument: half an answer, or none of Slurm's.
absl::StatusOr<SlurmJob> ReadSlurmJob(const std::string& text);

// Words that scontrol gives for "exclude", of one name a line.
absl::StatusOr<std::set<std::string>> ReadSlurmHosts(const std::string& text);

struct SlurmNode {
  std::string name;
  std::string host;
  std::string base;             // "idle", "allocated"
  std::set<std::string> flags;  // "drain", "not_responding"
  std::string by;               // who set the reason
  std::string reason;           // empty: none

  bool drained() const { return flags.contains("drain") || flags.contains("fail") || base == "fail"; }
  bool down() const;
};
absl::StatusOr<std::vector<SlurmNode>> ReadSlurmNodes(const std::string& text);

// Nodes of the job's steps, as Slurm abbreviates them, and the ids of these steps; none for "batch" and its
// like.
struct SlurmStep {
  std::string id;
  std::string nodes;
};
absl::StatusOr<std::vector<SlurmStep>> ReadSlurmSteps(const std::string& text);

// The reason that we give, and whether one is ours: of this job's master.
std::string SlurmReason(const std::string& job, const std::string& why);
bool IsOurReason(const std::string& job, const std::string& reason);

// `of_job`: the job has it. `in_use`: its ranks run there.
Event::Seen SightOf(const std::string& job, const SlurmNode& node, bool of_job, bool in_use);

// Whether a tool that failed with these words would fail again, or nobody knows what became of it.
bool IsSlurmRefusal(absl::string_view words);

// "12" of "12.0" or "12"; empty: the job's name is none that Slurm gave.
std::string SlurmJobId(const std::string& job);
bool IsSlurmJobId(const std::string& text);
// A name that may stand alone as a word of scontrol's.
bool IsSlurmNodeName(const std::string& text);

}  // namespace c4::c4d::recovery
