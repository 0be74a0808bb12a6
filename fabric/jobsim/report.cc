#include "fabric/jobsim/report.h"

#include <algorithm>

#include "c4a/reporter.h"
#include "wire/segment.h"

namespace c4::jobsim {
namespace {

constexpr uint32_t kFloat16 = 6;   // NCCL's numbers
constexpr uint64_t kInFlight = 4;  // chunks of a flow
constexpr int64_t kHeardEachNs = kSecondNs;

constexpr int32_t kRemoteError = 6;  // ncclRemoteError

v1::Function FunctionOf(Work work) {
  switch (work) {
    case Work::kAllReduce:
      return v1::FUNCTION_ALL_REDUCE;
    case Work::kReduceScatter:
      return v1::FUNCTION_REDUCE_SCATTER;
    case Work::kAllGather:
      return v1::FUNCTION_ALL_GATHER;
    case Work::kAllToAll:
      return v1::FUNCTION_ALL_TO_ALL;
    case Work::kSend:
      return v1::FUNCTION_SEND;
    case Work::kReceive:
      return v1::FUNCTION_RECV;
    case Work::kCompute:
      break;
  }
  return v1::FUNCTION_UNSPECIFIED;
}

void FillOperation(const Instruction& what, bool odd, v1::OperationInfo* info) {
  info->set_function(FunctionOf(what.work));
  info->set_data_type(kFloat16);
  info->set_root(what.is_collective() ? -1 : static_cast<int32_t>(what.peer));
  info->set_count(what.chunks * kChunkBytes / 2 + (odd ? 1024 : 0));
}

// Chunks of the operation under way, of one flow.
struct Under {
  uint64_t wanted = 0;
  uint64_t granted = 0;
  uint64_t posted = 0;
  uint64_t done = 0;
  int64_t post_ns = 0;  // 0: nothing
  int64_t done_ns = 0;
};

// An operation that a member has started and not finished; without a meeting where it is a send or a receive.
struct Open {
  const Instruction* what = nullptr;
  const Meeting* meeting = nullptr;
};

class Filler {
 public:
  Filler(const Physics& physics, uint32_t rank, int64_t at_ns, v1::ProcessReport* report)
      : physics_(physics), rank_(rank), at_ns_(at_ns), report_(report) {}

  void Fill(Role role, RankCounters* counters) {
    const Place& place = physics_.layout().place(rank_, role);
    if (place.group == kNoGroup) return;
    group_ = &physics_.layout().groups[place.group];
    place_ = place;
    member_ = &counters->member(role);
    AddCommunicator();
    for (const Summary& summary : counters->TakeSummaries(role)) AddSummary(summary);
    open_.clear();
    for (size_t i = 0; i < member_->open.size(); ++i) {
      open_.push_back(
          {member_->open[i], group_->point_to_point()
                                 ? nullptr
                                 : physics_.FindMeeting(place.group, member_->finished.count + i)});
    }
    const Network& network = physics_.network();
    const auto& sends = network.sends(place.group, place.member);
    for (size_t i = 0; i < sends.size(); ++i)
      AddEdge(network.edges(place.group)[sends[i]], true, member_->sends[i]);
    const auto& receives = network.receives(place.group, place.member);
    for (size_t i = 0; i < receives.size(); ++i)
      AddEdge(network.edges(place.group)[receives[i]], false, member_->receives[i]);
  }

 private:
  int64_t Age(int64_t then_ns) const { return std::max<int64_t>(0, at_ns_ - then_ns); }

  void FillCounter(const Count& from, v1::Counter* to) const {
    to->set_count(from.count);
    to->set_age_ns(from.count == 0 ? 0 : Age(from.last_ns));
  }

  // Whether its last words have been said; `lost`: where the rank is that it lost, else the end.
  bool HasGivenUp(std::vector<uint32_t>::const_iterator* lost) const {
    const Fate& fate = physics_.fate(rank_);
    *lost = fate.aborts ? group_->ranks.end()
                        : std::find(group_->ranks.begin(), group_->ranks.end(), fate.failed_with);
    return std::min(at_ns_, fate.ends_ns) >= fate.fails_ns && (fate.aborts || *lost != group_->ranks.end());
  }

  v1::Phase PhaseNow() const {
    const Fate& fate = physics_.fate(rank_);
    const int64_t last_ns = std::min(at_ns_, fate.ends_ns);
    std::vector<uint32_t>::const_iterator lost;
    if (HasGivenUp(&lost)) return fate.aborts ? v1::PHASE_ABORTED : v1::PHASE_FAILED;
    return last_ns < physics_.ready_ns() ? v1::PHASE_INIT : v1::PHASE_READY;
  }

  void AddCommunicator() {
    v1::CommunicatorState* const state = report_->add_communicators();
    state->set_communicator_id(group_->id);
    state->set_rank(place_.member);
    if (std::vector<uint32_t>::const_iterator lost; HasGivenUp(&lost)) {
      v1::GaveUp* const words = state->mutable_gave_up();
      words->set_age_ns(Age(physics_.fate(rank_).fails_ns));
      const bool blames = lost != group_->ranks.end();
      words->set_result(blames ? kRemoteError : 0);
      words->set_blamed_rank(blames ? static_cast<int32_t>(lost - group_->ranks.begin()) : -1);
    }
    state->set_rank_count(static_cast<uint32_t>(group_->ranks.size()));
    state->set_phase(PhaseNow());
    state->set_phase_age_ns(
        Age(at_ns_ >= physics_.ready_ns() ? physics_.ready_ns() : physics_.starts_ns(rank_)));
    state->set_name(group_->name());
    const bool vendor = physics_.shape().engine == Engine::kVendor;
    state->set_engine(vendor ? wire::kEngineVendor : wire::kEngineHost);
    if (vendor) {
      const bool steps = !member_->sends.empty() || !member_->receives.empty();
      state->set_seen(member_->started.count == 0
                          ? 0U
                          : wire::kSeesEvents | wire::kSeesKernels | (steps ? wire::kSeesSteps : 0U));
    }
    const bool p2p = group_->point_to_point();
    FillCounter(member_->called, p2p ? state->mutable_p2p_called() : state->mutable_called());
    FillCounter(member_->called, p2p ? state->mutable_p2p_enqueued() : state->mutable_enqueued());
    FillCounter(member_->started, p2p ? state->mutable_p2p_started() : state->mutable_started());
    FillCounter(member_->finished, p2p ? state->mutable_p2p_finished() : state->mutable_finished());
    if (member_->last_called != nullptr) {
      FillOperation(*member_->last_called, member_->odd_call,
                    p2p ? state->mutable_last_p2p_called() : state->mutable_last_called());
    }
    if (member_->last_started != nullptr) {
      FillOperation(*member_->last_started, member_->odd_start,
                    p2p ? state->mutable_last_p2p_started() : state->mutable_last_started());
    }
  }

  void AddSummary(const Summary& from) {
    v1::OperationSummary* const to = report_->add_operations();
    to->set_communicator_id(group_->id);
    to->set_function(FunctionOf(from.work));
    to->set_operations(from.operations);
    to->set_elements(from.elements);
    to->set_duration_sum_ns(from.duration_sum_ns);
    to->set_duration_max_ns(from.duration_max_ns);
    to->set_gap_max_ns(from.gap_max_ns);
  }

  // A collective that not all have entered: the first chunk of each that is there goes to those who are.
  Under Waiting(const Open& op, const Edge& edge, bool sends) const {
    const auto is_there = [&op, this](uint32_t member) {
      const int64_t begun_ns = op.meeting->begun_ns[member];
      return begun_ns >= 0 && begun_ns <= at_ns_;
    };
    const bool both = is_there(edge.from) && is_there(edge.to);
    const int64_t met_ns =
        both ? std::max(op.meeting->begun_ns[edge.from], op.meeting->begun_ns[edge.to]) : 0;
    const bool moves = both && Passes(edge, met_ns);
    const uint64_t first = std::min<uint64_t>(1, op.what->chunks);
    Under under;
    under.wanted = first;
    under.granted = sends ? (both ? first : 0) : first;
    under.posted = sends ? under.granted : first;
    under.done = moves ? first : 0;
    under.post_ns = under.posted > 0 ? std::max(met_ns, op.meeting->begun_ns[place_.member]) : 0;
    under.done_ns = moves ? met_ns : 0;
    return under;
  }

  bool Passes(const Edge& edge, int64_t then_ns) const {
    return edge.factor != kDead || then_ns < physics_.fault().at_ns;
  }

  Under Running(const Open& op, uint64_t chunks) const {
    const int64_t all_ns = std::max<int64_t>(1, op.meeting->end_ns - op.meeting->last_ns);
    const double share =
        std::clamp(static_cast<double>(at_ns_ - op.meeting->last_ns) / static_cast<double>(all_ns), 0.0, 1.0);
    Under under;
    under.done = static_cast<uint64_t>(share * static_cast<double>(chunks));
    under.wanted = under.granted = under.posted = std::min(chunks, under.done + 2);
    const int64_t each_ns = all_ns / static_cast<int64_t>(std::max<uint64_t>(1, chunks));
    under.done_ns = op.meeting->last_ns + static_cast<int64_t>(under.done) * each_ns;
    under.post_ns = under.done_ns;
    if (under.done == 0) under.done_ns = 0;
    return under;
  }

  // What comes behind the place where it hangs gets nothing; what is before it cannot get rid of its own.
  Under Stalled(const Open& op, const Edge& edge, const Flow& flow, bool sends, uint64_t chunks) const {
    Under under;
    under.done =
        std::min<uint64_t>(chunks - 1, static_cast<uint64_t>(op.meeting->done * static_cast<double>(chunks)));
    under.wanted = under.granted = under.posted = under.done;
    under.done_ns = under.done > 0 ? op.meeting->stalled_ns : 0;
    under.post_ns = op.meeting->stalled_ns;
    const uint64_t more = std::min(chunks, under.done + kInFlight);
    const auto size = static_cast<uint32_t>(op.meeting->begun_ns.size());
    if (!op.meeting->stuck_itself && edge.factor == kDead) {
      // Lost on its way; of an edge that is dead in part, what the others carry has come.
      if (!sends || flow.factor == kDead) under.wanted = under.granted = under.posted = more;
      return under;
    }
    const bool into = edge.to == op.meeting->stuck_member;
    const bool out = edge.from == op.meeting->stuck_member;
    const bool starved = out || (!into && (edge.from + size - op.meeting->stuck_member) % size < size / 2);
    if (op.meeting->stuck_itself && (into || out)) {
      // Its kernel neither takes nor gives.
      if (into && sends) under.wanted = more;
      if (out && !sends) under.wanted = under.granted = under.posted = more;
      return under;
    }
    if (starved) {
      if (!sends) under.wanted = under.granted = under.posted = more;
    } else if (sends) {
      under.wanted = more;
    }
    return under;
  }

  Under UnderWay(const Open& op, const Edge& edge, const Flow& flow, bool sends) const {
    if (group_->point_to_point()) return Message(edge, flow, sends, *op.what);
    if (op.meeting == nullptr) return {};
    const bool all = op.meeting->end_ns >= 0 && op.meeting->last_ns <= at_ns_;
    if (!all) return Waiting(op, edge, sends);
    const uint64_t chunks = ChunksOf(physics_, edge, flow, *op.what, op.meeting->end_ns);
    // What came while not all were there has come.
    const uint64_t first = std::min(chunks, Waiting(op, edge, sends).done);
    if (op.meeting->end_ns < kNeverNs) return WithFirst(Running(op, chunks), first);
    return WithFirst(at_ns_ >= op.meeting->stalled_ns ? Stalled(op, edge, flow, sends, chunks) : Under(),
                     first);
  }

  static Under WithFirst(Under under, uint64_t first) {
    under.done = std::max(under.done, first);
    under.posted = std::max(under.posted, under.done);
    under.granted = std::max(under.granted, under.posted);
    under.wanted = std::max(under.wanted, under.granted);
    return under;
  }

  Under UnderWay(const Edge& edge, const Flow& flow, bool sends) const {
    Under all;
    for (const Open& op : open_) Add(UnderWay(op, edge, flow, sends), &all);
    return all;
  }

  Under Message(const Edge& edge, const Flow& flow, bool sends, const Instruction& what) const {
    const uint32_t peer = sends ? edge.to : edge.from;
    if (what.peer != peer || (what.work == Work::kSend) != sends) return {};
    Under under;
    under.wanted = what.chunks;
    const int64_t begun_ns = member_->started.last_ns;
    if (!sends) {
      under.granted = under.posted = what.chunks;
      under.post_ns = begun_ns;
      return under;
    }
    under.granted = what.chunks;
    under.posted = std::min<uint64_t>(what.chunks, kInFlight);
    under.post_ns = begun_ns;
    if (edge.factor == kDead && flow.factor != kDead && at_ns_ >= physics_.fault().at_ns) {
      under.done = under.posted;
      under.done_ns = begun_ns;
    }
    return under;
  }

  void FillSlot(const Edge& edge, bool sends, v1::QueuePairState* item) const {
    item->set_communicator_id(group_->id);
    item->set_rank(place_.member);
    item->set_peer(sends ? edge.to : edge.from);
    item->set_direction(sends ? v1::DIRECTION_SEND : v1::DIRECTION_RECEIVE);
    item->set_phase(PhaseNow());
  }

  void FillMoved(uint64_t chunks, const Under& under, const EdgeCount& count,
                 v1::QueuePairState* item) const {
    const uint64_t posted = chunks + under.posted;
    const uint64_t done = chunks + under.done;
    item->set_posted_messages(posted);
    item->set_posted_bytes(posted * kChunkBytes);
    item->set_completed_messages(done);
    item->set_completed_bytes(done * kChunkBytes);
    item->set_moved_bytes(done * kChunkBytes);
    item->set_last_post_age_ns(Age(std::max(count.last_post_ns, under.post_ns)));
    item->set_last_progress_age_ns(Age(std::max(count.last_done_ns, under.done_ns)));
  }

  void FillWhole(uint64_t chunks, const Under& under, const EdgeCount& count, bool sends,
                 v1::ConnectionState* whole) const {
    whole->set_wanted_messages(chunks + under.wanted);
    whole->set_granted_messages(chunks + under.granted);
    whole->set_done_messages(chunks + under.done);
    whole->set_wanted_bytes((chunks + under.wanted) * kChunkBytes);
    whole->set_done_bytes((chunks + under.done) * kChunkBytes);
    whole->set_last_wanted_age_ns(Age(std::max(count.last_post_ns, under.post_ns)));
    whole->set_last_done_age_ns(Age(std::max(count.last_done_ns, under.done_ns)));
    if (sends) return;
    whole->set_first_waits(count.first_waits);
    whole->set_first_wait_sum_ns(count.first_wait_sum_ns);
    whole->set_first_wait_max_ns(count.first_wait_max_ns);
  }

  static void FillLatency(const FlowCount& from, v1::QueuePairState* to) {
    to->set_latency_sum_ns(from.latency_sum_ns);
    to->set_latency_max_ns(from.latency_max_ns);
    int used = wire::kLatencyBuckets;
    while (used > 0 && from.latency[static_cast<size_t>(used) - 1] == 0) --used;
    to->mutable_latency_histogram()->Add(from.latency.data(), from.latency.data() + used);
  }

  static void Add(const Under& from, Under* to) {
    to->wanted += from.wanted;
    to->granted += from.granted;
    to->posted += from.posted;
    to->done += from.done;
    to->post_ns = std::max(to->post_ns, from.post_ns);
    to->done_ns = std::max(to->done_ns, from.done_ns);
  }

  void AddEdge(const Edge& edge, bool sends, const EdgeCount& count) {
    Under all;
    uint64_t chunks = 0;
    FlowCount latency;
    std::vector<Under> of_flow;
    std::vector<FlowCount> latencies;
    for (size_t i = 0; i < edge.flows.size(); ++i) {
      of_flow.push_back(UnderWay(edge, edge.flows[i], sends));
      Add(of_flow.back(), &all);
      chunks += count.flows[i].chunks;
      if (!sends) continue;
      latencies.push_back(LatencyOf(edge, i, sends, count));
      latency.latency_sum_ns += latencies[i].latency_sum_ns;
      latency.latency_max_ns = std::max(latency.latency_max_ns, latencies[i].latency_max_ns);
      for (size_t b = 0; b < latency.latency.size(); ++b) latency.latency[b] += latencies[i].latency[b];
    }
    if (physics_.shape().engine == Engine::kVendor) {
      if (chunks + all.wanted == 0) return;  // a peer gets its slot with its first step
      v1::QueuePairState* const item = report_->add_queue_pairs();
      FillSlot(edge, sends, item);
      item->set_transport(wire::kTransportVendor);
      FillMoved(chunks, all, count, item);
      FillWhole(chunks, all, count, sends, item->mutable_connection());
      if (sends) FillLatency(latency, item);
      return;
    }
    for (size_t i = 0; i < edge.flows.size(); ++i) {
      v1::QueuePairState* const item = AddQueuePair(edge, i, sends, count, of_flow[i]);
      if (sends) FillLatency(latencies[i], item);
    }
  }

  // With those chunks of the operation under way that have come.
  FlowCount LatencyOf(const Edge& edge, size_t i, bool sends, const EdgeCount& count) const {
    FlowCount latency = count.flows[i];
    uint64_t operation = count.operations;
    for (const Open& op : open_) {
      const uint64_t done = UnderWay(op, edge, edge.flows[i], sends).done;
      if (done == 0) continue;
      const int64_t end_ns = op.meeting == nullptr || op.meeting->end_ns < 0 ? at_ns_ : op.meeting->end_ns;
      const uint64_t chunks = ChunksOf(physics_, edge, edge.flows[i], *op.what, end_ns);
      AddLatency(physics_, edge.flows[i], operation++, member_->started.last_ns, chunks, done, &latency);
    }
    return latency;
  }

  v1::QueuePairState* AddQueuePair(const Edge& edge, size_t i, bool sends, const EdgeCount& count,
                                   const Under& under) {
    const Flow& flow = edge.flows[i];
    v1::QueuePairState* const item = report_->add_queue_pairs();
    FillSlot(edge, sends, item);
    item->set_transport(wire::kTransportVerbs);
    item->set_channel(flow.channel);
    item->set_index(flow.index);
    item->set_queue_pair_number(sends ? flow.number : flow.number | (1U << 23));
    const Network& network = physics_.network();
    item->set_local(sends ? network.local(edge, flow) : network.remote(edge, flow));
    item->set_remote(sends ? network.remote(edge, flow) : network.local(edge, flow));
    FillMoved(count.flows[i].chunks, under, count, item);
    if (sends) item->set_last_heard_age_ns(std::max<int64_t>(1, Age(HeardNs(edge, flow))));
    if (flow.index != 0) return item;
    // Of all queue pairs of the channel.
    uint64_t chunks = 0;
    Under all;
    for (size_t other = 0; other < edge.flows.size(); ++other) {
      if (edge.flows[other].channel != flow.channel) continue;
      chunks += count.flows[other].chunks;
      Add(UnderWay(edge, edge.flows[other], sends), &all);
    }
    FillWhole(chunks, all, count, sends, item->mutable_connection());
    return item;
  }

  // The other end gives a sign of life each second, if it can and the way is well.
  int64_t HeardNs(const Edge& edge, const Flow& flow) const {
    const Fate& other = physics_.fate(group_->ranks[edge.to]);
    int64_t last_ns = std::min({at_ns_, other.ends_ns, other.stops_ns});
    if (flow.factor == kDead) last_ns = std::min(last_ns, physics_.fault().at_ns);
    const int64_t phase_ns = static_cast<int64_t>(flow.number % 16) * (kHeardEachNs / 16);
    return std::max(physics_.ready_ns(), (last_ns - phase_ns) / kHeardEachNs * kHeardEachNs + phase_ns);
  }

  const Physics& physics_;
  const uint32_t rank_;
  const int64_t at_ns_;
  v1::ProcessReport* const report_;
  const Group* group_ = nullptr;
  Place place_;
  const MemberCounters* member_ = nullptr;
  std::vector<Open> open_;  // of member_
};

}  // namespace

void FillReport(const Physics& physics, uint32_t rank, const Identity& identity,
                const agent::ProcessHealth& health, int64_t at_ns, RankCounters* counters,
                v1::ProcessReport* report) {
  v1::ProcessId* const id = report->mutable_process();
  id->set_host(identity.host);
  id->set_boot_id(identity.boot_id);
  id->set_pid(identity.pid);
  id->set_start_time_ticks(identity.start_ticks);
  report->set_job("job");
  report->set_incarnation(identity.incarnation);
  report->set_rank_label(static_cast<int32_t>(rank));
  report->set_world_label(static_cast<int32_t>(physics.shape().ranks()));
  report->set_program("trainer");
  report->set_level(v1::RECORD_LEVEL_COARSE);
  agent::FillHealth(health, at_ns, report->mutable_health());
  report->set_in_operation_ns(counters->inside_ns(at_ns));
  report->set_operations_finished(counters->operations_finished());
  if (counters->first_started_ns() != 0) {
    report->set_first_operation_age_ns(std::max<int64_t>(1, at_ns - counters->first_started_ns()));
  }
  Filler filler(physics, rank, at_ns, report);
  for (size_t role = 0; role < kRoles; ++role) filler.Fill(static_cast<Role>(role), counters);
}

}  // namespace c4::jobsim
