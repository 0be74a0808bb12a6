#include "fabric/jobsim/report.h"

#include <algorithm>

#include "c4a/reporter.h"
#include "wire/segment.h"

namespace c4::jobsim {
namespace {

constexpr uint32_t kFloat16 = 6;  // NCCL's numbers
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

// One after the other of what a list holds already, then new ones; what is left over goes.
template <typename Message>
class Refill {
 public:
  explicit Refill(google::protobuf::RepeatedPtrField<Message>* list) : list_(list) {}
  Message* Next() { return used_ < list_->size() ? list_->Mutable(used_++) : Add(); }
  void End() { list_->DeleteSubrange(used_, list_->size() - used_); }

 private:
  Message* Add() {
    ++used_;
    return list_->Add();
  }

  google::protobuf::RepeatedPtrField<Message>* const list_;
  int used_ = 0;
};

}  // namespace

class Reporter::Filler {
 public:
  Filler(const Physics& physics, uint32_t rank, int64_t at_ns, Scratch* scratch, v1::ProcessReport* report)
      : physics_(physics),
        rank_(rank),
        at_ns_(at_ns),
        fails_(at_ns >= physics.fate(rank).fails_ns),
        scratch_(*scratch),
        communicators_(report->mutable_communicators()),
        operations_(report->mutable_operations()),
        queue_pairs_(report->mutable_queue_pairs()) {}

  void Fill(RankCounters* counters) {
    for (size_t role = 0; role < kRoles; ++role) FillRole(static_cast<Role>(role), counters);
    communicators_.End();
    operations_.End();
    queue_pairs_.End();
  }

 private:
  void FillRole(Role role, RankCounters* counters) {
    const Place& place = physics_.layout().place(rank_, role);
    if (place.group == kNoGroup) return;
    group_ = &physics_.layout().groups[place.group];
    place_ = place;
    member_ = &counters->member(role);
    lost_ = group_->ranks.size();
    if (fails_ && !physics_.fate(rank_).aborts) {
      const auto& ranks = group_->ranks;
      lost_ = static_cast<size_t>(std::find(ranks.begin(), ranks.end(), physics_.fate(rank_).failed_with) -
                                  ranks.begin());
    }
    phase_ = PhaseNow();
    AddCommunicator();
    for (const Summary& summary : member_->summaries) AddSummary(summary);
    counters->ForgetSummaries(role);
    scratch_.open.clear();
    for (size_t i = 0; i < member_->open.size(); ++i) {
      scratch_.open.push_back(
          {member_->open[i], group_->point_to_point()
                                 ? nullptr
                                 : physics_.FindMeeting(place.group, member_->finished.count + i)});
    }
    const Network& network = physics_.network();
    const std::vector<Edge>& edges = network.edges(place.group);
    const auto& sends = network.sends(place.group, place.member);
    for (size_t i = 0; i < sends.size(); ++i) AddEdge(edges[sends[i]], true, member_->sends[i]);
    const auto& receives = network.receives(place.group, place.member);
    for (size_t i = 0; i < receives.size(); ++i) AddEdge(edges[receives[i]], false, member_->receives[i]);
  }

  int64_t Age(int64_t then_ns) const { return std::max<int64_t>(0, at_ns_ - then_ns); }

  void FillCounter(const Count& from, v1::Counter* to) const {
    to->set_count(from.count);
    to->set_age_ns(from.count == 0 ? 0 : Age(from.last_ns));
  }

  // Whether its last words have been said.
  bool HasGivenUp() const {
    const Fate& fate = physics_.fate(rank_);
    return fails_ && fate.ends_ns >= fate.fails_ns && (fate.aborts || lost_ < group_->ranks.size());
  }

  v1::Phase PhaseNow() const {
    const Fate& fate = physics_.fate(rank_);
    if (HasGivenUp()) return fate.aborts ? v1::PHASE_ABORTED : v1::PHASE_FAILED;
    return std::min(at_ns_, fate.ends_ns) < physics_.ready_ns() ? v1::PHASE_INIT : v1::PHASE_READY;
  }

  void AddCommunicator() {
    v1::CommunicatorState* const state = communicators_.Next();
    state->set_communicator_id(group_->id);
    state->set_rank(place_.member);
    if (HasGivenUp()) {
      v1::GaveUp* const words = state->mutable_gave_up();
      words->set_age_ns(Age(physics_.fate(rank_).fails_ns));
      const bool blames = lost_ < group_->ranks.size();
      words->set_result(blames ? kRemoteError : 0);
      words->set_blamed_rank(blames ? static_cast<int32_t>(lost_) : -1);
    }
    state->set_rank_count(static_cast<uint32_t>(group_->ranks.size()));
    state->set_phase(phase_);
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
      FillOperation(*member_->last_called, member_->IsOdd(member_->called),
                    p2p ? state->mutable_last_p2p_called() : state->mutable_last_called());
    }
    if (member_->last_started != nullptr) {
      FillOperation(*member_->last_started, member_->IsOdd(member_->started),
                    p2p ? state->mutable_last_p2p_started() : state->mutable_last_started());
    }
  }

  void AddSummary(const Summary& from) {
    v1::OperationSummary* const to = operations_.Next();
    to->set_communicator_id(group_->id);
    to->set_function(FunctionOf(from.work));
    to->set_operations(from.operations);
    to->set_elements(from.elements);
    to->set_duration_sum_ns(from.duration_sum_ns);
    to->set_duration_max_ns(from.duration_max_ns);
    to->set_gap_max_ns(from.gap_max_ns);
  }

  void FillSlot(const Edge& edge, bool sends, v1::QueuePairState* item) const {
    item->set_communicator_id(group_->id);
    item->set_rank(place_.member);
    item->set_peer(sends ? edge.to : edge.from);
    item->set_direction(sends ? v1::DIRECTION_SEND : v1::DIRECTION_RECEIVE);
    item->set_phase(phase_);
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
    whole->set_first_waits(sends ? 0 : count.first_waits);
    whole->set_first_wait_sum_ns(sends ? 0 : count.first_wait_sum_ns);
    whole->set_first_wait_max_ns(sends ? 0 : count.first_wait_max_ns);
  }

  static void FillLatency(const FlowCount& from, v1::QueuePairState* to) {
    to->set_latency_sum_ns(from.latency_sum_ns);
    to->set_latency_max_ns(from.latency_max_ns);
    int used = wire::kLatencyBuckets;
    while (used > 0 && from.latency[static_cast<size_t>(used) - 1] == 0) --used;
    auto* const histogram = to->mutable_latency_histogram();
    histogram->Resize(used, 0);
    std::copy_n(from.latency.data(), used, histogram->mutable_data());
  }

  // What is under way on each of its flows, and the latencies of what has come of it.
  void LookAt(const Edge& edge, bool sends, const EdgeCount& count) {
    scratch_.under.assign(edge.flows.size(), Under());
    if (sends) scratch_.latencies.resize(edge.flows.size());
    const UnderWay under_way(physics_, *group_, place_, member_->started.last_ns, at_ns_);
    for (size_t i = 0; i < edge.flows.size(); ++i) {
      if (sends) scratch_.latencies[i] = count.flows[i];
      uint64_t operation = count.operations;
      for (const OpenOperation& op : scratch_.open) {
        const Under under = under_way.Of(op, edge, edge.flows[i], sends);
        scratch_.under[i].Add(under);
        if (!sends || under.done == 0) continue;
        const int64_t end_ns = op.meeting == nullptr || op.meeting->end_ns < 0 ? at_ns_ : op.meeting->end_ns;
        const uint64_t chunks = ChunksOf(physics_, edge, edge.flows[i], *op.what, end_ns);
        AddLatency(physics_, edge.flows[i], operation++, member_->started.last_ns, chunks, under.done,
                   &scratch_.latencies[i]);
      }
    }
  }

  void AddEdge(const Edge& edge, bool sends, const EdgeCount& count) {
    LookAt(edge, sends, count);
    if (physics_.shape().engine == Engine::kHost) {
      for (size_t i = 0; i < edge.flows.size(); ++i) AddQueuePair(edge, i, sends, count);
      return;
    }
    Under all;
    uint64_t chunks = 0;
    for (size_t i = 0; i < edge.flows.size(); ++i) {
      all.Add(scratch_.under[i]);
      chunks += count.flows[i].chunks;
    }
    if (chunks + all.wanted == 0) return;  // a peer gets its slot with its first step
    v1::QueuePairState* const item = queue_pairs_.Next();
    FillSlot(edge, sends, item);
    item->set_transport(wire::kTransportVendor);
    FillMoved(chunks, all, count, item);
    FillWhole(chunks, all, count, sends, item->mutable_connection());
    FillLatency(sends ? SumOfLatencies() : FlowCount(), item);
  }

  FlowCount SumOfLatencies() const {
    FlowCount sum;
    for (const FlowCount& latency : scratch_.latencies) {
      sum.latency_sum_ns += latency.latency_sum_ns;
      sum.latency_max_ns = std::max(sum.latency_max_ns, latency.latency_max_ns);
      for (size_t b = 0; b < sum.latency.size(); ++b) sum.latency[b] += latency.latency[b];
    }
    return sum;
  }

  // A slot of the host's engine is there from the beginning, so that its place in the report is always the
  // same.
  void AddQueuePair(const Edge& edge, size_t i, bool sends, const EdgeCount& count) {
    const Flow& flow = edge.flows[i];
    v1::QueuePairState* const item = queue_pairs_.Next();
    FillSlot(edge, sends, item);
    item->set_transport(wire::kTransportVerbs);
    item->set_channel(flow.channel);
    item->set_index(flow.index);
    item->set_queue_pair_number(sends ? flow.number : flow.number | (1U << 23));
    if (item->local().empty()) {
      const Network& network = physics_.network();
      item->set_local(sends ? network.local(edge, flow) : network.remote(edge, flow));
      item->set_remote(sends ? network.remote(edge, flow) : network.local(edge, flow));
    }
    FillMoved(count.flows[i].chunks, scratch_.under[i], count, item);
    if (sends) {
      item->set_last_heard_age_ns(std::max<int64_t>(1, Age(HeardNs(edge, flow))));
      FillLatency(scratch_.latencies[i], item);
    }
    if (flow.index != 0) return;
    // Of all queue pairs of the channel.
    uint64_t chunks = 0;
    Under all;
    for (size_t other = 0; other < edge.flows.size(); ++other) {
      if (edge.flows[other].channel != flow.channel) continue;
      chunks += count.flows[other].chunks;
      all.Add(scratch_.under[other]);
    }
    FillWhole(chunks, all, count, sends, item->mutable_connection());
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
  const bool fails_;  // its communicators with somebody have failed by then, or it has aborted all
  Scratch& scratch_;
  Refill<v1::CommunicatorState> communicators_;
  Refill<v1::OperationSummary> operations_;
  Refill<v1::QueuePairState> queue_pairs_;
  const Group* group_ = nullptr;
  Place place_;
  const MemberCounters* member_ = nullptr;
  size_t lost_ = 0;  // where in the group the rank is that it lost; its size: nowhere
  v1::Phase phase_ = v1::PHASE_UNSPECIFIED;
};

void Reporter::Fill(uint32_t rank, const Identity& identity, const agent::ProcessHealth& health,
                    int64_t at_ns, RankCounters* counters, v1::ProcessReport* report) {
  v1::ProcessId* const id = report->mutable_process();
  id->set_host(identity.host);
  id->set_boot_id(identity.boot_id);
  id->set_pid(identity.pid);
  id->set_start_time_ticks(identity.start_ticks);
  report->set_job("job");
  report->set_incarnation(identity.incarnation);
  report->set_rank_label(static_cast<int32_t>(rank));
  report->set_world_label(static_cast<int32_t>(physics_.shape().ranks()));
  report->set_program("trainer");
  report->set_level(v1::RECORD_LEVEL_COARSE);
  report->mutable_health()->clear_exit();
  report->mutable_health()->clear_io_progress_age_ns();
  agent::FillHealth(health, at_ns, report->mutable_health());
  report->set_in_operation_ns(counters->inside_ns(at_ns));
  report->set_operations_finished(counters->operations_finished());
  if (counters->first_started_ns() != 0) {
    report->set_first_operation_age_ns(std::max<int64_t>(1, at_ns - counters->first_started_ns()));
  }
  Filler(physics_, rank, at_ns, &scratch_, report).Fill(counters);
}

}  // namespace c4::jobsim
