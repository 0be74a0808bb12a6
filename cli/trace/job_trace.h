// The timeline of a job from its telemetry: what each rank did, whom it waited for, what the master said.
//
// Handed each batch after the master's logic has taken it in (c4d::ReplayRecording), then asked once for the
// whole. Where the job recorded at the level fine, each operation and mark is there; elsewhere the operation
// that was newest at a batch, and what was in hand.
//
// One thread. Memory grows with the events, up to `most_events`; what is more is counted.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "c4/v1/c4d.pb.h"
#include "c4d_master/job_state.h"
#include "c4d_master/recording.h"
#include "c4d_master/smon/profile_collector.h"
#include "cli/trace/trace_row.h"

namespace c4::cli {

enum class TraceBy { kHost, kGroup };  // where operations stand: below their host, or their communicator

struct TraceOptions {
  TraceBy by = TraceBy::kHost;
  // Since the first batch; what touches the window is shown whole.
  int64_t from_ns = 0;
  int64_t to_ns = std::numeric_limits<int64_t>::max();
  uint64_t most_events = 4'000'000;
};

class JobTrace {
 public:
  explicit JobTrace(const TraceOptions& options) : options_(options) {}

  // `host`: as the master holds it with that batch.
  void Observe(const v1::RecordedBatch& recorded, const c4d::Host& host, c4d::Now now);
  // To be called once, with what the replay gave.
  Timeline Finish(const c4d::Replay& replay);

 private:
  // Of one kind of operations of a membership: collectives, or sends and receives.
  struct Line {
    uint64_t seen = 0;  // operations that had started
    bool open = false;  // the newest has not ended
    int64_t open_from_ns = 0;
    int64_t still_open_ns = 0;  // when it was last seen so
    TraceSlice slice;           // that one
    std::vector<TraceSlice> sampled;
  };
  struct Group {
    std::string name;
    uint32_t rank = 0;
    uint32_t rank_count = 0;
    Line collectives;
    Line messages;
  };
  struct Peer {
    uint64_t bytes = 0;
    int64_t at_ns = c4d::kNever;
    std::vector<TracePoint> points;  // MB/s
  };
  struct Rank {
    std::string host;
    std::string name;
    int32_t rank = -1;
    std::map<uint64_t, Group> groups;                     // by communicator
    std::map<std::pair<uint64_t, uint32_t>, Peer> peers;  // that it sends to, by communicator and rank there
    TraceSlice state;                                     // that it is in; without a name: it runs
    std::vector<TraceSlice> states;
    TraceRow fine_marks;
    std::map<std::pair<uint64_t, bool>, std::vector<TraceSlice>> fine;  // by communicator; true: messages
  };
  // An operation of a communicator in the fine records: who took part, where its slice stands.
  struct Entry {
    int64_t called_ns = 0;
    int64_t waits_from_ns = 0;
    int64_t ended_ns = 0;
    int64_t error_ns = 0;  // of the clock
    Rank* rank = nullptr;
    uint64_t communicator_id = 0;
    size_t slice = 0;
  };
  using Operations = std::map<std::pair<uint64_t, uint64_t>, std::vector<Entry>>;  // communicator, number

  bool InWindow(int64_t from_ns, int64_t to_ns) const;
  bool HasRoom();
  void Keep(TraceSlice slice, std::vector<TraceSlice>* slices);
  void Follow(const c4d::Counter& started, const c4d::Counter& finished, const c4d::OperationInfo& info,
              int64_t as_of_ns, Line* line);
  void FollowState(const c4d::Process& process, int64_t as_of_ns, Rank* rank);
  void FollowBytes(const c4d::Membership& membership, int64_t as_of_ns, Rank* rank);
  void TakeHardware(const v1::TelemetryBatch& batch, const c4d::Host& host);
  void TakeFine();
  void PutFine(const c4d::ProfiledProcess& process, Rank* rank, Operations* operations);
  void DrawWaits(const Operations& operations);
  void CloseAll(int64_t end_ns);
  TraceRow Verdicts(const c4d::Replay& replay);
  void DrawVerdictWaits(const v1::Verdict& verdict, int64_t at_ns);
  TraceRow Iterations(const c4d::Replay& replay);
  TraceRow RankRow(const Rank& rank);
  std::vector<TraceSlice> OperationsOf(const Rank& rank, uint64_t communicator_id, bool messages) const;

  const TraceOptions options_;
  int64_t begin_ns_ = c4d::kNever;
  c4d::Now newest_;
  uint64_t events_ = 0;
  uint64_t left_out_ = 0;
  uint64_t arrows_ = 0;
  c4d::ProfileCollector collector_;
  std::map<c4d::ProcessKey, Rank> ranks_;
  std::map<std::string, TraceRow> hardware_;                            // by host
  std::map<std::string, std::pair<uint64_t, uint64_t>> hardware_seen_;  // agent's epoch, newest event
};

}  // namespace c4::cli
