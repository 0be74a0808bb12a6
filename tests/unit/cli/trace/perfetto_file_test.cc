// The file is read back by Perfetto's own message numbers: rows, slices that overlap, instants, counters,
// arrows.
#include "cli/trace/perfetto_file.h"

#include <map>
#include <random>

#include "c4/perfetto/trace.pb.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace c4::cli {
namespace {

using ::testing::ElementsAre;

perfetto::Trace Written(const Timeline& timeline, PerfettoCounts* counts = nullptr) {
  std::string bytes;
  const PerfettoCounts made = WritePerfetto(timeline, [&](std::string_view piece) {
    bytes += piece;
    return true;
  });
  EXPECT_TRUE(made.written);
  if (counts != nullptr) *counts = made;
  perfetto::Trace trace;
  EXPECT_TRUE(trace.ParseFromString(bytes));
  return trace;
}

// What a viewer makes of it: slices by the name of their track, with begin, end and depth.
struct Seen {
  std::string track;
  std::string name;
  uint64_t from = 0;
  uint64_t to = 0;
  size_t depth = 0;
};

std::vector<Seen> Slices(const perfetto::Trace& trace) {
  std::map<uint64_t, std::string> tracks;
  std::map<uint64_t, std::string> names;
  std::map<uint64_t, std::vector<size_t>> open;
  std::map<uint64_t, uint64_t> newest;
  std::vector<Seen> seen;
  for (const perfetto::TracePacket& packet : trace.packet()) {
    for (const perfetto::InternedName& name : packet.interned_data().event_names()) {
      names[name.iid()] = name.name();
    }
    if (packet.has_track_descriptor()) {
      const perfetto::TrackDescriptor& track = packet.track_descriptor();
      EXPECT_TRUE(track.parent_uuid() == 0 || tracks.contains(track.parent_uuid()));
      tracks[track.uuid()] = track.has_process() ? track.process().process_name() : track.name();
    }
    if (!packet.has_track_event()) continue;
    const perfetto::TrackEvent& event = packet.track_event();
    EXPECT_TRUE(tracks.contains(event.track_uuid()));
    EXPECT_GE(packet.timestamp(), newest[event.track_uuid()]) << "events of a track stand by time";
    newest[event.track_uuid()] = packet.timestamp();
    std::vector<size_t>& stack = open[event.track_uuid()];
    if (event.type() == 1 || event.type() == 3) {
      EXPECT_TRUE(names.contains(event.name_iid()));
      seen.push_back({tracks[event.track_uuid()], names[event.name_iid()], packet.timestamp(),
                      packet.timestamp(), stack.size()});
      if (event.type() == 1) stack.push_back(seen.size() - 1);
    } else if (event.type() == 2) {
      if (stack.empty()) {
        ADD_FAILURE() << "a slice ends that never began";
        continue;
      }
      seen[stack.back()].to = packet.timestamp();
      stack.pop_back();
    }
  }
  for (const auto& [track, stack] : open) EXPECT_TRUE(stack.empty()) << "a slice never ends";
  return seen;
}

TraceSlice Slice(int64_t from_ns, int64_t to_ns, const std::string& name) {
  return {from_ns, to_ns, name, {}, {}, {}};
}

TEST(PerfettoFileTest, SlicesLieInEachOtherOrOnTracksOfTheirOwn) {
  Timeline timeline;
  timeline.groups.push_back({"host0", "", {}, {}, {}});
  timeline.groups[0].rows.push_back(
      {"rank 0",
       "",
       {Slice(50, 150, "c"), Slice(0, 100, "a"), Slice(10, 20, "b"), Slice(100, 120, "d")},
       {},
       {}});
  PerfettoCounts counts;
  const std::vector<Seen> seen = Slices(Written(timeline, &counts));
  ASSERT_EQ(seen.size(), 4U);
  EXPECT_EQ(counts.events, 4U);
  for (const Seen& slice : seen) EXPECT_EQ(slice.track, "rank 0");
  EXPECT_EQ(seen[1].name, "b");
  EXPECT_EQ(seen[1].depth, 1U) << "b lies in a";
  EXPECT_EQ(seen[2].name, "c");
  EXPECT_EQ(seen[2].depth, 0U) << "c overlaps a";
  EXPECT_EQ(seen[2].to, 150U);
}

TEST(PerfettoFileTest, RandomSlicesComeBackAsTheyWere) {
  std::mt19937 random(7);
  for (int trial = 0; trial < 50; ++trial) {
    Timeline timeline;
    timeline.groups.push_back({"host0", "", {}, {}, {}});
    TraceRow row{"rank 0", "", {}, {}, {}};
    std::multiset<std::tuple<uint64_t, uint64_t, std::string>> expected;
    for (int i = 0; i < 200; ++i) {
      const auto from = static_cast<int64_t>(random() % 500);
      const auto to = from + static_cast<int64_t>(random() % 60);
      row.slices.push_back(Slice(from, to, "s" + std::to_string(random() % 9)));
      expected.emplace(from, to, row.slices.back().name);
    }
    timeline.groups[0].rows.push_back(row);
    std::multiset<std::tuple<uint64_t, uint64_t, std::string>> found;
    for (const Seen& slice : Slices(Written(timeline))) found.emplace(slice.from, slice.to, slice.name);
    EXPECT_EQ(found, expected);
  }
}

TEST(PerfettoFileTest, ArrowsDetailsCountersAndTheWallClock) {
  Timeline timeline;
  timeline.at_ns = 1000;
  timeline.unix_ns = 1'700'000'000'000'000'000;
  TraceSlice waiter = Slice(5, 50, "waits");
  waiter.arrows_from = {1};
  waiter.details = {Whole("operation", 7), Real("share", 0.5), Text("who", "rank 1")};
  TraceSlice late = Slice(40, 50, "late");
  late.arrows_to = {1};
  timeline.groups.push_back({"host0", "", {}, {}, {}});
  timeline.groups[0].rows.push_back({"rank 0", "", {waiter}, {}, {}});
  timeline.groups[0].rows.push_back({"rank 1", "", {late}, {}, {}});
  timeline.groups[0].rows.push_back({"to rank 1", "MB/s", {}, {{5, 1.5}, {50, 0}}, {}});
  const perfetto::Trace trace = Written(timeline);
  std::vector<uint64_t> from;
  std::vector<uint64_t> to;
  std::vector<double> values;
  std::string who;
  std::string unit;
  int clocks = 0;
  for (const perfetto::TracePacket& packet : trace.packet()) {
    for (const uint64_t id : packet.track_event().flow_ids()) from.push_back(id);
    for (const uint64_t id : packet.track_event().terminating_flow_ids()) to.push_back(id);
    if (packet.track_event().type() == 4) values.push_back(packet.track_event().double_counter_value());
    for (const perfetto::DebugAnnotation& detail : packet.track_event().debug_annotations()) {
      if (detail.has_string_value()) who = detail.string_value();
    }
    if (packet.track_descriptor().has_counter()) unit = packet.track_descriptor().counter().unit_name();
    for (const auto& clock : packet.clock_snapshot().clocks()) {
      EXPECT_EQ(clock.timestamp(), clock.clock_id() == 1 ? 1'700'000'000'000'000'000U : 1000U);
      ++clocks;
    }
  }
  EXPECT_THAT(from, ElementsAre(1U));
  EXPECT_THAT(to, ElementsAre(1U));
  EXPECT_THAT(values, ElementsAre(1.5, 0));
  EXPECT_EQ(who, "rank 1");
  EXPECT_EQ(unit, "MB/s");
  EXPECT_EQ(clocks, 2);
}

TEST(PerfettoFileTest, AFullDiskIsTold) {
  Timeline timeline;
  timeline.groups.push_back({"host0", "", {}, {}, {}});
  for (int i = 0; i < 5000; ++i)
    timeline.groups[0].rows.push_back({"row", "", {Slice(i, i + 1, "s")}, {}, {}});
  int calls = 0;
  const PerfettoCounts counts = WritePerfetto(timeline, [&](std::string_view) { return ++calls < 2; });
  EXPECT_FALSE(counts.written);
  EXPECT_EQ(calls, 2) << "nothing is written behind what failed";
}

}  // namespace
}  // namespace c4::cli
