#include "fabric/jobsim/physics.h"

#include <algorithm>

namespace c4::jobsim {

Physics::Physics(const Shape& shape, const Fault& fault, uint64_t seed)
    : shape_(shape),
      fault_(fault),
      random_(seed),
      groups_(Layout(shape)),
      groups_of_(shape.ranks()),
      ranks_(shape.ranks()) {
  for (uint32_t group = 0; group < groups_.size(); ++group) {
    for (const uint32_t rank : groups_[group].ranks) groups_of_[rank].push_back(group);
  }
  for (uint32_t rank = 0; rank < ranks_.size(); ++rank) ranks_[rank].program = Program(rank);
}

uint32_t Physics::RankIn(uint32_t group, uint32_t rank) const {
  const std::vector<uint32_t>& ranks = groups_[group].ranks;
  return static_cast<uint32_t>(std::find(ranks.begin(), ranks.end(), rank) - ranks.begin());
}

std::vector<Physics::Instruction> Physics::Program(uint32_t rank) const {
  const uint32_t stage = rank / (shape_.tensor * shape_.data);
  std::vector<Instruction> program = {{.kind = Kind::kLoad, .duration_ns = shape_.data_ns}};
  const auto in_group = [&](const char* name, Instruction instruction) {
    for (const uint32_t group : groups_of_[rank]) {
      if (groups_[group].name != name) continue;
      instruction.group = group;
      program.push_back(instruction);
    }
  };
  const auto pass = [&](bool forward) {
    // Forward, messages go to the next stage; backward, to the one before.
    const bool receives = forward ? stage > 0 : stage + 1 < shape_.pipeline;
    const bool sends = forward ? stage + 1 < shape_.pipeline : stage > 0;
    const Instruction receive = {
        .kind = Kind::kReceive, .peer = forward ? stage - 1 : stage + 1, .duration_ns = shape_.transfer_ns};
    const Instruction send = {
        .kind = Kind::kSend, .peer = forward ? stage + 1 : stage - 1, .duration_ns = shape_.transfer_ns};
    if (receives) in_group("pipeline", receive);
    program.push_back({.kind = Kind::kCompute, .duration_ns = shape_.forward_ns * (forward ? 1 : 2)});
    in_group("tensor", {.kind = Kind::kCollective, .duration_ns = shape_.tensor_ns});
    if (sends) in_group("pipeline", send);
  };
  const uint32_t ahead = std::min(shape_.micro_batches, shape_.pipeline - stage - 1);
  for (uint32_t i = 0; i < ahead; ++i) pass(true);
  for (uint32_t i = ahead; i < shape_.micro_batches; ++i) {
    pass(true);
    pass(false);
  }
  for (uint32_t i = 0; i < ahead; ++i) pass(false);
  in_group("data", {.kind = Kind::kCollective, .duration_ns = shape_.gradients_ns});
  program.push_back({.kind = Kind::kSync});
  return program;
}

void Physics::Advance(int64_t until_ns) {
  for (bool moved = true; moved;) {
    moved = false;
    for (uint32_t rank = 0; rank < ranks_.size(); ++rank) {
      while (Step(rank, until_ns)) moved = true;
    }
  }
}

std::vector<Event> Physics::Take(uint32_t rank, int64_t until_ns) {
  std::vector<Event>& events = ranks_[rank].events;
  const auto later = std::stable_partition(
      events.begin(), events.end(), [until_ns](const Event& event) { return event.at_ns <= until_ns; });
  std::vector<Event> taken(events.begin(), later);
  events.erase(events.begin(), later);
  return taken;
}

int64_t Physics::ends_ns(uint32_t rank) const {
  const bool ends = fault_.kind == FaultKind::kKill || fault_.kind == FaultKind::kStop;
  return ends && rank == fault_.rank ? fault_.at_ns : kNeverNs;
}

bool Physics::Writes(uint32_t rank, int64_t at_ns) const {
  return rank == 0 && std::any_of(checkpoints_.begin(), checkpoints_.end(), [at_ns](const auto& written) {
           return at_ns >= written.first && at_ns < written.second;
         });
}

bool Physics::Slowed(uint32_t rank) const {
  switch (fault_.kind) {
    case FaultKind::kSlowGpu:
      return rank == fault_.rank;
    case FaultKind::kSlowNode:
      return shape_.node(rank) == shape_.node(fault_.rank);
    case FaultKind::kSlowTensor:
      return rank / shape_.tensor == fault_.rank / shape_.tensor;
    default:
      return false;
  }
}

int64_t Physics::Noisy(int64_t duration_ns) {
  const double factor = 1 + shape_.noise * std::normal_distribution<double>()(random_);
  return static_cast<int64_t>(static_cast<double>(duration_ns) * std::max(0.5, factor));
}

int64_t Physics::ComputeEnd(uint32_t rank, int64_t begin_ns, int64_t duration_ns) {
  int64_t noisy_ns = Noisy(duration_ns);
  if (begin_ns + noisy_ns < fault_.at_ns) return begin_ns + noisy_ns;
  if (fault_.kind == FaultKind::kSpin && rank == fault_.rank) return kNeverNs;
  if (Slowed(rank)) noisy_ns = static_cast<int64_t>(static_cast<double>(noisy_ns) * fault_.factor);
  return begin_ns + noisy_ns;
}

void Physics::Add(uint32_t rank, const Instruction& instruction, EventKind kind, int64_t at_ns) {
  if (at_ns >= std::min(ends_ns(rank), kNeverNs)) return;
  ranks_[rank].events.push_back(
      {at_ns, kind, instruction.group, instruction.kind == Kind::kSend, instruction.peer});
}

// The CPU launches a whole step's kernels without waiting for one of them.
void Physics::LaunchStep(uint32_t rank) {
  Rank& state = ranks_[rank];
  state.launched_ns.assign(state.program.size(), 0);
  for (size_t i = state.next; i < state.program.size(); ++i) {
    const Instruction& instruction = state.program[i];
    if (instruction.kind == Kind::kSync) continue;
    state.cpu_ns += shape_.launch_ns;
    state.launched_ns[i] = state.cpu_ns;
    if (instruction.kind != Kind::kCompute) Add(rank, instruction, EventKind::kCalled, state.cpu_ns);
  }
}

// The kernel is the first in its stream from now on.
void Physics::Launch(uint32_t rank, const Instruction& instruction) {
  Rank& state = ranks_[rank];
  if (shape_.engine == Engine::kHost) {
    state.cpu_ns = std::max(state.cpu_ns, state.gpu_ns) + shape_.launch_ns;
    state.begun_ns = state.cpu_ns;
    if (instruction.kind != Kind::kCompute) Add(rank, instruction, EventKind::kCalled, state.cpu_ns);
  } else {
    state.begun_ns = std::max(state.gpu_ns, state.launched_ns[state.next]);
  }
  state.entered = true;
  if (instruction.kind == Kind::kCompute) return;
  Add(rank, instruction, EventKind::kStarted, state.begun_ns);
  if (instruction.kind == Kind::kCollective) EnterCollective(rank, instruction);
}

// The last one to come says when it ends.
void Physics::EnterCollective(uint32_t rank, const Instruction& instruction) {
  const std::vector<uint32_t>& members = groups_[instruction.group].ranks;
  Meeting& meeting = meetings_[{instruction.group, ranks_[rank].operations[instruction.group]++}];
  meeting.last_ns = std::max(meeting.last_ns, ranks_[rank].begun_ns);
  if (++meeting.entered < members.size()) return;
  meeting.end_ns = meeting.last_ns + Noisy(instruction.duration_ns);
  const bool stuck = fault_.kind == FaultKind::kStuckInside && meeting.end_ns >= fault_.at_ns;
  const bool never = std::any_of(members.begin(), members.end(), [&](uint32_t member) {
    return meeting.end_ns >= ends_ns(member) || (stuck && member == fault_.rank);
  });
  if (never) meeting.end_ns = kNeverNs;
}

void Physics::End(uint32_t rank, const Instruction& instruction, int64_t end_ns) {
  Rank& state = ranks_[rank];
  if (instruction.kind != Kind::kCompute) Add(rank, instruction, EventKind::kFinished, end_ns);
  state.gpu_ns = end_ns;
  state.entered = false;
  ++state.next;
}

bool Physics::FinishCollective(uint32_t rank, const Instruction& instruction) {
  const auto at = meetings_.find({instruction.group, ranks_[rank].operations[instruction.group] - 1});
  if (at->second.end_ns < 0) return false;
  End(rank, instruction, at->second.end_ns);
  if (++at->second.left == groups_[instruction.group].ranks.size()) meetings_.erase(at);
  return true;
}

bool Physics::FinishReceive(uint32_t rank, const Instruction& instruction) {
  const uint32_t own = RankIn(instruction.group, rank);
  std::deque<int64_t>& messages = messages_[{instruction.group, {instruction.peer, own}}];
  if (messages.empty()) return false;
  End(rank, instruction, std::max(ranks_[rank].begun_ns, messages.front()));
  messages.pop_front();
  return true;
}

// The CPU waits for its data, and launches what is to be done with them.
bool Physics::Load(uint32_t rank, const Instruction& instruction) {
  Rank& state = ranks_[rank];
  int64_t wait_ns = Noisy(instruction.duration_ns) + (state.step == 0 ? shape_.first_step_ns : 0);
  if (rank == 0 && shape_.checkpoint_steps != 0 && state.step != 0 &&
      state.step % shape_.checkpoint_steps == 0) {
    checkpoints_.emplace_back(state.cpu_ns, state.cpu_ns + shape_.checkpoint_ns);
    wait_ns += shape_.checkpoint_ns;
  }
  if (fault_.kind == FaultKind::kDataLoader && rank == fault_.rank &&
      state.cpu_ns + wait_ns >= fault_.at_ns) {
    state.idle_from_ns = state.cpu_ns;
    state.cpu_ns = kNeverNs;
    return false;
  }
  state.cpu_ns += wait_ns;
  ++state.next;
  if (shape_.engine == Engine::kVendor) LaunchStep(rank);
  return true;
}

bool Physics::Step(uint32_t rank, int64_t until_ns) {
  Rank& state = ranks_[rank];
  const int64_t now_ns = std::max(state.gpu_ns, state.cpu_ns);
  if (now_ns >= kNeverNs || now_ns > until_ns || now_ns >= ends_ns(rank)) return false;
  const Instruction instruction = state.program[state.next];
  if (!state.entered && instruction.kind != Kind::kLoad && instruction.kind != Kind::kSync) {
    Launch(rank, instruction);
  }
  switch (instruction.kind) {
    case Kind::kLoad:
      return Load(rank, instruction);
    case Kind::kCompute:
      End(rank, instruction, ComputeEnd(rank, state.begun_ns, instruction.duration_ns));
      return true;
    case Kind::kCollective:
      return FinishCollective(rank, instruction);
    case Kind::kSend: {
      // The receiver's buffers take the message, so that a sender does not wait for it.
      const int64_t end_ns = state.begun_ns + Noisy(instruction.duration_ns);
      if (end_ns < ends_ns(rank)) {
        messages_[{instruction.group, {RankIn(instruction.group, rank), instruction.peer}}].push_back(end_ns);
      }
      End(rank, instruction, end_ns);
      return true;
    }
    case Kind::kReceive:
      return FinishReceive(rank, instruction);
    case Kind::kSync:
      state.cpu_ns = now_ns;
      state.next = 0;
      ++state.step;
      return true;
  }
  return false;
}

}  // namespace c4::jobsim
