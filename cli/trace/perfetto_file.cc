#include "cli/trace/perfetto_file.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <string>
#include <utility>

#include "c4/perfetto/trace.pb.h"

namespace c4::cli {
namespace {

constexpr int kSliceBegins = 1;
constexpr int kSliceEnds = 2;
constexpr int kInstant = 3;
constexpr int kCounter = 4;
constexpr uint32_t kRealTime = 1;
constexpr uint32_t kBootTime = 6;
constexpr int kPacketsOfPiece = 2000;
constexpr int kByRank = 3;  // TrackDescriptor.child_ordering
constexpr int kFirstPid = 1;

class Writer {
 public:
  Writer(const Timeline& timeline, const std::function<bool(std::string_view)>& write)
      : timeline_(timeline), write_(write) {}

  PerfettoCounts Write() {
    Clocks();
    for (size_t i = 0; i < timeline_.groups.size() && good_; ++i) {
      Row(timeline_.groups[i], 0, static_cast<int>(i));
    }
    Flush();
    counts_.written = good_;
    return counts_;
  }

 private:
  perfetto::TracePacket* Packet() {
    if (piece_.packet_size() >= kPacketsOfPiece) Flush();
    perfetto::TracePacket* packet = piece_.add_packet();
    packet->set_trusted_packet_sequence_id(1);
    return packet;
  }

  void Flush() {
    if (good_ && piece_.packet_size() > 0) good_ = write_(piece_.SerializeAsString());
    piece_.Clear();
  }

  uint64_t TimeOf(int64_t at_ns) const { return static_cast<uint64_t>(std::max<int64_t>(at_ns, 0)); }

  void Clocks() {
    perfetto::TracePacket* packet = Packet();
    packet->set_sequence_flags(1);
    for (const auto& [id, ns] : {std::pair(kBootTime, timeline_.at_ns), {kRealTime, timeline_.unix_ns}}) {
      perfetto::ClockSnapshot::Clock* clock = packet->mutable_clock_snapshot()->add_clocks();
      clock->set_clock_id(id);
      clock->set_timestamp(TimeOf(ns));
    }
  }

  // What stands in the file before the packet that uses the number.
  uint64_t Number(const std::string& name, std::map<std::string, uint64_t>* numbers, bool of_details) {
    const auto [at, is_new] = numbers->try_emplace(name, numbers->size() + 1);
    if (is_new) {
      perfetto::InternedData* data = Packet()->mutable_interned_data();
      perfetto::InternedName* entry =
          of_details ? data->add_debug_annotation_names() : data->add_event_names();
      entry->set_iid(at->second);
      entry->set_name(name);
    }
    return at->second;
  }

  uint64_t Describe(const TraceRow& row, uint64_t parent, int place) {
    const uint64_t uuid = ++rows_;
    perfetto::TrackDescriptor* track = Packet()->mutable_track_descriptor();
    track->set_uuid(uuid);
    if (parent == 0) {
      track->mutable_process()->set_pid(kFirstPid + place);
      track->mutable_process()->set_process_name(row.name);
    } else {
      track->set_parent_uuid(parent);
      track->set_name(row.name);
      track->set_sibling_order_rank(place);
    }
    track->set_child_ordering(kByRank);
    if (!row.unit.empty()) track->mutable_counter()->set_unit_name(row.unit);
    ++counts_.rows;
    return uuid;
  }

  void Row(const TraceRow& row, uint64_t parent, int place) {
    const uint64_t uuid = Describe(row, parent, place);
    Slices(row, uuid, parent, place);
    for (const TracePoint& point : row.points) {
      perfetto::TrackEvent* event = Event(uuid, point.at_ns, kCounter);
      event->set_double_counter_value(point.value);
      ++counts_.events;
    }
    for (size_t i = 0; i < row.rows.size() && good_; ++i) Row(row.rows[i], uuid, static_cast<int>(i));
  }

  // A track holds slices that lie in each other or apart. What overlaps otherwise goes to another track of
  // the same name and place, which the viewer draws as one with it.
  void Slices(const TraceRow& row, uint64_t uuid, uint64_t parent, int place) {
    std::vector<size_t> order(row.slices.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
      const TraceSlice& x = row.slices[a];
      const TraceSlice& y = row.slices[b];
      return x.from_ns != y.from_ns ? x.from_ns < y.from_ns : x.to_ns > y.to_ns;
    });
    std::vector<Lane> lanes(1, Lane{uuid, {}});
    for (const size_t i : order) {
      if (!good_) return;
      const TraceSlice& slice = row.slices[i];
      Lane* lane = nullptr;
      for (Lane& candidate : lanes) {
        End(&candidate, slice.from_ns);
        if (lane == nullptr && (candidate.ends.empty() || candidate.ends.back() >= slice.to_ns)) {
          lane = &candidate;
        }
      }
      if (lane == nullptr) lane = &lanes.emplace_back(Lane{Describe(row, parent, place), {}});
      Begin(slice, lane);
    }
    for (Lane& lane : lanes) End(&lane, INT64_MAX);
  }

  struct Lane {
    uint64_t uuid = 0;
    std::vector<int64_t> ends;  // of the slices that are open, the innermost last
  };

  void End(Lane* lane, int64_t until_ns) {
    for (; !lane->ends.empty() && lane->ends.back() <= until_ns; lane->ends.pop_back()) {
      Event(lane->uuid, lane->ends.back(), kSliceEnds);
    }
  }

  void Begin(const TraceSlice& slice, Lane* lane) {
    const uint64_t name = Number(slice.name, &names_, false);
    std::vector<uint64_t> details;
    for (const TraceDetail& detail : slice.details) {
      details.push_back(Number(detail.name, &detail_names_, true));
    }
    const bool instant = slice.to_ns <= slice.from_ns;
    perfetto::TrackEvent* event = Event(lane->uuid, slice.from_ns, instant ? kInstant : kSliceBegins);
    event->set_name_iid(name);
    for (size_t i = 0; i < details.size(); ++i) {
      perfetto::DebugAnnotation* annotation = event->add_debug_annotations();
      annotation->set_name_iid(details[i]);
      const TraceDetail& detail = slice.details[i];
      if (detail.kind == TraceDetail::Kind::kWhole) annotation->set_int_value(detail.whole);
      if (detail.kind == TraceDetail::Kind::kReal) annotation->set_double_value(detail.real);
      if (detail.kind == TraceDetail::Kind::kText) annotation->set_string_value(detail.text);
    }
    for (const uint64_t arrow : slice.arrows_from) event->add_flow_ids(arrow);
    for (const uint64_t arrow : slice.arrows_to) event->add_terminating_flow_ids(arrow);
    if (!instant) lane->ends.push_back(slice.to_ns);
    ++counts_.events;
  }

  perfetto::TrackEvent* Event(uint64_t uuid, int64_t at_ns, int type) {
    perfetto::TracePacket* packet = Packet();
    packet->set_timestamp(TimeOf(at_ns));
    packet->set_sequence_flags(2);
    perfetto::TrackEvent* event = packet->mutable_track_event();
    event->set_type(type);
    event->set_track_uuid(uuid);
    return event;
  }

  const Timeline& timeline_;
  const std::function<bool(std::string_view)>& write_;
  perfetto::Trace piece_;
  std::map<std::string, uint64_t> names_;
  std::map<std::string, uint64_t> detail_names_;
  uint64_t rows_ = 0;
  PerfettoCounts counts_;
  bool good_ = true;
};

}  // namespace

PerfettoCounts WritePerfetto(const Timeline& timeline, const std::function<bool(std::string_view)>& write) {
  return Writer(timeline, write).Write();
}

}  // namespace c4::cli
