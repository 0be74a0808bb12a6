// One run of a plan: which slice of which step is where. Used by the executor alone, and kept between runs
// for its memory.
//
// Receives that are to be reduced land in slots of their connection, or are reduced as they come where
// connections can do that, one source after the other; a result that is only passed on is made
// in the slot of its first source, and the slot is free again when its last copy has been sent. Between two
// ranks messages go in one order, the same on both sides: step by step, or in plans that pass on what is
// stored nowhere by turns of half as many slices as there are slots, step after step in each turn. So each
// rank of a ring has slots free for what its neighbour is about to send, whatever fills the others.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "ccl/engine/host/executor.h"
#include "ccl/transport/shelf.h"

namespace c4::host {

class PlanRun {
 public:
  PlanRun(Links* links, size_t slice_bytes) : links_(links), slice_bytes_(slice_bytes) {}

  // Finds the connections; those that are not there yet begin to be made.
  Result Begin(const Plan& plan, const Work& work);
  // What can be done now.
  Result Advance(bool* moved, bool* done);

 private:
  // A message of a connection. They are numbered from 0 in this run.
  struct Message {
    uint32_t step;
    uint32_t slice;
    uint32_t end;  // which of the step's sources or targets
  };
  struct Inbox {
    int peer = 0;
    uint16_t channel = 0;
    ReceiveConnection* connection = nullptr;
    uint64_t base = 0;  // of the connection's own numbers
    std::vector<Message> messages;
    uint64_t posted = 0;
    uint64_t freed = 0;  // all messages before this one are done with
    uint64_t done = 0;   // bit i: message freed + i is
    std::vector<char> slots;

    uint64_t arrived() const { return connection->completed() - base; }
  };
  struct Outbox {
    int peer = 0;
    uint16_t channel = 0;
    SendConnection* connection = nullptr;
    uint64_t base = 0;
    std::vector<Message> messages;
    uint64_t posted = 0;
    std::vector<char> slots;  // own operands that are only sent on, where they have to be prepared

    uint64_t sent() const { return connection->completed() - base; }
  };
  // One end of a step: the connection, and the number of each slice's message on it.
  struct End {
    size_t box = 0;
    std::vector<uint32_t> numbers;
    bool shares = false;  // a target: reads what is written once for several
  };
  // What several targets of a slice get. The last one to post it forgets it.
  struct Shared {
    size_t slice;
    uint32_t to_post;
    std::shared_ptr<SharedMessage> message;
  };
  struct State {
    const Step* step = nullptr;
    const char* operand = nullptr;
    char* store = nullptr;
    size_t count = 0;  // elements
    size_t slices = 0;
    size_t ready = 0;      // slices that are made
    size_t sent = 0;       // slices that all targets have
    bool direct = false;   // what comes goes straight into the store
    bool folds = false;    // what comes is reduced on its way
    bool begun = false;    // a receive was posted: `folds` stays as it is
    bool sends = false;    // a send was posted: who shares stays as it is
    uint32_t sharing = 0;  // targets that share
    std::vector<Shared> shared;
    std::vector<End> sources;
    std::vector<End> targets;
    size_t source_count = 0;  // the rest is kept for its memory
    size_t target_count = 0;
  };

  static constexpr size_t kLeastShared = 8192;  // bytes; less goes in the slots of the rings
  static constexpr uint64_t kMostSlots = 8;     // of a connection
  static constexpr uint64_t kLeastSlots = 2;
  static constexpr uint64_t kSlotsOfAll = 32;   // of the sources of a step
  static constexpr uint64_t kDirectAhead = 64;  // receives without a slot

  size_t InboxOf(int peer, uint16_t channel);
  size_t OutboxOf(int peer, uint16_t channel);
  void Prepare(const Plan& plan, const Step& step, State* state);
  void CopyInput(const Plan& plan);
  // Numbers the messages of all steps.
  void Order(const Plan& plan);
  void NumberSlices(size_t step, size_t from, size_t to);
  Result Connect();

  size_t SliceElements(const State& state, size_t slice) const;
  size_t SliceBytes(const State& state, size_t slice) const {
    return SliceElements(state, slice) * work_.element_bytes;
  }
  size_t SliceOffset(size_t slice) const { return slice * slice_elements_ * work_.element_bytes; }
  bool IsPreparedToSend(const State& state) const;
  bool CanFold(const State& state) const;
  char* InSlot(Inbox* inbox, uint64_t message);
  char* OutSlot(Outbox* outbox, uint64_t message);

  bool CanMake(const State& state, size_t slice) const;
  void Make(State* state, size_t slice);
  void MakeOfOwn(State* state, size_t slice);
  void Reduce(State* state, size_t slice, char* to);
  void Divide(const State& state, size_t slice, char* result) const;
  // Where the slice lies, once it is made.
  const char* ResultOf(State* state, size_t slice);
  void Free(Inbox* inbox, uint64_t message);
  bool PostReceive(Inbox* inbox);
  void PostReceives(Inbox* inbox, bool* moved);
  // Nothing where it goes to that target alone.
  std::shared_ptr<SharedMessage> ShareSlice(State* state, const Message& message);
  void PostSends(Outbox* outbox, bool* moved);
  bool TakeSent(State* state);

  Links* const links_;
  const size_t slice_bytes_;
  size_t slice_elements_ = 1;
  size_t slot_bytes_ = 0;
  uint64_t slots_ = kMostSlots;  // of a connection
  Work work_;
  std::vector<State> states_;  // by step; more than the plan has, for their memory
  std::vector<size_t> open_;   // steps that are not through
  std::vector<Inbox> inboxes_;
  std::vector<Outbox> outboxes_;
  std::vector<char> input_copy_;
  std::vector<char> scaled_;  // a slice of the own operand
  std::vector<const void*> operands_;
};

}  // namespace c4::host
