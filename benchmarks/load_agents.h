// The telemetry of a large hybrid-parallel training job, as its agents would send it: what the masters' loads
// are made of. Every rank is in communicators of everybody, of its host (tensor parallel), of its replicas
// (data parallel) and of its pipeline; all goes well in it.
//
// One thread a host at a time.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "c4/v1/telemetry.pb.h"

namespace c4::benchmarks {

struct LoadShape {
  uint32_t hosts = 512;
  uint32_t ranks_per_host = 8;
  uint32_t queue_pairs = 4;  // of a connection
  // Of every rank, beside those four, with seven neighbours each and without queue pairs; one of four is
  // called.
  uint32_t more_communicators = 0;
};

std::string LoadHostName(uint32_t host);

// A batch for each host, moved on in place.
class LoadAgents {
 public:
  explicit LoadAgents(const LoadShape& shape);

  size_t queue_pairs() const { return queue_pairs_; }  // ends of them, in all
  // So many quarters of a second pass on this host, up to `now_ns` by its monotonic clock.
  void Advance(uint32_t host, int64_t now_ns, uint32_t quarters = 1);
  const v1::TelemetryBatch& batch(uint32_t host) const { return batches_[host]; }
  v1::TelemetryBatch* mutable_batch(uint32_t host) { return &batches_[host]; }

 private:
  void AddProcess(uint32_t host, uint32_t t, uint32_t ranks, uint32_t stages, uint32_t data,
                  v1::TelemetryBatch* batch);
  void AddMore(uint32_t rank, uint32_t ranks, v1::ProcessReport* report) const;
  void AddRing(uint64_t id, uint32_t rank, uint32_t count, bool pipeline, v1::ProcessReport* report);
  void AddConnection(uint64_t id, uint32_t rank, uint32_t peer, v1::ProcessReport* report);
  void AddQueuePairs(uint64_t id, uint32_t rank, uint32_t peer, bool sends, v1::ProcessReport* report);

  const LoadShape shape_;
  std::vector<v1::TelemetryBatch> batches_;
  std::vector<uint64_t> randoms_;  // of each host
  size_t queue_pairs_ = 0;
};

}  // namespace c4::benchmarks
