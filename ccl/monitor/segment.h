// The writer's side of the shared-memory segment (wire/segment.h): makes the file, maps it, locks it.
//
// One per process. The mapping lives until the process ends, so that recorders need not check; in the
// child of a fork it is replaced by private memory, so that a child can never write into its parent's
// records. Its room is taken when the file is made, so that a tmpfs that fills up later ends nobody, and a
// file that is cut short makes it private too. When no file can be made, the same layout lies in private
// memory and nobody reads it: recording code is the same in both cases. The agent unlinks files once it has
// read them; for nodes where none runs, the next process of the same user takes away what dead ones left
// behind a day ago.
#pragma once

#include <cstdint>
#include <string>

#include "ccl/base/clock.h"
#include "ccl/base/identity.h"
#include "ccl/base/result.h"
#include "wire/segment.h"

namespace c4 {

struct SegmentGeometry {
  uint32_t communicators = 1024;
  uint32_t queue_pairs = 4096;
  uint32_t rings = 64;
  uint32_t ring_records = 1024;  // a power of two
};

class Segment {
 public:
  Segment() = default;
  Segment(const Segment&) = delete;
  Segment& operator=(const Segment&) = delete;
  ~Segment();

  // Makes `directory` when it is missing, and the file in it.
  Result Create(const std::string& directory, const SegmentGeometry& geometry, const ClockBase& clock,
                const JobIdentity& job);
  // The same layout in private memory.
  Result CreatePrivate(const SegmentGeometry& geometry, const ClockBase& clock, const JobIdentity& job);

  const std::string& file_name() const { return file_name_; }  // without the directory; empty when private
  wire::SegmentHeader& header() { return *static_cast<wire::SegmentHeader*>(base_); }
  wire::CommunicatorSlot& communicator(uint32_t i);
  wire::QueuePairSlot& queue_pair(uint32_t i);
  wire::RingHeader& ring(uint32_t i);
  wire::Record* ring_records(uint32_t i);

  // For the handler that runs in the child of a fork: async-signal-safe.
  void BecomePrivate();

 private:
  void Fill(const SegmentGeometry& geometry, const ClockBase& clock, const JobIdentity& job);

  void* base_ = nullptr;
  size_t bytes_ = 0;
  int fd_ = -1;  // kept open: closing it would release the lock
  std::string file_name_;
  wire::SegmentHeader layout_{};  // as it was filled: for when the file is cut short
};

// Unlinks the segments in `directory` that belong to this user, have no living writer and were not written to
// for `age_s` seconds.
void SweepSegments(const std::string& directory, int64_t age_s);

// Copies with truncation; always terminated, never past `size` bytes, the rest zeroed.
void CopyText(char* to, size_t size, const std::string& from);

}  // namespace c4
