// The iterations that the ranks of a job tell of themselves (telemetry.proto, ProcessIterations): the series
// of one rank, which stands for the job, and what is new of the changes of all.
//
// What batches hold is not believed: times and numbers are checked, what cannot be is counted as left out.
// Memory: the series, and some hundred bytes a rank. Times are on the master's clock. One thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <vector>

#include "analysis/failslow/job_changes.h"
#include "c4d_master/job_state.h"

namespace c4::v1 {
class ProcessIterations;
class ProcessReport;
class TelemetryBatch;
}  // namespace c4::v1

namespace c4::c4d {

// One iteration of the rank that stands for the job.
struct SeriesPoint {
  uint64_t number = 0;  // of the series, from 0
  int64_t began_at_ns = 0;
  double duration_s = 0;
  uint32_t shape = 0;  // of the series, from 1
};

// Of one rank, as it told last.
struct RankSeries {
  static constexpr size_t kNewest = 9;

  ProcessKey process;
  uint64_t agent_epoch = 0;
  std::string host;
  uint64_t iterations = 0;
  uint32_t shape = 0;
  uint32_t calls = 0;
  int64_t last_at_ns = kNever;  // the end of the last one
  std::vector<float> newest_s;  // of that shape
  // By the program's own marks.
  uint64_t marked = 0;
  std::vector<float> marked_newest_s;
  std::vector<float> calls_newest_s;                 // told from its calls beside these marks
  std::map<uint64_t, failslow::RankChange> changes;  // as they were told, by their numbers
};

class IterationLog {
 public:
  static constexpr size_t kSeries = 16384;
  static constexpr size_t kChangesARank = 32;

  // A batch that was taken in as a new one, and its host as it has been since.
  void Observe(const v1::TelemetryBatch& batch, const Host& host);

  // Processes of ranks that are no more, by what the hosts hold now; to be called at times.
  void ForgetGone(const std::map<std::string, Host>& hosts);

  // Whether the process that stands for the job is there; false also where none does. Cheap.
  bool SeriesProcessLives(const std::map<std::string, Host>& hosts) const;

  // What the ranks have told since the last time.
  std::vector<failslow::RankChange> TakeChanges();

  // Of the rank that stands for the job: the lowest that tells iterations, as long as its process lives.
  // Oldest first; goes on when another process takes its place.
  const std::deque<SeriesPoint>& series() const { return series_; }
  int32_t series_rank() const { return series_rank_; }
  // Grows when another process's iterations follow in the series.
  uint64_t series_life() const { return series_life_; }

  const std::map<int32_t, RankSeries>& ranks() const { return ranks_; }
  uint64_t left_out() const { return left_out_; }

 private:
  void Take(const v1::ProcessIterations& told, const Process& process, const Host& host, int64_t offset_ns);
  void TakeMarks(const v1::ProcessReport& report, const Process& process);
  void AddToSeries(uint32_t shape, int64_t began_at_ns, double duration_s);
  RankSeries* RankOf(const Process& process, const Host& host);

  std::map<int32_t, RankSeries> ranks_;
  std::vector<failslow::RankChange> changes_;
  std::deque<SeriesPoint> series_;
  int32_t series_rank_ = -1;
  ProcessKey series_process_;
  uint64_t series_life_ = 0;
  uint64_t series_numbers_ = 0;
  uint32_t series_shapes_ = 0;      // that were given away before this process
  uint32_t series_most_shape_ = 0;  // of it
  uint64_t left_out_ = 0;
};

}  // namespace c4::c4d
