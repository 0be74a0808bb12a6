#include "cli/page/page_timeline.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <utility>

#include "c4d_master/recording.h"
#include "cli/trace/job_recordings.h"
#include "cli/trace/job_trace.h"
#include "service/printable.h"

namespace c4::cli {
namespace {

constexpr int64_t kUsNs = 1'000;
constexpr int64_t kUsualWindowNs = 10'000'000'000;
constexpr int64_t kLeastWindowNs = 100'000'000;

v1::PageRowKind KindOf(RowKind kind) {
  switch (kind) {
    case RowKind::kVerdicts:
      return v1::PAGE_ROW_KIND_VERDICTS;
    case RowKind::kIterations:
      return v1::PAGE_ROW_KIND_ITERATIONS;
    case RowKind::kHardware:
      return v1::PAGE_ROW_KIND_HARDWARE;
    case RowKind::kProcess:
      return v1::PAGE_ROW_KIND_PROCESS;
    case RowKind::kMarks:
      return v1::PAGE_ROW_KIND_MARKS;
    case RowKind::kOperations:
      return v1::PAGE_ROW_KIND_OPERATIONS;
    case RowKind::kOther:
      break;
  }
  return v1::PAGE_ROW_KIND_UNSPECIFIED;
}

class Describer {
 public:
  Describer(int64_t from_ns, int64_t to_ns, const page::TimelineWindow& window, size_t most,
            v1::PageTimeline* to)
      : from_ns_(from_ns), to_ns_(to_ns), window_(window), most_(most), to_(to) {}

  // To be called with all of them first.
  void Count(const TraceRow& row, int32_t rank) {
    const int32_t of = row.rank >= 0 ? row.rank : rank;
    if (!IsWanted(of)) return;
    if (row.kind != RowKind::kOther) {
      ++rows_;
      spans_ += static_cast<size_t>(std::count_if(
          row.slices.begin(), row.slices.end(), [this](const TraceSlice& slice) { return Touches(slice); }));
    }
    for (const TraceRow& below : row.rows) Count(below, of);
  }

  void Rows(const TraceRow& row, const std::string& host, int32_t rank) {
    const int32_t of = row.rank >= 0 ? row.rank : rank;
    if (!IsWanted(of)) return;
    if (row.kind != RowKind::kOther) Row(row, host, of);
    for (const TraceRow& below : row.rows) Rows(below, host, of);
  }

  size_t spans() const { return spans_; }

 private:
  bool IsWanted(int32_t rank) const {
    if (rank < 0 || window_.ranks.empty()) return true;
    return std::any_of(window_.ranks.begin(), window_.ranks.end(),
                       [&](const auto& range) { return rank >= range.first && rank <= range.second; });
  }

  // A row without a span in the window says something as well: nothing happened there.
  void Row(const TraceRow& row, const std::string& host, int32_t rank) {
    v1::PageTimelineRow* const described = to_->add_rows();
    described->set_kind(KindOf(row.kind));
    described->set_host(host);
    if (rank >= 0) described->set_rank(rank);
    if (row.kind == RowKind::kOperations) described->set_name(row.name);
    std::vector<const TraceSlice*> slices;
    for (const TraceSlice& slice : row.slices) {
      if (Touches(slice)) slices.push_back(&slice);
    }
    std::stable_sort(slices.begin(), slices.end(),
                     [](const TraceSlice* a, const TraceSlice* b) { return a->from_ns < b->from_ns; });
    // Too many: of short ones that begin close to each other the first. Each row has as much room as any
    // other.
    const int64_t slot_ns =
        spans_ <= most_
            ? 0
            : (to_ns_ - from_ns_) / static_cast<int64_t>(std::max<size_t>(most_ / (2 * rows_), 1)) + 1;
    int64_t slot = -1;
    for (const TraceSlice* slice : slices) {
      if (slot_ns > 0 && slice->to_ns - slice->from_ns < slot_ns) {
        const int64_t at = std::max<int64_t>(slice->from_ns - from_ns_, 0) / slot_ns;
        if (at == slot) {
          to_->set_left_out(to_->left_out() + 1);
          continue;
        }
        slot = at;
      }
      Span(*slice);
    }
  }

  bool Touches(const TraceSlice& slice) const { return slice.to_ns >= from_ns_ && slice.from_ns <= to_ns_; }

  void Span(const TraceSlice& slice) {
    const auto [name, is_new] = names_.try_emplace(slice.name, static_cast<uint32_t>(names_.size()));
    if (is_new) to_->add_names(slice.name);
    int64_t number = -1;
    int32_t waits_for = -1;
    double waits_ms = 0;
    for (const TraceDetail& detail : slice.details) {
      const std::string_view what = detail.name;
      if (what == "operation" || what == "number") number = detail.whole;
      if (what == "waits_ms") waits_ms = detail.real;
      constexpr std::string_view kRank = "rank ";
      if (what != "waits_for" || detail.text.rfind(kRank, 0) != 0) continue;
      const char* const end = detail.text.data() + detail.text.size();
      if (std::from_chars(detail.text.data() + kRank.size(), end, waits_for).ptr != end) waits_for = -1;
    }
    to_->add_row(static_cast<uint32_t>(to_->rows_size() - 1));
    to_->add_start_us((slice.from_ns - from_ns_) / kUsNs);
    to_->add_length_us(static_cast<uint64_t>(slice.to_ns - slice.from_ns) / kUsNs);
    to_->add_name(name->second);
    to_->add_number(number);
    to_->add_waits_for(waits_for);
    to_->add_waits_ms(static_cast<float>(waits_ms));
  }

  const int64_t from_ns_;
  const int64_t to_ns_;
  const page::TimelineWindow& window_;
  const size_t most_;
  v1::PageTimeline* const to_;
  size_t rows_ = 0;
  size_t spans_ = 0;
  std::map<std::string, uint32_t> names_;
};

}  // namespace

v1::PageTimeline DescribeTimeline(const Timeline& timeline, int64_t from_ns, int64_t to_ns,
                                  const page::TimelineWindow& window, size_t most) {
  v1::PageTimeline described;
  for (;;) {
    Describer describer(from_ns, to_ns, window, most, &described);
    for (const TraceRow& group : timeline.groups) describer.Count(group, -1);
    if (window.from_unix_ns == 0 && describer.spans() > most && to_ns - from_ns > kLeastWindowNs) {
      from_ns += (to_ns - from_ns) / 2;
      continue;
    }
    for (size_t i = 0; i < timeline.groups.size(); ++i) {
      // The first one is the whole job's.
      describer.Rows(timeline.groups[i], i == 0 ? std::string() : timeline.groups[i].name, -1);
    }
    break;
  }
  const auto unix_of = [&](int64_t at_ns) { return timeline.unix_ns - (timeline.at_ns - at_ns); };
  described.set_from_unix_ns(unix_of(from_ns));
  described.set_to_unix_ns(unix_of(to_ns));
  described.set_left_out(described.left_out() + timeline.left_out);
  return described;
}

absl::StatusOr<v1::PageTimeline> TimelineOf(const std::vector<std::string>& recordings,
                                            const page::TimelineWindow& window) {
  const absl::StatusOr<RecordedTime> time = TimeOfRecordings(recordings);
  if (!time.ok()) return time.status();
  const int64_t begin_ns = time->begin_unix_ns;
  const int64_t end_ns = std::max(time->end_unix_ns, begin_ns);
  const int64_t to_ns = window.to_unix_ns == 0 ? end_ns : std::clamp(window.to_unix_ns, begin_ns, end_ns);
  const int64_t usual_ns = std::max(begin_ns, to_ns - kUsualWindowNs);
  const int64_t from_ns =
      window.from_unix_ns == 0 ? usual_ns : std::clamp(window.from_unix_ns, begin_ns, to_ns);
  TraceOptions options;
  options.from_ns = from_ns - begin_ns;
  options.to_ns = to_ns - begin_ns;
  JobTrace trace(options);
  const absl::StatusOr<c4d::Replay> replay = c4d::ReplayRecordings(
      recordings, {}, [&](const v1::RecordedBatch& recorded, const c4d::Host& host, c4d::Now now) {
        trace.Observe(recorded, host, now);
      });
  if (!replay.ok()) return replay.status();
  const Timeline timeline = trace.Finish(*replay);
  const auto at = [&](int64_t unix_ns) { return timeline.at_ns - (timeline.unix_ns - unix_ns); };
  v1::PageTimeline described = DescribeTimeline(timeline, at(from_ns), at(to_ns), window);
  described.set_job(replay->job);
  described.set_begin_unix_ns(begin_ns);
  described.set_end_unix_ns(end_ns);
  if (!replay->end.ok()) described.set_fault(std::string(replay->end.message()));
  service::MakePrintable(&described);
  return described;
}

}  // namespace c4::cli
