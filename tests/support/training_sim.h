// A hybrid-parallel training job in simulated time, as its agents would tell of it: ranks in tensor, pipeline
// and data parallel communicators, each rank on a host and NIC of its own, several queue pairs a connection
// on paths over several spines, noise, contention, and one fault at a time.
//
// Rank = (pipeline x DP + data) x TP + tensor. Tensor and data parallel communicators are rings that do
// collectives; pipeline communicators send and receive between neighbouring stages. What a fault makes of the
// telemetry is written down per fault, not emulated: Inject says what the accepted verdict is made of.
// Deterministic for a seed. One thread.
#pragma once

#include <cstdint>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "c4/v1/telemetry.pb.h"

namespace c4::simulation {

struct TrainingShape {
  uint32_t tensor = 2;
  uint32_t pipeline = 2;
  uint32_t data = 4;
  uint32_t queue_pairs = 4;
  uint32_t hosts_per_leaf = 4;
  uint32_t spines = 2;
  double noise = 0.25;      // of a chunk's latency, standard deviation of its logarithm
  double contention = 0.4;  // between queue pairs, likewise; fixed for the job
  double paused = 0;        // share of the chunks in groups of two that wait for a receiver without its quota
  bool fail_over = false;   // the transport fences queue pairs on a link that is cut, and builds them anew
  bool steered = false;     // on a path that avoids it; else on any
  bool from_start = false;  // a trial's fault is there before the job begins
  uint32_t ranks() const { return tensor * pipeline * data; }
};

enum class Fault {
  kNone,
  kStop,      // of a rank
  kKill,      // of a rank; the others' communicators fail, they exit
  kMismatch,  // a rank calls another count
  kCutLink,   // of a leaf and a spine
  kCutNic,    // of a host
  kSlowLink,
  kSlowNic,
  kSlowRank,
  kLostNode,
  kCheckpoint,   // one rank writes for a minute, with progress
  kEvaluation,   // everybody's own time is three times as long
  kAgentSilent,  // of one host, the job goes on
  kJitter,       // short pauses of a rank
  kHiccups,      // queue pairs that stand still under congestion are fenced, though their paths are well
};

class TrainingSim {
 public:
  TrainingSim(const TrainingShape& shape, uint64_t seed);

  // `target`: a rank, or leaf x spines + spine for links.
  void Inject(Fault fault, uint32_t target);
  void Heal();

  // Goes on by a quarter of a second; the batches of all agents that report.
  std::vector<v1::TelemetryBatch> Step();

  int64_t now_ns() const { return now_ns_; }
  int64_t unix_ns() const { return now_ns_ + 1'700'000'000'000'000'000; }

  struct Path {
    uint32_t from = 0;  // the job's ranks
    uint32_t to = 0;
    uint32_t index = 0;
    uint64_t communicator = 0;
    bool over_target = false;       // its data take the injected link
    bool acks_over_target = false;  // its acknowledgements do
    bool stuck = false;
    uint64_t chunks = 0;
  };
  std::vector<Path> paths() const;
  std::string nic(uint32_t rank) const;
  // Of what `source` ("address:port") sends to `destination`: now, or before it was built anew; empty: no
  // such.
  std::vector<std::string> LinksOf(const std::string& source, const std::string& destination) const;
  std::string target_cable() const;  // of a link
  // The queue pair that sends from `source` goes over to that spine. From where it sends then; empty: there
  // is none.
  std::string MoveTo(const std::string& source, const std::string& destination, uint32_t spine,
                     uint32_t port = 0);

 private:
  struct QueuePair {
    uint32_t from = 0;
    uint32_t to = 0;
    uint32_t index = 0;
    uint32_t spine = 0;
    uint32_t ack_spine = 0;
    double base_ns_per_kib = 0;
    double share = 0;  // chunks a tick, with fractions carried on
    bool stuck = false;
    bool crosses = false;  // from one leaf to another
    uint32_t port = 0;
    uint32_t fences = 0;
    bool dead = false;  // fenced in this step
    uint64_t posted = 0;
    uint64_t completed = 0;
    int64_t last_ns = 0;
    int64_t post_ns = 0;
    std::vector<uint32_t> histogram;
  };
  struct Group {
    uint64_t id = 0;
    bool point_to_point = false;
    std::vector<uint32_t> ranks;
    uint64_t done = 0;  // operations by all
    double carry = 0;
    std::vector<QueuePair> queue_pairs;
  };
  struct Rank {
    uint64_t in_operation_ns = 0;
    uint64_t operations = 0;
    v1::ProcessState state = v1::PROCESS_STATE_SLEEPING;
    int64_t state_since_ns = 0;
    int64_t progress_ns = 0;
    bool failed = false;
    uint64_t first_wait_ns = 0;
    int waits_in = -1;  // group, while the job stands still
  };

  uint32_t leaf(uint32_t rank) const { return rank / shape_.hosts_per_leaf; }
  bool Takes(const QueuePair& queue_pair, bool acks) const;
  // Whether the sender hears nothing of the other end any more.
  bool IsSilent(uint32_t from, uint32_t to, const QueuePair& queue_pair) const;
  void Progress(double seconds);
  void StandStill(uint32_t culprit, int first_group);
  void StallNetwork();
  bool OverTarget(const Group& group, const QueuePair& queue_pair) const;
  void FailOver();
  void Fence(QueuePair* queue_pair);
  void Rebuild(const Group& group, QueuePair* queue_pair);
  void Publish(const Group& group, const QueuePair& queue_pair);
  double Normal();
  bool IsPaused(const Group& group);
  v1::TelemetryBatch Batch(uint32_t rank);
  void AddGroup(const Group& group, uint32_t rank, v1::ProcessReport* report);

  const TrainingShape shape_;
  std::mt19937_64 random_;
  int64_t now_ns_ = 1'000'000'000'000;
  std::vector<Group> groups_;
  std::vector<Rank> ranks_;
  Fault fault_ = Fault::kNone;
  uint32_t target_ = 0;
  int64_t fault_ns_ = 0;
  bool stands_still_ = false;
  int64_t stands_still_since_ns_ = 0;
  int mismatch_group_ = -1;
  uint64_t sequence_ = 0;
  uint32_t next_port_ = 40000;
  bool any_dead_ = false;
  std::map<std::pair<std::string, std::string>, std::vector<std::string>> links_;  // by both ends
};

}  // namespace c4::simulation
