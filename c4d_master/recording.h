// A recording of a job's telemetry (docs/formats/recording.md), and the master's logic run over one.
//
// Writing: one RecordingWriter, one thread; what was written survives the writer's death up to the last
// flushed block. Reading never trusts the bytes: a foreign file, a version that is not known and absurd
// lengths are errors; where a file ends early or is damaged, what came before counts and `end` says so.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "c4/v1/c4d.pb.h"
#include "service/status.h"

namespace c4::c4d {

class RecordingWriter {
 public:
  static absl::StatusOr<std::unique_ptr<RecordingWriter>> Create(const std::string& path);
  ~RecordingWriter();

  absl::Status Write(const v1::RecordedBatch& batch);
  // Everything to the file. To be called once, at the end.
  absl::Status Close();

 private:
  struct Parts;
  explicit RecordingWriter(std::unique_ptr<Parts> parts);
  std::unique_ptr<Parts> parts_;
};

// Hands over one batch after the other. OK at an orderly end; DataLoss with a sentence where the file breaks
// off; InvalidArgument when it is no recording.
absl::Status ReadRecording(const std::string& path,
                           const std::function<void(const v1::RecordedBatch&)>& on_batch);

struct Replay {
  uint64_t batches = 0;
  uint64_t refused = 0;              // by the master
  uint64_t dropped = 0;              // lost while recording
  std::vector<v1::Verdict> changes;  // each change of a verdict, as it came
  v1::ListVerdictsReply verdicts;    // all, at the end
  v1::GetMatrixReply matrix;         // the last one while anything moved
  int64_t end_unix_ns = 0;
  absl::Status end;  // of the file
};

// The same handler as the master's, ticked every 100 ms of the recording's time. Deterministic.
absl::StatusOr<Replay> ReplayRecording(const std::string& path);

}  // namespace c4::c4d
