#include "ccl/tap/connection_indices.h"

namespace c4::tap {

uint16_t ConnectionIndices::Take(const void* communicator, int peer) {
  const std::lock_guard<std::mutex> lock(mutex_);
  Taken& taken = taken_[{communicator, peer}];
  // More than the tap watches at a time (QueuePairTable) would share the last.
  if (taken.free.empty()) return taken.past == UINT16_MAX ? taken.past : taken.past++;
  return taken.free.extract(taken.free.begin()).value();
}

void ConnectionIndices::Return(const void* communicator, int peer, uint16_t index) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = taken_.find({communicator, peer});
  if (found == taken_.end() || index >= found->second.past) return;
  Taken& taken = found->second;
  taken.free.insert(index);
  while (taken.past > 1 && taken.free.erase(static_cast<uint16_t>(taken.past - 1)) != 0) --taken.past;
  if (taken.past == 1) taken_.erase(found);
}

size_t ConnectionIndices::connections() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return taken_.size();
}

ConnectionIndices& Indices() {
  static auto* const indices = new ConnectionIndices;
  return *indices;
}

}  // namespace c4::tap
