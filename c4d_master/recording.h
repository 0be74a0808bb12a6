// A recording of a job's telemetry (docs/formats/recording.md), and the master's logic run over one.
//
// Writing: one RecordingWriter, one thread; what was written survives the writer's death up to the last
// flushed block. Reading never trusts the bytes: a foreign file, a version that is not known and absurd
// lengths are errors; where a file ends early or is damaged, what came before counts and `end` says so.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "c4/v1/c4d.pb.h"
#include "c4d_master/job_state.h"
#include "c4d_master/policy.h"
#include "service/status.h"

namespace c4::c4d {

class RecordingWriter {
 public:
  static absl::StatusOr<std::unique_ptr<RecordingWriter>> Create(const std::string& path);
  ~RecordingWriter();

  absl::Status Write(const v1::RecordedBatch& batch);
  // What was written so far can be read from the file, whatever becomes of the writer.
  absl::Status Flush();
  // Everything to the file. To be called once, at the end.
  absl::Status Close();

 private:
  struct Parts;
  explicit RecordingWriter(std::unique_ptr<Parts> parts);
  std::unique_ptr<Parts> parts_;
};

// Whether the file begins as a recording does; false also where it cannot be read. Nothing is taken from a
// pipe, which is never one.
bool IsRecording(const std::string& path);

// Hands over one batch after the other. OK at an orderly end; DataLoss with a sentence where the file breaks
// off; InvalidArgument when it is no recording.
absl::Status ReadRecording(const std::string& path,
                           const std::function<void(const v1::RecordedBatch&)>& on_batch);
// The same for a file's content; `name` stands in the messages.
absl::Status ReadRecordingBytes(std::string_view bytes, const std::string& name,
                                const std::function<void(const v1::RecordedBatch&)>& on_batch);

struct ReplayChange {
  int64_t since_begin_ns = 0;  // since the first batch arrived
  int64_t unix_ns = 0;
  v1::Verdict verdict;
};

// A member of a communicator with an operation in hand or on its way, at the moment of a scene.
struct ReplayPlace {
  uint64_t communicator_id = 0;
  int32_t rank = -1;  // the job's
  bool waits = false;
  uint64_t operation = 0;  // that it waits in, else the next one that it would call
};

// What the master knew when it confirmed a verdict.
struct ReplayScene {
  ReplayChange change;
  std::vector<ReplayPlace> places;  // by communicator, then rank; only communicators where somebody waits
  v1::GetMatrixReply matrix;
  v1::GetStatusReply status;
};

struct Replay {
  std::string job;
  // By which the job was judged while it was recorded, in that order; the present replay's may be another.
  std::vector<std::string> recorded_policies;
  uint64_t batches = 0;
  uint64_t refused = 0;               // by the master
  uint64_t dropped = 0;               // lost while recording
  std::vector<ReplayChange> changes;  // each change of a verdict, as it came
  std::vector<ReplayScene> scenes;    // one for each verdict that was confirmed, in that order
  v1::ListVerdictsReply verdicts;     // all, at the end
  v1::GetMatrixReply matrix;          // the last one while anything moved
  v1::GetStatusReply status;          // at the end
  v1::GetIterationsReply iterations;  // at the end, all that are kept
  int64_t begin_ns = 0;               // the first batch, on the master's monotonic clock
  int64_t length_ns = 0;
  int64_t end_unix_ns = 0;
  absl::Status end;  // of the file
};

// Is told of each batch that was taken in, with its host as the master holds it then.
using OnReplayed = std::function<void(const v1::RecordedBatch&, const Host&, Now)>;
// May look at the master after each of its ticks.
class C4dHandler;
using OnReplayTick = std::function<void(C4dHandler*, Now)>;

// The same handler as the master's, ticked every 100 ms of the recording's time; by this policy, whichever
// was in force when it was recorded. Deterministic.
absl::StatusOr<Replay> ReplayRecording(const std::string& path, const Policy& policy = {},
                                       const OnReplayed& on_replayed = {}, const OnReplayTick& on_tick = {});
// Of recordings that follow each other (rolling_recording.h), as if they were one; `end` is the last one's.
absl::StatusOr<Replay> ReplayRecordings(const std::vector<std::string>& paths, const Policy& policy = {},
                                        const OnReplayed& on_replayed = {}, const OnReplayTick& on_tick = {});

}  // namespace c4::c4d
