// The queue pairs of a snapshot with the two ends that they join, as the detectors of the network look at
// them: who sends, who receives, over which NICs.
//
// Points into the snapshot and lives no longer. Pure functions; one thread at a time asks a snapshot for its
// queue pairs, as they are put together when they are first asked for; no errors: a queue pair whose other
// end is not seen has no `receiver`.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "c4d_master/finding.h"
#include "c4d_master/job_snapshot.h"

namespace c4::c4d {

struct QueuePairEnds {
  const Communicator* communicator = nullptr;
  const ProcessRef* sender = nullptr;
  const ProcessRef* receiver = nullptr;  // nullptr: not seen
  const Membership* from = nullptr;
  const QueuePair* queue_pair = nullptr;  // the sender's
  const QueuePair* received = nullptr;    // the same, seen by the receiver; nullptr: not seen
  const QueuePair* answers = nullptr;     // verbs, known by number: the other end's own, as a sender
  std::string from_nic;                   // addresses without ports, or NicOfRank
  std::string to_nic;
  uint32_t from_number = 0;  // indices into JobQueuePairs::nics
  uint32_t to_number = 0;
};

// What stands for the NIC that a rank uses where its engine does not say its address: "of rank 3".
std::string NicOfRank(const ProcessRef& rank);

// All queue pairs that send. What the vendor's engine moves to a peer is one, too, where nothing else tells
// of it. By communicator, sender's rank and their order there. They stay with the snapshot for as long as its
// structure and their addresses do.
const std::vector<QueuePairEnds>& CollectQueuePairs(const JobSnapshot& snapshot);

// The same, and over which NICs they go.
struct JobNic {
  std::string address;
  size_t peers = 0;  // other NICs that its queue pairs have at their other ends
};
struct JobQueuePairs {
  std::vector<QueuePairEnds> ends;
  std::vector<JobNic> nics;  // by address
};
const JobQueuePairs& QueuePairsOf(const JobSnapshot& snapshot);

// "10.0.0.1" of "10.0.0.1:1234", "fd00::1" of "[fd00::1]:1234".
std::string AddressOf(const std::string& endpoint);

// An end that is seen, is there, and could go on.
bool CanJudge(const ProcessRef* end);

ConnectionRef RefOf(const QueuePairEnds& ends);

// By ranks, then index: the order of Culprit.connections.
void SortConnections(std::vector<ConnectionRef>* connections);

// The job's ranks of these processes, ascending, without those that have none.
std::vector<uint32_t> RanksOf(const JobSnapshot& snapshot, const std::vector<uint32_t>& processes);

void FillProcess(const ProcessRef& culprit, Finding* finding);

}  // namespace c4::c4d
