// The table of probed paths: what was seen last for each tuple. Entries age: after `fresh` they are doubtful,
// after `keep` gone. A new observation that names another way replaces the old one and is counted; one that
// says less (an answer was rationed) completes what is known and takes nothing away.
//
// A value, one thread at a time; bounded: the oldest make room.
#pragma once

#include <cstddef>
#include <set>
#include <unordered_map>
#include <vector>

#include "c4p_master/path_map.h"
#include "c4p_master/path_observation.h"

namespace c4::c4p {

struct ProbedOptions {
  int64_t fresh_ns = 600'000'000'000;
  int64_t keep_ns = 7'200'000'000'000;
  size_t max_entries = 1'000'000;
};

enum class Recorded { kNothing, kNew, kSame, kChanged };

class ProbedPaths : public PathMap {
 public:
  explicit ProbedPaths(const ProbedOptions& options) : options_(options) {}

  // kNothing: no hop that tells ways apart. What is known then becomes doubtful, but stays.
  Recorded Record(const PathObservation& seen, int64_t now_ns);
  std::optional<KnownPath> Find(const service::IpTuple& tuple, int64_t now_ns) const override;
  // When the tuple was last seen; 0: never.
  int64_t SeenNs(const service::IpTuple& tuple) const;
  // Its path misbehaves: it is doubtful until it is seen again.
  void Doubt(const service::IpTuple& tuple);
  // Some whose way has one of these addresses: those that were seen last.
  std::vector<service::IpTuple> Through(const std::vector<service::IpAddress>& hops, size_t most) const;
  // What to probe again of these groups: first what misbehaves, then the oldest.
  std::vector<service::IpTuple> Doubtful(const std::set<FlowGroup>& groups, int64_t now_ns,
                                         size_t most) const;
  void Expire(int64_t now_ns);

  size_t size() const { return entries_.size(); }
  uint64_t changes() const { return changes_; }

 private:
  struct Entry {
    HopPath hops;
    int64_t seen_ns = 0;
    bool doubted = false;
  };
  void MakeRoom();

  ProbedOptions options_;
  std::unordered_map<service::IpTuple, Entry, service::IpTupleHash> entries_;
  uint64_t changes_ = 0;
};

}  // namespace c4::c4p
