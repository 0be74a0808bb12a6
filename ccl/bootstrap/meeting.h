// Meetings of ranks that have joined a communicator: an all-gather of small records over connections of its
// own, made for each meeting and closed after it. So ranks can agree on something (a split, a smaller
// communicator) beside the operations, and also when the connections of the operations are lost.
//
// The lowest rank that takes part gathers: the others connect to it, each sends its record, and all get all
// records back. A rank that leaves before all are there, ranks that hold different meetings, and records of
// different sizes fail everybody who takes part with one sentence; who comes for a later meeting waits for
// it. Strangers are turned away and delay nobody.
//
// One thread at a time; other threads end a meeting by the Patience that it was given.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "ccl/bootstrap/bootstrap.h"

namespace c4::bootstrap {

struct MeetingGuest;

class Meeting {
 public:
  Meeting(const UniqueId& id, uint64_t communicator_id, int rank);
  Meeting(const Meeting&) = delete;
  Meeting& operator=(const Meeting&) = delete;
  ~Meeting();

  // Opens this rank's place at `address`, and puts it into `info`, for the others.
  Result Open(const SocketAddress& address, RankInfo* info);
  // What all ranks told when they joined, and the key that came of it, by which they prove who they are.
  void Know(const std::vector<RankInfo>& all, const Sha256Digest& key);

  // `ranks` ascend, and this one is among them. `all`: `bytes` for each of them, in their order.
  Result Hold(const std::vector<int>& ranks, const void* mine, size_t bytes, void* all,
              const Patience& patience);

 private:
  Result Attend(int first, uint64_t meeting, size_t rank_count, const void* mine, size_t bytes, void* all,
                const Patience& patience);

  const UniqueId id_;
  const uint64_t communicator_id_;
  const int rank_;
  Sha256Digest key_{};
  Fd listener_;
  std::vector<wire::Endpoint> places_;                // by rank
  std::map<uint64_t, uint64_t> held_;                 // meetings so far, by who met
  std::vector<std::unique_ptr<MeetingGuest>> early_;  // came for a meeting that this rank has not held yet
};

}  // namespace c4::bootstrap
