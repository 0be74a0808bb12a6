// Which node it is that data stand still at, where the engine shows no addresses and no signs of life (the
// vendor's own transport): told from what each rank has handed to the network and nobody has taken. Part of
// the detector of communication hangs.
//
// Points into the snapshot and lives no longer. Pure functions; any thread; no errors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <set>
#include <vector>

#include "c4d_master/detectors/communication_hang.h"
#include "c4d_master/detectors/queue_pair_ends.h"

namespace c4::c4d {

// A queue pair that stands still.
struct Stuck {
  const QueuePairEnds* ends;
  int64_t since_ns;
};

// A NIC, or a rank that stands for its own.
struct Nic {
  std::vector<const Stuck*> stuck;
  size_t peers = 0;       // of all its queue pairs
  size_t known = 0;       // queue pairs that were heard before
  size_t unheard = 0;     // of those, that are not heard any more
  bool by_steps = false;  // its engine shows no signs of life: told from what it posted and nobody took
  std::set<uint32_t> stuck_peers;
  const ProcessRef* process = nullptr;
  bool seen = false;  // it has a queue pair with another NIC

  // All that it exchanges with anybody is silent, not what takes one way of many.
  bool Silent(const CommunicationHangThresholds& thresholds) const {
    return !stuck.empty() && known > 0 &&
           static_cast<double>(unheard) >= thresholds.nic_share * static_cast<double>(known);
  }
};

// Whether its engine shows no signs of life, so that its steps alone tell: the vendor's, and queue pairs of
// verbs that the tap watches.
bool IsBySteps(const QueuePairEnds& ends);

struct Sole {
  const Host* host = nullptr;  // nullptr: there is none
  size_t peers = 0;            // hosts
};

// What stands still goes to or from one host, the only one of which that holds. A link between switches holds
// up several. `nics`: by the numbers of JobQueuePairs::nics.
Sole SoleHost(const std::vector<QueuePairEnds>& queue_pairs, const std::vector<Stuck>& stuck,
              const std::vector<Nic>& nics, const CommunicationHangThresholds& thresholds);

// Whether nothing has gone between others and those of its ranks that something stands still of since the
// first did. Ranks that use another NIC of it may go on.
bool IsSilent(const Host* host, const std::vector<Nic>& nics, const CommunicationHangThresholds& thresholds);

}  // namespace c4::c4d
