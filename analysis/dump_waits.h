// Who holds a job up, from what each rank knew of its communicators when it was dumped: the wait-for graph of
// the ranks, and its roots (the same graph that the live master keeps).
//
// A rank waits, in a group, for the operation after the last one that it saw completed; for each member that
// has not entered this operation, or is stuck in an earlier one. Groups that carry sends and receives between
// single ranks are left out: their counters belong to pairs, and such groups only trail the others.
//
// Pure; any thread; no errors.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace c4::analysis {

struct GroupProgress {
  std::string description;
  std::vector<int> members;   // ranks
  int64_t last_entered = -1;  // sequence numbers; -1: none
  int64_t last_completed = -1;
  bool point_to_point = false;
};

struct RankDump {
  int rank = 0;
  std::map<std::string, GroupProgress> groups;  // by the name that all ranks share
};

struct StalledRank {
  int rank = 0;
  bool dumped = true;        // false: others wait for it, and there is no dump of it
  std::vector<int> waiters;  // directly or through others, ascending
  std::string group;         // of one operation that they wait in
  std::string description;
  int64_t operation = 0;      // its sequence number
  int64_t last_entered = -1;  // of the stalled rank in that group
};

struct StalledRanks {
  std::vector<StalledRank> stalled;      // by rank
  std::vector<std::vector<int>> cycles;  // ranks that wait for each other, and for nobody else
  // Operations that every member has entered and none completed: the group is stuck in the network or on a
  // device.
  std::vector<std::string> stuck_groups;
};

StalledRanks FindStalledRanks(const std::vector<RankDump>& dumps);

}  // namespace c4::analysis
