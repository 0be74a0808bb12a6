#include "fabric/jobsim/physics.h"

#include <algorithm>

#include "fabric/jobsim/dice.h"

namespace c4::jobsim {
namespace {

constexpr int64_t kInitNs = kSecondNs;  // to set the communicators up, once all are there
constexpr int64_t kKeptNs = kSecondNs;  // meetings that are over; agents look at different times
constexpr size_t kBlockedKept = 4;

bool Contains(const std::vector<uint32_t>& sorted, uint32_t value) {
  return std::binary_search(sorted.begin(), sorted.end(), value);
}

}  // namespace

Physics::Physics(const Shape& shape, const Fault& fault, uint64_t seed, uint32_t life)
    : shape_(shape),
      fault_(fault),
      seed_(Mix({seed, life})),
      layout_(MakeLayout(shape, life)),
      network_(shape, layout_, fault),
      fates_(MakeFates(shape, layout_, fault, seed)),
      paces_(shape.ranks(), 1),
      ranks_(shape.ranks()),
      meetings_(layout_.groups.size()) {
  for (const uint32_t rank : SlowRanks(shape, fault)) paces_[rank] = fault.factor;
  for (uint32_t stage = 0; stage < shape.pipeline; ++stage) {
    training_.push_back(TrainingStep(shape, stage));
    evaluation_.push_back(EvaluationStep(shape, stage));
  }
  for (uint32_t rank = 0; rank < ranks_.size(); ++rank) {
    ready_ns_ = std::max(ready_ns_, starts_ns(rank) + kInitNs);
  }
  for (Rank& rank : ranks_) {
    rank.cpu_ns = ready_ns_;
    rank.free_ns.fill(ready_ns_);
  }
}

int64_t Physics::starts_ns(uint32_t rank) const {
  // Nodes come up one by one, the ranks of a node together.
  const double node = Uniform(Mix({seed_, 0x57a7, shape_.node(rank)}));
  const double own = Uniform(Mix({seed_, 0x57a8, rank}));
  return static_cast<int64_t>(static_cast<double>(shape_.start_skew_ns) * (0.95 * node + 0.05 * own));
}

void Physics::Queue(uint32_t rank) {
  if (ranks_[rank].queued) return;
  ranks_[rank].queued = true;
  queue_.push_back(rank);
}

void Physics::Advance(int64_t until_ns) {
  for (Meetings& meetings : meetings_) {
    while (!meetings.open.empty()) {
      const Meeting& oldest = meetings.open.front();
      if (oldest.left < oldest.begun_ns.size() || oldest.end_ns >= until_ns - kKeptNs) break;
      meetings.open.pop_front();
      ++meetings.first;
    }
  }
  for (uint32_t rank = 0; rank < ranks_.size(); ++rank) Queue(rank);
  while (!queue_.empty()) {
    const uint32_t rank = queue_.back();
    queue_.pop_back();
    ranks_[rank].queued = false;
    Run(rank, until_ns);
  }
}

std::vector<Event> Physics::Take(uint32_t rank, int64_t until_ns) {
  std::vector<Event>& events = ranks_[rank].events;
  const auto later = std::stable_partition(
      events.begin(), events.end(), [until_ns](const Event& event) { return event.at_ns <= until_ns; });
  std::vector<Event> taken(events.begin(), later);
  events.erase(events.begin(), later);
  std::stable_sort(taken.begin(), taken.end(),
                   [](const Event& a, const Event& b) { return a.at_ns < b.at_ns; });
  return taken;
}

const Meeting* Physics::FindMeeting(uint32_t group, uint64_t operation) const {
  const Meetings& meetings = meetings_[group];
  if (operation < meetings.first || operation - meetings.first >= meetings.open.size()) return nullptr;
  return &meetings.open[operation - meetings.first];
}

bool Physics::IsIdle(uint32_t rank, int64_t at_ns) const {
  const Rank& state = ranks_[rank];
  if (at_ns < ready_ns_) return true;
  if (at_ns >= state.idle_from_ns && at_ns < state.idle_to_ns) return true;
  return shape_.blocking_sync && state.program != nullptr && shape_.engine == Engine::kVendor &&
         at_ns >= state.cpu_ns;
}

namespace {

template <typename Spans>
bool Within(const Spans& spans, int64_t at_ns) {
  return std::any_of(spans.rbegin(), spans.rend(),
                     [at_ns](const auto& span) { return at_ns >= span.first && at_ns < span.second; });
}

}  // namespace

bool Physics::IsBlocked(uint32_t rank, int64_t at_ns) const {
  return Within(ranks_[rank].blocked, at_ns);
}

bool Physics::IsWriting(uint32_t rank, int64_t at_ns) const {
  return Within(ranks_[rank].written, at_ns);
}

int64_t Physics::Noisy(int64_t duration_ns, uint64_t chance) const {
  const double factor = 1 + shape_.noise * Normal(chance);
  return static_cast<int64_t>(static_cast<double>(duration_ns) * std::max(0.5, factor));
}

// What takes `duration_ns` by itself takes `factor` times as long while the fault lasts.
int64_t Physics::Stretch(int64_t begun_ns, int64_t duration_ns, double factor) const {
  const int64_t over_ns = fault_.lasts_ns >= kNeverNs ? kNeverNs : fault_.at_ns + fault_.lasts_ns;
  if (factor <= 1 || begun_ns + duration_ns <= fault_.at_ns || begun_ns >= over_ns)
    return begun_ns + duration_ns;
  const int64_t before_ns = std::max<int64_t>(0, fault_.at_ns - begun_ns);
  const auto left_ns = static_cast<double>(duration_ns - before_ns);
  const int64_t slow_from_ns = begun_ns + before_ns;
  if (over_ns >= kNeverNs) {
    return factor == kDead ? kNeverNs : slow_from_ns + static_cast<int64_t>(left_ns * factor);
  }
  const double done_ns = factor == kDead ? 0 : static_cast<double>(over_ns - slow_from_ns) / factor;
  if (done_ns >= left_ns) return slow_from_ns + static_cast<int64_t>(left_ns * factor);
  return over_ns + static_cast<int64_t>(left_ns - done_ns);
}

void Physics::Add(uint32_t rank, const Event& event) {
  const Fate& fate = fates_[rank];
  if (event.at_ns >= std::min(fate.ends_ns, kNeverNs)) return;
  if (event.kind != EventKind::kCalled && event.at_ns >= fate.gpu_ends_ns) return;
  if (event.at_ns >= fate.stops_ns && (event.kind == EventKind::kCalled || shape_.engine == Engine::kHost))
    return;
  if (event.kind != EventKind::kCalled) last_event_ns_ = std::max(last_event_ns_, event.at_ns);
  ranks_[rank].events.push_back(event);
}

void Physics::Run(uint32_t rank, int64_t until_ns) {
  for (bool moved = true; moved;) {
    moved = false;
    if (ranks_[rank].program == nullptr && !Load(rank, until_ns)) return;
    for (uint32_t stream = 0; stream < kStreams; ++stream) {
      while (RunStream(rank, stream, until_ns)) moved = true;
    }
    if (FinishStep(rank)) moved = true;
  }
}

// How long the rank writes before this step; 0: it does not.
int64_t Physics::CheckpointNs(uint32_t rank) const {
  const uint64_t step = ranks_[rank].step;
  if (shape_.checkpoint_steps == 0 || step == 0 || step % shape_.checkpoint_steps != 0) return 0;
  const bool writes = shape_.checkpoint_by_all ? shape_.replica(rank) == 0 : rank == 0;
  if (!writes) return 0;
  return static_cast<int64_t>(static_cast<double>(shape_.checkpoint_ns) *
                              Between(Mix({seed_, 0xc4ec, rank, step}), 0.8, 1.2));
}

// How much longer than usual its data are in coming; 0: they are not.
int64_t Physics::StallNs(uint32_t rank) const {
  const uint64_t step = ranks_[rank].step;
  if (shape_.stall_steps == 0 || step % shape_.stall_steps != shape_.stall_steps / 2) return 0;
  if (Mix({seed_, 0x57a11, step}) % shape_.ranks() != rank) return 0;
  return static_cast<int64_t>(static_cast<double>(shape_.stall_ns) *
                              Between(Mix({seed_, 0x57a12, step}), 0.1, 1));
}

bool Physics::Evaluates(uint64_t step) const {
  return shape_.evaluation_steps != 0 && shape_.evaluation_batches != 0 &&
         step % shape_.evaluation_steps == shape_.evaluation_steps - 1;
}

// The CPU waits for its data, and launches what is to be done with them.
bool Physics::Load(uint32_t rank, int64_t until_ns) {
  Rank& state = ranks_[rank];
  const Fate& fate = fates_[rank];
  if (state.cpu_ns > until_ns || state.cpu_ns >= std::min(fate.ends_ns, fate.stops_ns)) return false;
  if (shape_.steps != 0 && state.step == shape_.steps) {
    fates_[rank].ends_ns = state.cpu_ns + static_cast<int64_t>(static_cast<double>(shape_.end_spread_ns) *
                                                               Uniform(Mix({seed_, 0xe7d5, rank})));
    over_ns_ = over_ns_ >= kNeverNs ? fate.ends_ns : std::max(over_ns_, fate.ends_ns);
    state.cpu_ns = kNeverNs;
    return false;
  }
  if (const int64_t writes_ns = CheckpointNs(rank); writes_ns > 0) {
    if (shape_.checkpoint_fsync) state.blocked.emplace_back(state.cpu_ns, state.cpu_ns + writes_ns);
    if (state.blocked.size() > kBlockedKept) state.blocked.erase(state.blocked.begin());
    state.written.emplace_back(state.cpu_ns, state.cpu_ns + writes_ns);
    if (state.written.size() > kBlockedKept) state.written.erase(state.written.begin());
    state.cpu_ns += writes_ns;
  }
  int64_t wait_ns = Noisy(shape_.data_ns, Mix({seed_, 0xda7a, rank, state.step}));
  if (state.step == 0) {
    wait_ns += static_cast<int64_t>(static_cast<double>(shape_.first_step_ns) *
                                    Between(Mix({seed_, 0xf125, rank}), 0.7, 1));
  }
  if (state.cpu_ns + wait_ns >= fate.loader_ends_ns && state.cpu_ns < fate.loader_back_ns) {
    if (fault_.kind == FaultKind::kFileSystem) {
      state.blocked.emplace_back(state.cpu_ns, fate.loader_back_ns);
    } else {
      state.idle_from_ns = state.cpu_ns;
      state.idle_to_ns = fate.loader_back_ns;
    }
    state.cpu_ns = fate.loader_back_ns;
    if (state.cpu_ns >= kNeverNs) return false;
  }
  if (const int64_t stall_ns = StallNs(rank); stall_ns > 0) {
    state.idle_from_ns = state.cpu_ns;
    state.idle_to_ns = state.cpu_ns + stall_ns;
    wait_ns += stall_ns;
  }
  state.cpu_ns += wait_ns;
  state.program = &(Evaluates(state.step) ? evaluation_ : training_)[shape_.stage(rank)];
  state.next.fill(0);
  state.done_ns.assign(state.program->instructions.size(), -1);
  state.launched_ns = state.cpu_ns;
  for (int64_t& free_ns : state.free_ns) free_ns = std::max(free_ns, state.cpu_ns);
  if (shape_.engine == Engine::kHost) return true;
  for (const Instruction& what : state.program->instructions) {
    state.cpu_ns += shape_.launch_ns;
    if (what.work == Work::kCompute || layout_.place(rank, what.role).group == kNoGroup) continue;
    Add(rank, {.at_ns = state.cpu_ns, .what = &what, .odd = Odd(rank, what, state.cpu_ns)});
  }
  return true;
}

bool Physics::Odd(uint32_t rank, const Instruction& what, int64_t at_ns) {
  if (fault_.kind != FaultKind::kMismatch || rank != fault_.rank || at_ns < fault_.at_ns) return false;
  if (odd_called_ || !what.is_collective()) return false;
  odd_called_ = true;
  return true;
}

bool Physics::FinishStep(uint32_t rank) {
  Rank& state = ranks_[rank];
  if (state.program == nullptr) return false;
  for (uint32_t stream = 0; stream < kStreams; ++stream) {
    if (state.next[stream] < state.program->on_stream[stream].size()) return false;
    if (state.free_ns[stream] >= kNeverNs) return false;
  }
  for (const int64_t free_ns : state.free_ns) state.cpu_ns = std::max(state.cpu_ns, free_ns);
  state.program = nullptr;
  if (rank == 0) stepped_ns_[state.step % kStepsKept] = state.cpu_ns;
  ++state.step;
  return true;
}

int64_t Physics::EndOfCompute(uint32_t rank, const Instruction& what, int64_t begun_ns) {
  Rank& state = ranks_[rank];
  const int64_t own_ns =
      state.step < shape_.warm_up_steps
          ? static_cast<int64_t>(static_cast<double>(what.duration_ns) * shape_.warm_up_factor)
          : what.duration_ns;
  const int64_t noisy_ns = Noisy(own_ns, Mix({seed_, 0xc0de, rank, ++state.kernels}));
  const int64_t end_ns = Stretch(begun_ns, noisy_ns, paces_[rank]);
  const Fate& fate = fates_[rank];
  return end_ns >= std::min(fate.spins_ns, fate.gpu_ends_ns) ? kNeverNs : end_ns;
}

// The job with a mismatch, a stuck kernel, or members that are gone.
bool Physics::NeverEnds(const Group& group, const Meeting& meeting) const {
  return std::any_of(group.ranks.begin(), group.ranks.end(), [&](uint32_t rank) {
    const Fate& fate = fates_[rank];
    const int64_t stops_ns = shape_.engine == Engine::kHost ? fate.stops_ns : kNeverNs;
    return meeting.end_ns >= std::min({fate.ends_ns, fate.gpu_ends_ns, stops_ns, fate.fails_ns});
  });
}

void Physics::EnterCollective(uint32_t rank, const Instruction& what, int64_t begun_ns) {
  const Place& place = layout_.place(rank, what.role);
  const Group& group = layout_.groups[place.group];
  Meetings& meetings = meetings_[place.group];
  const uint64_t operation = ranks_[rank].operations[static_cast<size_t>(what.role)]++;
  while (operation - meetings.first >= meetings.open.size()) {
    meetings.open.emplace_back().begun_ns.assign(group.ranks.size(), -1);
  }
  Meeting& meeting = meetings.open[operation - meetings.first];
  meeting.begun_ns[place.member] = begun_ns;
  meeting.last_ns = std::max(meeting.last_ns, begun_ns);
  if (++meeting.entered < group.ranks.size()) return;
  Conclude(place.group, operation, what, &meeting);
  if (meeting.end_ns >= kNeverNs) return;
  for (const uint32_t other : group.ranks) {
    if (other != rank) Queue(other);
  }
}

// All are there, which says when it ends.
void Physics::Conclude(uint32_t group_index, uint64_t operation, const Instruction& what, Meeting* meeting) {
  const Group& group = layout_.groups[group_index];
  const int64_t own_ns = Noisy(what.duration_ns, Mix({seed_, 0x6709, group_index, operation}));
  meeting->end_ns = Stretch(meeting->last_ns, own_ns, network_.factor(group_index));
  bool stuck_itself = false;
  if (fault_.kind == FaultKind::kStuckInside && meeting->end_ns >= fault_.at_ns) {
    stuck_itself = Contains(group.ranks, fault_.rank);
  }
  if (fault_.kind == FaultKind::kMismatch && odd_called_ && meeting->end_ns >= fault_.at_ns) {
    stuck_itself = Contains(group.ranks, fault_.rank);
  }
  if (meeting->end_ns < kNeverNs && NeverEnds(group, *meeting)) stuck_itself = true;
  if (!stuck_itself && meeting->end_ns < kNeverNs) return;
  meeting->stuck_itself = stuck_itself;
  meeting->end_ns = kNeverNs;
  meeting->stalled_ns = std::max(meeting->last_ns, fault_.at_ns);
  meeting->done = std::clamp(static_cast<double>(fault_.at_ns - meeting->last_ns) /
                                 static_cast<double>(std::max<int64_t>(1, own_ns)),
                             0.0, 0.9);
  const auto own = std::find(group.ranks.begin(), group.ranks.end(), fault_.rank);
  if (own != group.ranks.end()) meeting->stuck_member = static_cast<uint32_t>(own - group.ranks.begin());
  for (const Edge& edge : network_.edges(group_index)) {
    if (!stuck_itself && edge.factor == kDead) meeting->stuck_member = edge.to;
  }
}

int64_t Physics::EndOfCollective(uint32_t rank, const Instruction& what, int64_t* waited_ns) {
  const Place& place = layout_.place(rank, what.role);
  Meetings& meetings = meetings_[place.group];
  const uint64_t operation = ranks_[rank].operations[static_cast<size_t>(what.role)] - 1;
  Meeting& meeting = meetings.open[operation - meetings.first];
  if (meeting.end_ns < 0) return -1;
  const auto size = static_cast<uint32_t>(meeting.begun_ns.size());
  const int64_t before_ns =
      what.work == Work::kAllToAll ? meeting.last_ns : meeting.begun_ns[(place.member + size - 1) % size];
  *waited_ns = std::max<int64_t>(0, before_ns - meeting.begun_ns[place.member]);
  if (meeting.end_ns < kNeverNs) ++meeting.left;
  return meeting.end_ns;
}

// The receiver's buffers take the message, so that a sender does not wait for it.
int64_t Physics::EndOfSend(uint32_t rank, const Instruction& what, int64_t begun_ns) {
  const Place& place = layout_.place(rank, Role::kPipeline);
  const Group& group = layout_.groups[place.group];
  const int64_t own_ns = Noisy(what.duration_ns, Mix({seed_, 0x5e7d, rank, ++ranks_[rank].kernels}));
  const int64_t end_ns =
      Stretch(begun_ns, own_ns, network_.factor(group, place.group, place.member, what.peer));
  const Fate& fate = fates_[rank];
  const uint32_t receiver = group.ranks[what.peer];
  const Fate& other = fates_[receiver];
  if (end_ns >= std::min({fate.ends_ns, fate.gpu_ends_ns, fate.fails_ns, other.ends_ns})) return kNeverNs;
  messages_[{place.group, {place.member, what.peer}}].push_back(end_ns);
  Queue(receiver);
  return end_ns;
}

int64_t Physics::EndOfReceive(uint32_t rank, const Instruction& what, int64_t begun_ns, int64_t* waited_ns) {
  const Place& place = layout_.place(rank, Role::kPipeline);
  std::deque<int64_t>& messages = messages_[{place.group, {what.peer, place.member}}];
  if (messages.empty()) return -1;
  const int64_t end_ns = std::max(begun_ns, messages.front());
  messages.pop_front();
  *waited_ns = end_ns - begun_ns;
  return end_ns >= std::min(fates_[rank].gpu_ends_ns, fates_[rank].fails_ns) ? kNeverNs : end_ns;
}

int64_t Physics::EndOf(uint32_t rank, uint32_t stream, const Instruction& what, int64_t* waited_ns) {
  const int64_t begun_ns = ranks_[rank].begun_ns[stream];
  switch (what.work) {
    case Work::kCompute:
      return EndOfCompute(rank, what, begun_ns);
    case Work::kSend:
      return EndOfSend(rank, what, begun_ns);
    case Work::kReceive:
      return EndOfReceive(rank, what, begun_ns, waited_ns);
    default:
      return EndOfCollective(rank, what, waited_ns);
  }
}

// When the stream's next instruction can begin; -1: not known yet.
int64_t Physics::BeginOf(uint32_t rank, uint32_t stream, uint32_t index) const {
  const Rank& state = ranks_[rank];
  const Instruction& what = state.program->instructions[index];
  if (shape_.engine == Engine::kHost) return std::max(state.cpu_ns, state.free_ns[stream]) + shape_.launch_ns;
  int64_t begin_ns = std::max(state.free_ns[stream], state.launched_ns + (index + 1) * shape_.launch_ns);
  if (what.after >= 0) {
    const int64_t before_ns = state.done_ns[static_cast<size_t>(what.after)];
    if (before_ns < 0) return -1;
    begin_ns = std::max(begin_ns, before_ns);
  }
  return begin_ns;
}

void Physics::Enter(uint32_t rank, uint32_t stream, uint32_t index) {
  Rank& state = ranks_[rank];
  const Instruction& what = state.program->instructions[index];
  const int64_t begun_ns = state.begun_ns[stream];
  state.entered[stream] = true;
  if (shape_.engine == Engine::kHost) state.cpu_ns = begun_ns;
  if (what.work == Work::kCompute) return;
  if (shape_.engine == Engine::kHost)
    Add(rank, {.at_ns = begun_ns, .what = &what, .odd = Odd(rank, what, begun_ns)});
  Add(rank, {.at_ns = begun_ns, .what = &what, .kind = EventKind::kStarted});
  if (what.is_collective()) EnterCollective(rank, what, begun_ns);
}

// Whether the stream went on.
bool Physics::RunStream(uint32_t rank, uint32_t stream, int64_t until_ns) {
  Rank& state = ranks_[rank];
  if (state.program == nullptr || state.next[stream] >= state.program->on_stream[stream].size()) return false;
  const uint32_t index = state.program->on_stream[stream][state.next[stream]];
  const Instruction& what = state.program->instructions[index];
  const bool nothing = what.work != Work::kCompute && layout_.place(rank, what.role).group == kNoGroup;
  if (!state.entered[stream]) {
    const int64_t begin_ns = BeginOf(rank, stream, index);
    const Fate& fate = fates_[rank];
    const int64_t stops_ns = shape_.engine == Engine::kHost ? fate.stops_ns : kNeverNs;
    if (begin_ns < 0 || begin_ns > until_ns || begin_ns >= kNeverNs) return false;
    if (begin_ns >= std::min({fate.ends_ns, fate.gpu_ends_ns, stops_ns})) return false;
    state.begun_ns[stream] = begin_ns;
    if (!nothing) Enter(rank, stream, index);
  }
  int64_t waited_ns = 0;
  const int64_t end_ns = nothing ? state.begun_ns[stream] : EndOf(rank, stream, what, &waited_ns);
  if (end_ns < 0) return false;
  if (what.work != Work::kCompute && !nothing) {
    Add(rank, {.at_ns = end_ns,
               .what = &what,
               .kind = EventKind::kFinished,
               .begun_ns = state.begun_ns[stream],
               .waited_ns = waited_ns});
  }
  state.free_ns[stream] = end_ns;
  if (shape_.engine == Engine::kHost) state.cpu_ns = end_ns;
  state.done_ns[index] = end_ns;
  state.entered[stream] = false;
  ++state.next[stream];
  return true;
}

}  // namespace c4::jobsim
