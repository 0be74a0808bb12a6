#include "ccl/engine/host/plan_run.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace c4::host {

size_t PlanRun::InboxOf(int peer, uint16_t channel) {
  for (size_t i = 0; i < inboxes_.size(); ++i) {
    if (inboxes_[i].peer == peer && inboxes_[i].channel == channel) return i;
  }
  Inbox inbox;
  inbox.peer = peer;
  inbox.channel = channel;
  inboxes_.push_back(std::move(inbox));
  return inboxes_.size() - 1;
}

size_t PlanRun::OutboxOf(int peer, uint16_t channel) {
  for (size_t i = 0; i < outboxes_.size(); ++i) {
    if (outboxes_[i].peer == peer && outboxes_[i].channel == channel) return i;
  }
  Outbox outbox;
  outbox.peer = peer;
  outbox.channel = channel;
  outboxes_.push_back(std::move(outbox));
  return outboxes_.size() - 1;
}

// Where an input is still to be read when results are stored over it, or where all that is sent has to be
// scaled first: plans of this sort are for small buffers.
void PlanRun::CopyInput(const Plan& plan) {
  if (!plan.overlaps || (work_.input != work_.output && !work_.prepares())) return;
  const size_t bytes = work_.count * work_.element_bytes;
  if (input_copy_.size() < bytes) input_copy_.resize(bytes);
  if (work_.prepares()) {
    work_.Prepare(input_copy_.data(), work_.input, work_.count);
    work_.scale = nullptr;
    work_.divide_own = nullptr;
  } else if (bytes != 0) {
    memcpy(input_copy_.data(), work_.input, bytes);
  }
  work_.input = input_copy_.data();
}

void PlanRun::Prepare(const Plan& plan, const Step& step, State* state) {
  state->step = &step;
  state->ready = 0;
  state->sent = 0;
  const Region& shape = step.operand.buffer != Buffer::kNone ? step.operand : step.store;
  const Span span = ChunkSpan(work_.count, plan.parts, shape.part);
  const auto offset = [&](const Region& region) {
    return (static_cast<size_t>(region.block) * work_.count + span.first) * work_.element_bytes;
  };
  state->operand = step.operand.buffer == Buffer::kInput ? work_.input + offset(step.operand) : nullptr;
  state->store = step.store.buffer == Buffer::kOutput ? work_.output + offset(step.store) : nullptr;
  state->count = span.count;
  state->slices = (span.count + slice_elements_ - 1) / slice_elements_;
  state->direct = !step.from.empty() && state->operand == nullptr;
  state->folds = false;
  state->begun = false;
  state->sends = false;
  state->sharing = 0;
  state->shared.clear();
  state->source_count = state->slices == 0 ? 0 : step.from.size();
  state->target_count = state->slices == 0 ? 0 : step.to.size();
  if (state->sources.size() < state->source_count) state->sources.resize(state->source_count);
  if (state->targets.size() < state->target_count) state->targets.resize(state->target_count);
  for (size_t i = 0; i < state->source_count; ++i) {
    state->sources[i].box = InboxOf(step.from[i], step.channel);
    state->sources[i].numbers.clear();
  }
  for (size_t i = 0; i < state->target_count; ++i) {
    state->targets[i].box = OutboxOf(step.to[i], step.channel);
    state->targets[i].numbers.clear();
  }
  slot_bytes_ = std::max(slot_bytes_, std::min(slice_elements_, span.count) * work_.element_bytes);
}

void PlanRun::NumberSlices(size_t step, size_t from, size_t to) {
  State& state = states_[step];
  for (size_t slice = from; slice < std::min(to, state.slices); ++slice) {
    Message message{static_cast<uint32_t>(step), static_cast<uint32_t>(slice), 0};
    for (size_t i = 0; i < state.source_count; ++i) {
      message.end = static_cast<uint32_t>(i);
      Inbox& inbox = inboxes_[state.sources[i].box];
      state.sources[i].numbers.push_back(static_cast<uint32_t>(inbox.messages.size()));
      inbox.messages.push_back(message);
    }
    for (size_t i = 0; i < state.target_count; ++i) {
      message.end = static_cast<uint32_t>(i);
      Outbox& outbox = outboxes_[state.targets[i].box];
      state.targets[i].numbers.push_back(static_cast<uint32_t>(outbox.messages.size()));
      outbox.messages.push_back(message);
    }
  }
}

void PlanRun::Order(const Plan& plan) {
  slots_ =
      std::clamp<uint64_t>(kSlotsOfAll / std::max<size_t>(1, plan.most_sources), kLeastSlots, kMostSlots);
  size_t most = 0;
  for (size_t s = 0; s < plan.steps.size(); ++s) most = std::max(most, states_[s].slices);
  const size_t turn = plan.stages ? slots_ / 2 : std::max<size_t>(1, most);
  for (size_t from = 0; from < most; from += turn) {
    for (size_t s = 0; s < plan.steps.size(); ++s) NumberSlices(s, from, from + turn);
  }
}

Result PlanRun::Connect() {
  for (Inbox& inbox : inboxes_) {
    if (inbox.messages.empty()) continue;
    inbox.connection = links_->ReceiveFrom(inbox.peer, CollectiveChannel(inbox.channel));
    inbox.base = inbox.connection->posted();
    inbox.connection->BeginOperation();
  }
  for (Outbox& outbox : outboxes_) {
    if (outbox.messages.empty()) continue;
    C4_RETURN_IF_ERROR(links_->SendTo(outbox.peer, CollectiveChannel(outbox.channel), &outbox.connection));
    outbox.base = outbox.connection->posted();
  }
  return Ok();
}

Result PlanRun::Begin(const Plan& plan, const Work& work) {
  work_ = work;
  slice_elements_ = std::max<size_t>(1, slice_bytes_ / work.element_bytes);
  slot_bytes_ = 0;
  CopyInput(plan);
  for (Inbox& inbox : inboxes_) {
    inbox.messages.clear();
    inbox.posted = inbox.freed = inbox.done = 0;
  }
  for (Outbox& outbox : outboxes_) {
    outbox.messages.clear();
    outbox.posted = 0;
  }
  if (states_.size() < plan.steps.size()) states_.resize(plan.steps.size());
  open_.clear();
  for (size_t s = 0; s < plan.steps.size(); ++s) {
    Prepare(plan, plan.steps[s], &states_[s]);
    if (states_[s].slices != 0) open_.push_back(s);
  }
  Order(plan);
  return Connect();
}

size_t PlanRun::SliceElements(const State& state, size_t slice) const {
  return std::min(slice_elements_, state.count - slice * slice_elements_);
}

bool PlanRun::IsPreparedToSend(const State& state) const {
  return work_.prepares() && state.source_count == 0 && state.store == nullptr;
}

char* PlanRun::InSlot(Inbox* inbox, uint64_t message) {
  if (inbox->slots.size() < slots_ * slot_bytes_) inbox->slots.resize(slots_ * slot_bytes_);
  return inbox->slots.data() + message % slots_ * slot_bytes_;
}

char* PlanRun::OutSlot(Outbox* outbox, uint64_t message) {
  if (outbox->slots.size() < slots_ * slot_bytes_) outbox->slots.resize(slots_ * slot_bytes_);
  return outbox->slots.data() + message % slots_ * slot_bytes_;
}

bool PlanRun::CanMake(const State& state, size_t slice) const {
  for (size_t i = 0; i < state.source_count; ++i) {
    if (inboxes_[state.sources[i].box].arrived() <= state.sources[i].numbers[slice]) return false;
  }
  if (!IsPreparedToSend(state)) return true;
  const End& target = state.targets.front();
  return target.numbers[slice] < outboxes_[target.box].sent() + slots_;
}

// Own operand and sources in their order, the result to `to`.
void PlanRun::Reduce(State* state, size_t slice, char* to) {
  const size_t count = SliceElements(*state, slice);
  const void* own = state->operand + SliceOffset(slice);
  if (work_.prepares()) {
    if (scaled_.size() < slice_elements_ * work_.element_bytes) {
      scaled_.resize(slice_elements_ * work_.element_bytes);
    }
    work_.Prepare(scaled_.data(), own, count);
    own = scaled_.data();
  }
  operands_.clear();
  for (size_t i = 0; i < state->source_count; ++i) {
    const End& source = state->sources[i];
    operands_.push_back(InSlot(&inboxes_[source.box], source.numbers[slice]));
  }
  operands_.insert(operands_.begin() + state->step->own_place, own);
  if (operands_.size() == 2) {
    work_.reducer->combine(to, operands_[0], operands_[1], count);
  } else {
    work_.reducer->combine_many(to, operands_.data(), operands_.size(), count);
  }
  Divide(*state, slice, to);
}

void PlanRun::Divide(const State& state, size_t slice, char* result) const {
  if (work_.divide_result == nullptr || state.store == nullptr || !state.step->whole) return;
  work_.divide_result(result, result, SliceElements(state, slice), work_.divisor);
}

void PlanRun::Make(State* state, size_t slice) {
  // What came straight into its place is there; its messages are done with. What was reduced into the slot of
  // the first source keeps that one until it has been sent.
  size_t keeps = 0;
  if (state->source_count == 0) {
    MakeOfOwn(state, slice);
  } else if (state->store == nullptr) {
    const End& first = state->sources.front();
    if (!state->folds) Reduce(state, slice, InSlot(&inboxes_[first.box], first.numbers[slice]));
    keeps = 1;
  } else if (state->folds) {
    Divide(*state, slice, state->store + SliceOffset(slice));
  } else if (!state->direct) {
    Reduce(state, slice, state->store + SliceOffset(slice));
  }
  for (size_t i = keeps; i < state->source_count; ++i) {
    Free(&inboxes_[state->sources[i].box], state->sources[i].numbers[slice]);
  }
}

void PlanRun::MakeOfOwn(State* state, size_t slice) {
  const size_t count = SliceElements(*state, slice);
  const char* own = state->operand + SliceOffset(slice);
  if (IsPreparedToSend(*state)) {
    const End& target = state->targets.front();
    work_.Prepare(OutSlot(&outboxes_[target.box], target.numbers[slice]), own, count);
    return;
  }
  if (state->store == nullptr) return;
  char* to = state->store + SliceOffset(slice);
  if (work_.prepares()) {
    work_.Prepare(to, own, count);
  } else if (to != own) {
    memmove(to, own, SliceBytes(*state, slice));
  }
}

const char* PlanRun::ResultOf(State* state, size_t slice) {
  if (state->store != nullptr) return state->store + SliceOffset(slice);
  if (state->source_count != 0) {
    const End& first = state->sources.front();
    return InSlot(&inboxes_[first.box], first.numbers[slice]);
  }
  if (!IsPreparedToSend(*state)) return state->operand + SliceOffset(slice);
  const End& target = state->targets.front();
  return OutSlot(&outboxes_[target.box], target.numbers[slice]);
}

void PlanRun::Free(Inbox* inbox, uint64_t message) {
  inbox->done |= uint64_t{1} << (message - inbox->freed);
  while ((inbox->done & 1) != 0) {
    inbox->done >>= 1;
    ++inbox->freed;
  }
}

// One source after the other, own operand first: where the order matters otherwise, all have to be there.
bool PlanRun::CanFold(const State& state) const {
  if (state.operand == nullptr || work_.prepares() || state.step->own_place != 0) return false;
  for (size_t i = 0; i < state.source_count; ++i) {
    if (!inboxes_[state.sources[i].box].connection->folds()) return false;
  }
  return true;
}

// False while there is no place for what comes, or it is not its turn to be reduced.
bool PlanRun::PostReceive(Inbox* inbox) {
  const Message message = inbox->messages[inbox->posted];
  State& state = states_[message.step];
  if (!std::exchange(state.begun, true)) state.folds = CanFold(state);
  const size_t offset = SliceOffset(message.slice);
  const bool stores = state.store != nullptr && (state.direct || state.folds);
  if (inbox->posted >= inbox->freed + (stores ? kDirectAhead : slots_)) return false;
  const End& first = state.sources.front();
  const uint32_t first_number = first.numbers[message.slice];
  char* to = nullptr;
  Fold fold;
  if (!state.folds) {
    to = stores ? state.store + offset : InSlot(inbox, inbox->posted);
  } else {
    if (message.end > 0) {
      const End& before = state.sources[message.end - 1];
      if (inboxes_[before.box].arrived() <= before.numbers[message.slice]) return false;
    }
    to = stores ? state.store + offset : InSlot(&inboxes_[first.box], first_number);
    fold = {work_.reducer->combine, message.end == 0 ? state.operand + offset : to,
            static_cast<uint32_t>(work_.element_bytes)};
  }
  inbox->connection->Post(to, SliceBytes(state, message.slice), fold);
  return true;
}

void PlanRun::PostReceives(Inbox* inbox, bool* moved) {
  for (; inbox->posted < inbox->messages.size() && PostReceive(inbox); ++inbox->posted) *moved = true;
}

std::shared_ptr<SharedMessage> PlanRun::ShareSlice(State* state, const Message& message) {
  if (!std::exchange(state->sends, true)) {
    for (size_t i = 0; i < state->target_count; ++i) {
      End& target = state->targets[i];
      target.shares = links_->shelf() != nullptr && outboxes_[target.box].connection->eager();
      state->sharing += target.shares ? 1 : 0;
    }
  }
  const End& end = state->targets[message.end];
  if (state->sharing < 2 || !end.shares || SliceBytes(*state, message.slice) < kLeastShared) return nullptr;
  auto found = std::find_if(state->shared.begin(), state->shared.end(),
                            [&](const Shared& shared) { return shared.slice == message.slice; });
  if (found == state->shared.end()) {
    auto made = std::make_shared<SharedMessage>(links_->shelf(), SliceBytes(*state, message.slice),
                                                outboxes_[end.box].connection->chunk_bytes(), state->sharing);
    found = state->shared.insert(found, {message.slice, state->sharing, std::move(made)});
  }
  std::shared_ptr<SharedMessage> message_of_all = found->message;
  if (--found->to_post == 0) state->shared.erase(found);
  return message_of_all;
}

void PlanRun::PostSends(Outbox* outbox, bool* moved) {
  for (; outbox->posted < outbox->messages.size(); ++outbox->posted) {
    const Message message = outbox->messages[outbox->posted];
    State& state = states_[message.step];
    if (state.ready <= message.slice) return;
    outbox->connection->Post(ResultOf(&state, message.slice), SliceBytes(state, message.slice),
                             ShareSlice(&state, message));
    *moved = true;
  }
}

// What all targets have needs its slot no longer. True when the step is through.
bool PlanRun::TakeSent(State* state) {
  const auto is_sent = [&](size_t slice) {
    for (size_t i = 0; i < state->target_count; ++i) {
      if (outboxes_[state->targets[i].box].sent() <= state->targets[i].numbers[slice]) return false;
    }
    return true;
  };
  for (; state->sent < state->ready && is_sent(state->sent); ++state->sent) {
    if (state->store != nullptr || state->source_count == 0) continue;
    const End& first = state->sources.front();
    Free(&inboxes_[first.box], first.numbers[state->sent]);
  }
  return state->sent == state->slices;
}

Result PlanRun::Advance(bool* moved, bool* done) {
  size_t left = 0;
  for (const size_t s : open_) {
    State& state = states_[s];
    for (; state.ready < state.slices && CanMake(state, state.ready); ++state.ready) {
      Make(&state, state.ready);
      *moved = true;
    }
    if (!TakeSent(&state)) open_[left++] = s;
  }
  open_.resize(left);
  for (Inbox& inbox : inboxes_) PostReceives(&inbox, moved);
  for (Outbox& outbox : outboxes_) PostSends(&outbox, moved);
  *done = open_.empty();
  return Ok();
}

}  // namespace c4::host
