// Streams of bytes between hosts, each from a port that the caller has chosen. They show what the network
// alone can do, to compare with a job or a simulator.
//
// For tests and benchmarks. Each flow has two threads, and a socket in both namespaces. Needs root.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "fabric/emulator/oracle.h"
#include "fabric/emulator/spec.h"

namespace c4::fabric {

class RawFlow {
 public:
  RawFlow(const FabricSpec& spec, FiveTuple tuple);
  RawFlow(const RawFlow&) = delete;
  RawFlow& operator=(const RawFlow&) = delete;
  ~RawFlow();

  // Connects; blocks. The ports have to be free.
  absl::Status Open();
  // Sends as fast as it goes, until the flow goes.
  void Start();
  uint64_t received_bytes() const { return bytes_; }

 private:
  const FabricSpec& spec_;
  const FiveTuple tuple_;
  int sender_ = -1;
  int receiver_ = -1;
  std::atomic<bool> stop_{false};
  std::atomic<uint64_t> bytes_{0};
  std::thread threads_[2];
};

// All of them at a time: Mbit/s by flow, over `measured_ms` after `warm_ms`.
absl::StatusOr<std::vector<double>> GoodputOf(const FabricSpec& spec, const std::vector<FiveTuple>& tuples,
                                              int warm_ms, int measured_ms);

}  // namespace c4::fabric
