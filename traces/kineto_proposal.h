// Proposes a mapping (kineto_mapping.h) from profiles, by the names that FSDP, DDP, Megatron and DeepSpeed
// give to what they do, and by usual names of marks. What is only likely is marked as such.
//
// Read some ranks' profiles, then call Propose. Memory: the distinct names, where ids in them count as one,
// at most kMostNames. One thread.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "traces/byte_source.h"
#include "traces/kineto_events.h"

namespace c4::traces {

class KinetoProposal {
 public:
  static constexpr size_t kMostNames = 200000;
  static constexpr size_t kMostOfCategory = 50000;  // so that no category keeps another out

  // InvalidArgument: it is no profile, or damaged, with the file.
  absl::Status Read(const std::string& file, ByteSource* source);
  size_t read() const { return files_.size(); }

  struct Proposal {
    std::string json;                 // the mapping, for a file
    std::vector<std::string> unsure;  // sentences; they stand in the mapping as well
  };
  // `files`: how many profiles the job has. FailedPrecondition: no forward and backward computation has a
  // name that is known; says which names there are.
  absl::StatusOr<Proposal> Propose(size_t files) const;

 private:
  friend class KinetoRuleFinder;

  void Take(const KinetoEvent& event);

  std::vector<std::string> files_;
  // Category and name with every number as "#": one such name as it stands, and how often.
  struct Seen {
    std::string name;
    uint64_t count = 0;
  };
  std::map<std::pair<std::string, std::string>, Seen> names_;
  std::map<std::string, size_t> of_category_;  // names
  std::map<std::string, int> groups_;          // descriptions of process groups: ranks
  bool left_out_ = false;                      // more names than are kept
  int world_size_ = 0;
};

}  // namespace c4::traces
