#include "cli/trace/job_trace.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "c4d_master/detectors/hang_evidence.h"
#include "c4d_master/telemetry_decode.h"
#include "service/text.h"
#include "service/verdict_json.h"

namespace c4::cli {
namespace {

using c4d::kNever;
using service::Concat;

constexpr int64_t kLeastWaitNs = 1'000'000;
constexpr double kLeastWaitShare = 0.2;  // of the operation
constexpr size_t kMostArrows = 64;       // of one operation: those that waited longest
constexpr double kBytesOfMegabyte = 1e6;
constexpr double kNsOfSecond = 1e9;

bool IsMessage(int function) {
  return function == v1::FUNCTION_SEND || function == v1::FUNCTION_RECV;
}

std::string RankName(int32_t rank) {
  return rank < 0 ? "a rank that is not known" : Concat("rank ", rank);
}

std::string MarkName(const c4d::MarkedSpan& mark) {
  switch (mark.kind) {
    case c4d::MarkKind::kForwardCompute:
      return "forward";
    case c4d::MarkKind::kBackwardCompute:
      return "backward";
    case c4d::MarkKind::kOptimizer:
      return "optimizer";
    case c4d::MarkKind::kOptimizerClipMainGrad:
      return "clip gradients";
    case c4d::MarkKind::kGc:
      return "garbage collection";
    case c4d::MarkKind::kStep:
      return "step";
    case c4d::MarkKind::kNone:
      break;
  }
  return "mark";
}

TraceSlice MarkSlice(const c4d::MarkedSpan& mark, int64_t offset_ns) {
  TraceSlice slice{mark.began_ns + offset_ns, mark.ended_ns + offset_ns, MarkName(mark), {}, {}, {}};
  if (mark.step >= 0) slice.details.push_back(Whole("step", int64_t{mark.step}));
  if (mark.micro_batch >= 0) slice.details.push_back(Whole("micro_batch", int64_t{mark.micro_batch}));
  if (mark.chunk >= 0) slice.details.push_back(Whole("chunk", int64_t{mark.chunk}));
  return slice;
}

std::string GroupName(const std::string& name, uint64_t communicator_id, uint32_t rank_count) {
  return Concat(name.empty() ? service::CommunicatorText(communicator_id) : name, ", ", rank_count, " ranks");
}

}  // namespace

bool JobTrace::InWindow(int64_t from_ns, int64_t to_ns) const {
  return to_ns - begin_ns_ >= options_.from_ns && from_ns - begin_ns_ <= options_.to_ns;
}

bool JobTrace::HasRoom() {
  if (events_ < options_.most_events) {
    ++events_;
    return true;
  }
  ++left_out_;
  return false;
}

void JobTrace::Keep(TraceSlice slice, std::vector<TraceSlice>* slices) {
  slice.to_ns = std::max(slice.to_ns, slice.from_ns);
  if (InWindow(slice.from_ns, slice.to_ns) && HasRoom()) slices->push_back(std::move(slice));
}

void JobTrace::Observe(const v1::RecordedBatch& recorded, const c4d::Host& host, c4d::Now now) {
  if (begin_ns_ == kNever) begin_ns_ = now.monotonic_ns;
  newest_ = now;
  if (c4d::CheckBatch(recorded.batch()).ok()) collector_.Observe(recorded.batch(), now.monotonic_ns);
  TakeHardware(recorded.batch(), host);
  for (const c4d::Process& process : host.processes) {
    Rank& rank = ranks_[process.key];
    rank.host = host.name;
    rank.rank = process.rank;
    rank.name = Concat(RankName(process.rank), " (pid ", process.key.pid, ")");
    FollowState(process, host.as_of_ns, &rank);
    for (const c4d::Membership& membership : process.communicators) {
      Group& group = rank.groups[membership.communicator_id];
      group.name = membership.name;
      group.rank = membership.rank;
      group.rank_count = membership.rank_count;
      Follow(membership.started, membership.finished, membership.last_started, host.as_of_ns,
             &group.collectives);
      Follow(membership.p2p_started, membership.p2p_finished, membership.last_p2p_started, host.as_of_ns,
             &group.messages);
      FollowBytes(membership, host.as_of_ns, &rank);
    }
  }
}

void JobTrace::Follow(const c4d::Counter& started, const c4d::Counter& finished,
                      const c4d::OperationInfo& info, int64_t as_of_ns, Line* line) {
  if (line->open && finished.count >= line->seen) {
    // The end of the newest one is known; of an earlier one only that it lasted until the last look.
    line->slice.to_ns = finished.count == line->seen ? finished.last_at_ns : line->still_open_ns;
    Keep(std::move(line->slice), &line->sampled);
    line->slice = {};
    line->open = false;
  }
  if (line->open) line->still_open_ns = as_of_ns;
  if (started.count <= line->seen || started.last_at_ns == kNever) return;
  if (line->open) {  // several are in hand at once: the earlier one is not followed any further
    line->slice.to_ns = line->still_open_ns;
    Keep(std::move(line->slice), &line->sampled);
    line->open = false;
  }
  line->seen = started.count;
  TraceSlice slice{started.last_at_ns, as_of_ns, c4d::OperationText(info), {}, {}, {}};
  slice.details.push_back(Whole("operation", static_cast<int64_t>(started.count - 1)));
  if (finished.count >= started.count) {
    slice.to_ns = finished.last_at_ns;
    Keep(std::move(slice), &line->sampled);
    return;
  }
  line->open = true;
  line->still_open_ns = as_of_ns;
  line->slice = std::move(slice);
}

void JobTrace::FollowState(const c4d::Process& process, int64_t as_of_ns, Rank* rank) {
  const bool odd =
      c4d::CannotRun(process.health.state) || process.health.state == c4d::ProcessState::kBlocked;
  const std::string word =
      !odd ? ""
           : std::string(process.health.state == c4d::ProcessState::kGone && process.ended
                             ? "has left"
                             : service::ProcessStateWord(static_cast<int>(process.health.state)));
  if (word == rank->state.name) {
    rank->state.to_ns = as_of_ns;
    return;
  }
  const int64_t since_ns =
      process.health.state_since_at_ns == kNever ? as_of_ns : process.health.state_since_at_ns;
  if (!rank->state.name.empty()) {
    rank->state.to_ns = std::max(rank->state.to_ns, since_ns);  // it was seen so until then
    Keep(std::move(rank->state), &rank->states);
  }
  rank->state = {since_ns, as_of_ns, word, {}, {}, {}};
  if (odd && !process.health.wait_channel.empty()) {
    rank->state.details.push_back(Text("wait_channel", process.health.wait_channel));
  }
}

void JobTrace::FollowBytes(const c4d::Membership& membership, int64_t as_of_ns, Rank* rank) {
  std::map<uint32_t, uint64_t> sent;  // by the rank there
  for (const c4d::QueuePair& queue_pair : membership.queue_pairs) {
    if (queue_pair.sends && queue_pair.carrier == c4d::Carrier::kQueuePair) {
      sent[queue_pair.peer] += queue_pair.completed_bytes;
    }
  }
  for (const auto& [to, bytes] : sent) {
    Peer& peer = rank->peers[{membership.communicator_id, to}];
    const int64_t before_ns = std::exchange(peer.at_ns, as_of_ns);
    const uint64_t before = std::exchange(peer.bytes, bytes);
    // Counters of a communicator's next queue pairs begin anew.
    if (before_ns == kNever || as_of_ns <= before_ns || bytes < before) continue;
    const double rate = static_cast<double>(bytes - before) / kBytesOfMegabyte /
                        (static_cast<double>(as_of_ns - before_ns) / kNsOfSecond);
    const bool still = !peer.points.empty() && peer.points.back().value == 0 && rate == 0;
    // A value holds from its point to the next.
    if (!still && InWindow(before_ns, as_of_ns) && HasRoom()) peer.points.push_back({before_ns, rate});
  }
}

void JobTrace::TakeHardware(const v1::TelemetryBatch& batch, const c4d::Host& host) {
  auto& [epoch, seen] = hardware_seen_[host.name];
  if (epoch != batch.agent_epoch()) {
    epoch = batch.agent_epoch();
    seen = 0;
  }
  for (const v1::HardwareEvent& event : batch.hardware()) {
    if (event.sequence() <= seen) continue;
    seen = event.sequence();
    const int64_t at_ns = host.as_of_ns - std::max<int64_t>(event.age_ns(), 0);
    TraceSlice slice{at_ns, at_ns, Concat(event.device(), ": ", event.text()), {}, {}, {}};
    slice.details.push_back(Text("kind", event.kind()));
    Keep(std::move(slice), &hardware_[host.name].slices);
  }
}

void JobTrace::TakeFine() {
  Operations operations;
  for (const auto& [key, process] : collector_.profile().processes) {
    const auto found = ranks_.find(key);
    if (found != ranks_.end()) PutFine(process, &found->second, &operations);
  }
  DrawWaits(operations);
}

void JobTrace::PutFine(const c4d::ProfiledProcess& process, Rank* rank, Operations* operations) {
  const std::vector<c4d::ProfileClock>& clocks = collector_.profile().nodes[process.node].clocks;
  for (const c4d::MarkedSpan& mark : process.marks) {
    Keep(MarkSlice(mark, clocks[mark.clock].offset_ns), &rank->fine_marks.slices);
  }
  for (const c4d::CommunicationSpan& span : process.operations) {
    const int64_t offset_ns = clocks[span.clock].offset_ns;
    const bool message = IsMessage(span.function);
    c4d::OperationInfo info;
    info.function = span.function;
    info.data_type = span.data_type;
    info.count = span.count;
    info.root = span.root;
    TraceSlice slice{span.started_ns + offset_ns,
                     span.ended_ns + offset_ns,
                     Concat(service::FunctionWord(span.function), " of ", span.count, " x ",
                            service::DataTypeWord(span.data_type)),
                     {},
                     {},
                     {}};
    slice.details.push_back(Whole("operation", static_cast<int64_t>(span.sequence)));
    slice.details.push_back(
        Real("called_before_us", static_cast<double>(span.started_ns - span.called_ns) / 1e3));
    if (span.root >= 0) slice.details.push_back(Whole(message ? "peer" : "root", int64_t{span.root}));
    std::vector<TraceSlice>& slices = rank->fine[{span.communicator_id, message}];
    const size_t before = slices.size();
    Keep(std::move(slice), &slices);
    if (message || slices.size() == before) continue;
    (*operations)[{span.communicator_id, span.sequence}].push_back(
        {span.called_ns + offset_ns, span.started_ns + offset_ns, span.ended_ns + offset_ns,
         clocks[span.clock].error_ns.value_or(0), rank, span.communicator_id, before});
  }
}

// Who calls last is whom the others wait for.
void JobTrace::DrawWaits(const Operations& operations) {
  for (const auto& [id, entries] : operations) {
    const auto last = std::max_element(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
      return a.called_ns < b.called_ns;
    });
    std::vector<std::pair<int64_t, const Entry*>> waits;
    for (const Entry& entry : entries) {
      const int64_t wait_ns = last->called_ns - entry.waits_from_ns;
      if (&entry == &*last || wait_ns < kLeastWaitNs || wait_ns <= entry.error_ns + last->error_ns) continue;
      const auto lasted = static_cast<double>(entry.ended_ns - entry.waits_from_ns);
      if (static_cast<double>(wait_ns) >= kLeastWaitShare * lasted) waits.emplace_back(wait_ns, &entry);
    }
    std::sort(waits.begin(), waits.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
    const auto slice_of = [](const Entry& entry) -> TraceSlice& {
      return entry.rank->fine[{entry.communicator_id, false}][entry.slice];
    };
    for (size_t i = 0; i < waits.size(); ++i) {
      TraceSlice& waiter = slice_of(*waits[i].second);
      waiter.details.push_back(Text("waits_for", RankName(last->rank->rank)));
      waiter.details.push_back(Real("waits_ms", static_cast<double>(waits[i].first) / 1e6));
      if (i >= kMostArrows) continue;
      waiter.arrows_from.push_back(++arrows_);
      slice_of(*last).arrows_to.push_back(arrows_);
    }
  }
}

// What was in hand when the recording ended.
void JobTrace::CloseAll(int64_t end_ns) {
  for (auto& [key, rank] : ranks_) {
    if (!rank.state.name.empty()) {
      rank.state.to_ns = std::max(rank.state.to_ns, end_ns);
      Keep(std::move(rank.state), &rank.states);
    }
    for (auto& [id, group] : rank.groups) {
      for (Line* line : {&group.collectives, &group.messages}) {
        if (!line->open) continue;
        line->slice.to_ns = std::max(line->still_open_ns, end_ns);
        line->slice.details.push_back(Text("ended", std::string("not in this recording")));
        Keep(std::move(line->slice), &line->sampled);
      }
    }
    for (auto& [peer, sends] : rank.peers) {
      if (!sends.points.empty())
        sends.points.push_back({std::max(sends.at_ns, sends.points.back().at_ns), 0});
    }
  }
}

std::vector<TraceSlice> JobTrace::OperationsOf(const Rank& rank, uint64_t communicator_id,
                                               bool messages) const {
  std::vector<TraceSlice> slices;
  int64_t fine_from_ns = std::numeric_limits<int64_t>::max();
  int64_t fine_to_ns = std::numeric_limits<int64_t>::min();
  if (const auto fine = rank.fine.find({communicator_id, messages}); fine != rank.fine.end()) {
    slices = fine->second;
    for (const TraceSlice& slice : slices) {
      fine_from_ns = std::min(fine_from_ns, slice.from_ns);
      fine_to_ns = std::max(fine_to_ns, slice.to_ns);
    }
  }
  const auto group = rank.groups.find(communicator_id);
  if (group == rank.groups.end()) return slices;
  const Line& line = messages ? group->second.messages : group->second.collectives;
  // Where each operation is known the newest of some moments say nothing more.
  std::copy_if(
      line.sampled.begin(), line.sampled.end(), std::back_inserter(slices),
      [&](const TraceSlice& slice) { return slice.from_ns > fine_to_ns || slice.to_ns < fine_from_ns; });
  return slices;
}

TraceRow JobTrace::RankRow(const Rank& rank) {
  TraceRow row{rank.name, "", {}, {}, {}, RowKind::kOther, rank.rank};
  const auto add = [&row](TraceRow below) {
    if (!below.slices.empty() || !below.points.empty()) row.rows.push_back(std::move(below));
  };
  add({"process", "", rank.states, {}, {}, RowKind::kProcess});
  add({"marks", "", rank.fine_marks.slices, {}, {}, RowKind::kMarks});
  if (options_.by == TraceBy::kHost) {
    for (const auto& [id, group] : rank.groups) {
      const std::string name = GroupName(group.name, id, group.rank_count);
      add({name, "", OperationsOf(rank, id, false), {}, {}, RowKind::kOperations});
      add({Concat(name, ": messages"), "", OperationsOf(rank, id, true), {}, {}, RowKind::kOperations});
    }
  }
  for (const auto& [to, peer] : rank.peers) {
    const auto group = rank.groups.find(to.first);
    const std::string name = group == rank.groups.end() || group->second.name.empty()
                                 ? service::CommunicatorText(to.first)
                                 : group->second.name;
    add({Concat("to rank ", to.second, " of ", name), "MB/s", {}, peer.points, {}});
  }
  return row;
}

TraceRow JobTrace::Verdicts(const c4d::Replay& replay) {
  TraceRow row{"verdicts", "", {}, {}, {}, RowKind::kVerdicts};
  std::map<std::string, TraceSlice> open;
  for (const c4d::ReplayChange& change : replay.changes) {
    const v1::Verdict& verdict = change.verdict;
    const int64_t at_ns = replay.begin_ns + change.since_begin_ns;
    const auto [found, is_new] = open.try_emplace(verdict.id());
    TraceSlice& slice = found->second;
    if (is_new) {
      slice.from_ns = at_ns;
      slice.details.push_back(Text("id", verdict.id()));
    }
    if (verdict.state() == v1::VERDICT_STATE_CLEARED) {
      slice.to_ns = at_ns;
      slice.details.push_back(Real("cleared_s", static_cast<double>(change.since_begin_ns) / kNsOfSecond));
      Keep(std::move(slice), &row.slices);
      open.erase(found);
      continue;
    }
    const bool confirmed_now = verdict.state() == v1::VERDICT_STATE_CONFIRMED &&
                               slice.name.rfind("CONFIRMED", 0) == std::string::npos;
    slice.name = service::VerdictHead(verdict);
    if (!confirmed_now) continue;
    slice.details.push_back(Real("confirmed_s", static_cast<double>(change.since_begin_ns) / kNsOfSecond));
    for (const v1::Evidence& evidence : verdict.evidence()) {
      slice.details.push_back(Text("evidence", evidence.text()));
    }
    slice.details.push_back(Text("do", verdict.suggested_action()));
    Keep({at_ns, at_ns, slice.name, {}, {}, {}}, &row.slices);
    DrawVerdictWaits(verdict, at_ns);
  }
  for (auto& [id, slice] : open) {
    slice.to_ns = std::max(newest_.monotonic_ns, slice.from_ns);
    Keep(std::move(slice), &row.slices);
  }
  return row;
}

// From what those who wait have in hand to the culprit, where that is a rank.
void JobTrace::DrawVerdictWaits(const v1::Verdict& verdict, int64_t at_ns) {
  if (verdict.culprit().kind() != v1::CULPRIT_KIND_RANK || verdict.waiting().empty()) return;
  Rank* culprit = nullptr;
  for (auto& [key, rank] : ranks_) {
    if (rank.rank == verdict.culprit().rank() && key.pid == verdict.culprit().process().pid())
      culprit = &rank;
  }
  if (culprit == nullptr) return;
  TraceSlice waited_for{at_ns, at_ns, "the others wait for it", {}, {}, {}};
  for (auto& [key, rank] : ranks_) {
    if (std::find(verdict.waiting().begin(), verdict.waiting().end(), static_cast<uint32_t>(rank.rank)) ==
        verdict.waiting().end()) {
      continue;
    }
    const auto group = rank.groups.find(verdict.communicator_id());
    if (group == rank.groups.end()) continue;
    std::vector<TraceSlice>& sampled = group->second.collectives.sampled;
    const auto in_hand = std::find_if(sampled.rbegin(), sampled.rend(), [at_ns](const TraceSlice& slice) {
      return slice.from_ns <= at_ns && slice.to_ns >= at_ns;
    });
    if (in_hand == sampled.rend() || waited_for.arrows_to.size() >= kMostArrows) continue;
    in_hand->arrows_from.push_back(++arrows_);
    in_hand->details.push_back(Text("waits_for", RankName(culprit->rank)));
    waited_for.arrows_to.push_back(arrows_);
  }
  Keep(std::move(waited_for), &culprit->states);
}

TraceRow JobTrace::Iterations(const c4d::Replay& replay) {
  TraceRow row{"iterations", "", {}, {}, {}, RowKind::kIterations};
  for (const v1::SeriesIteration& iteration : replay.iterations.iterations()) {
    const int64_t from_ns = newest_.monotonic_ns - (newest_.unix_ns - iteration.began_unix_ns());
    TraceSlice slice{from_ns,     from_ns + static_cast<int64_t>(iteration.duration_s() * kNsOfSecond),
                     "iteration", {},
                     {},          {}};
    slice.details.push_back(Whole("number", static_cast<int64_t>(iteration.number())));
    slice.details.push_back(Text("of", RankName(replay.iterations.rank())));
    Keep(std::move(slice), &row.slices);
  }
  return row;
}

Timeline JobTrace::Finish(const c4d::Replay& replay) {
  Timeline timeline;
  timeline.at_ns = newest_.monotonic_ns;
  timeline.unix_ns = newest_.unix_ns;
  if (begin_ns_ == kNever) return timeline;
  TakeFine();
  CloseAll(newest_.monotonic_ns);
  TraceRow job{Concat("job ", replay.job), "", {}, {}, {}};
  job.rows.push_back(Verdicts(replay));
  job.rows.push_back(Iterations(replay));
  timeline.groups.push_back(std::move(job));

  std::vector<const Rank*> ranks;
  for (const auto& [key, rank] : ranks_) ranks.push_back(&rank);
  std::stable_sort(ranks.begin(), ranks.end(),
                   [](const Rank* a, const Rank* b) { return a->rank < b->rank; });
  std::map<std::string, TraceRow> hosts;
  std::vector<std::string> order;  // of hosts, by their first rank
  for (const Rank* rank : ranks) {
    const auto [host, is_new] = hosts.try_emplace(rank->host, TraceRow{rank->host, "", {}, {}, {}});
    if (is_new) order.push_back(rank->host);
    host->second.rows.push_back(RankRow(*rank));
  }
  for (auto& [host, row] : hardware_) {
    const auto at = hosts.find(host);
    if (at == hosts.end() || row.slices.empty()) continue;
    row.name = "hardware";
    row.kind = RowKind::kHardware;
    at->second.rows.insert(at->second.rows.begin(), std::move(row));
  }
  for (const std::string& host : order) timeline.groups.push_back(std::move(hosts.at(host)));
  if (options_.by == TraceBy::kGroup) {
    std::map<uint64_t, TraceRow> groups;
    for (const Rank* rank : ranks) {
      for (const auto& [id, group] : rank->groups) {
        TraceRow& row = groups[id];
        row.name = GroupName(group.name, id, group.rank_count);
        TraceRow below{rank->name, "", OperationsOf(*rank, id, false), {}, {}};
        const std::vector<TraceSlice> messages = OperationsOf(*rank, id, true);
        below.slices.insert(below.slices.end(), messages.begin(), messages.end());
        if (!below.slices.empty()) row.rows.push_back(std::move(below));
      }
    }
    for (auto& [id, row] : groups) {
      if (!row.rows.empty()) timeline.groups.push_back(std::move(row));
    }
  }
  timeline.left_out = left_out_;
  return timeline;
}

}  // namespace c4::cli
