// Who holds a job up, from what each rank knew of its communicators when it was dumped: the wait-for graph of
// ranks and operations, and its roots (the same graph that the live master keeps).
//
// A rank waits, in a group, for the operation after the last one that it saw completed: for each member that
// has not entered this operation or is behind in an earlier one, or, where all have entered it, for the
// operation itself. An operation waits for what its members have to do before it, in the order in which they
// called. An open send or receive waits for its peer. The counters of groups with sends and receives mostly
// trail the others (their operations belong to pairs), so the collectives of these groups, and of pipelines,
// are asked where no other group tells anything.
//
// Pure; any thread; no errors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace c4::analysis {

struct OpenOperation {
  std::string shape;  // what all members have to agree on: operation, types, sizes; "" where it is not known
  size_t order = 0;   // among the operations that the rank called, of all groups
};

struct GroupProgress {
  std::string description;
  std::vector<int> members;   // ranks
  int64_t last_entered = -1;  // sequence numbers; -1: none
  int64_t last_completed = -1;
  bool point_to_point = false;
  std::map<int64_t, OpenOperation> operations = {};  // by sequence number, as far back as the dump goes
  // The same of the operations that the dump lists, which count collectives alone; -1: it lists none. What it
  // says of the last ones may count transfers too, and every operation of a batch.
  int64_t seen_entered = -1;
  int64_t seen_completed = -1;
};

struct OpenTransfer {
  std::string group;
  int peer = 0;  // a rank
  bool sends = false;
  size_t order = 0;
};

struct RankDump {
  int rank = 0;
  std::map<std::string, GroupProgress> groups;  // by the name that all ranks share
  std::vector<OpenTransfer> open_transfers;
  int64_t last_call_unix_ns = -1;  // when it called its newest operation; -1: the dump does not say
};

struct StalledRank {
  int rank = 0;
  std::vector<int> waiters;  // directly or through others, ascending
  std::string group;         // of one operation that they wait in; of a transfer as well
  std::string description;
  int64_t operation = -1;     // its sequence number; -1: a send or receive
  int64_t last_entered = -1;  // of the stalled rank in that group
  int64_t last_completed = -1;
};

// An operation that every member has entered and that does not end.
struct StuckOperation {
  std::string group;
  std::string description;
  int64_t operation = 0;        // -1: a send and receive between two of them
  std::vector<int> unfinished;  // ranks
  std::vector<int> finished;    // ranks that saw it completed
};

// Members that are in the same operation and do not mean the same.
struct MismatchedOperation {
  struct Side {
    std::string shape;
    std::vector<int> ranks;
  };
  std::string group;
  std::string description;
  int64_t operation = 0;
  std::vector<Side> sides;    // the largest first
  std::vector<int> culprits;  // all but the largest side; none where no side is the largest
};

struct StalledRanks {
  std::vector<int> missing;          // ranks of the groups of which there is no dump
  std::vector<StalledRank> stalled;  // by rank; each has a dump and waits for nobody
  // Waits end at these, of which there is no dump: dead, or their dumps are lost. Certain: it is one, and the
  // only one, so that it cannot be waiting for another of which nothing is known.
  std::vector<StalledRank> without_dump;
  bool without_dump_certain = false;
  std::vector<std::vector<int>> cycles;  // ranks that wait for each other, and for nobody else
  std::vector<StuckOperation> stuck;     // nothing that a dump knows of holds them up
  std::vector<MismatchedOperation> mismatched;

  bool empty() const {
    return stalled.empty() && without_dump.empty() && cycles.empty() && stuck.empty() && mismatched.empty();
  }
};

StalledRanks FindStalledRanks(std::vector<RankDump> dumps);

// How far it has come itself: "it has entered 41".
std::string ProgressText(const StalledRank& rank);

}  // namespace c4::analysis
