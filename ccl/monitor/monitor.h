// The process's monitor: its segment and who writes where in it. Slots and rings are handed out under a
// mutex at set-up; recording itself takes none. When the segment is full, the recorder given out writes to
// a spare slot that nobody reads, and the segment counts the refusal. Any thread.
#pragma once

#include <atomic>
#include <mutex>
#include <string>
#include <vector>

#include "ccl/base/fork.h"
#include "ccl/base/identity.h"
#include "ccl/monitor/recorder.h"
#include "ccl/monitor/segment.h"

namespace c4 {

struct CommunicatorIdentity {
  uint64_t id = 0;
  uint64_t parent_id = 0;
  int rank = 0;
  int rank_count = 0;
  wire::EngineKind engine = wire::kEngineHost;
  std::string name;
};

struct QueuePairIdentity {
  wire::Direction direction = wire::kDirectionSend;
  int peer = 0;
  uint16_t channel = 0;
  uint16_t index = 0;
  uint64_t number = 0;
  wire::TransportKind transport = wire::kTransportTcp;
  wire::Endpoint local{};
  wire::Endpoint remote{};
  uint32_t peer_number = 0;  // verbs: of the other end's queue pair; 0: not known
};

class Monitor {
 public:
  // The process's own; made at the first call, kept to the end of the process.
  static Monitor& Get();

  // For tests: a monitor over a segment in `directory`, or in private memory when that is empty.
  Monitor(const std::string& directory, const SegmentGeometry& geometry, const JobIdentity& job);
  Monitor(const Monitor&) = delete;
  Monitor& operator=(const Monitor&) = delete;

  CommunicatorRecorder OpenCommunicator(const CommunicatorIdentity& identity);
  void CloseCommunicator(CommunicatorRecorder* recorder, wire::SlotPhase phase);
  QueuePairRecorder OpenQueuePair(const CommunicatorRecorder& communicator,
                                  const QueuePairIdentity& identity);
  void CloseQueuePair(QueuePairRecorder* recorder, wire::SlotPhase phase, int error);
  // For the calling thread, until it gives it back.
  RingWriter LeaseRing();
  void ReturnRing(RingWriter* ring);

  // Which worker the program says that it is; `place.declared` is counted here.
  void SetWorker(const wire::WorkerPlace& place);
  wire::WorkerPlace worker();

  void SetLevel(wire::RecordLevel level);
  wire::RecordLevel level();
  Segment& segment() { return segment_; }
  const std::string& directory() const { return directory_; }

 private:
  std::mutex mutex_;
  std::string directory_;
  Segment segment_;
  JobIdentity job_;
  uint64_t forks_ = Forks();  // of the process that the segment's header names
  uint32_t live_communicators_ = 0;
  std::vector<uint32_t> free_communicators_;
  std::vector<uint32_t> free_queue_pairs_;
  std::vector<uint32_t> free_rings_;
  wire::CommunicatorSlot spare_communicator_{};
  wire::QueuePairSlot spare_queue_pair_{};
};

}  // namespace c4
