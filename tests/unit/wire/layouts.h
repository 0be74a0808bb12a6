// Every structure of the shared-memory and socket formats, field by field, as this build lays it out: what
// the pages in docs/formats/ and the golden files in tests/data/formats/ are compared with. A field that is
// missing here leaves a gap, which layout_test finds. Pure data; any thread.
#pragma once

#include <string>
#include <vector>

#include "ccl/bootstrap/protocol.h"
#include "ccl/ras/protocol.h"
#include "ccl/transport/frame.h"
#include "ccl/transport/hello.h"
#include "ccl/transport/shm/ring.h"
#include "wire/control.h"
#include "wire/header.h"
#include "wire/segment.h"

namespace c4::wire {

struct Field {
  std::string name;
  size_t offset = 0;
  size_t bytes = 0;
};

struct Layout {
  std::string name;
  std::string page;  // in docs/formats/
  size_t bytes = 0;
  std::vector<Field> fields;
};

#define C4_FIELD(field)                          \
  Field {                                        \
#field, offsetof(T, field), sizeof(T::field) \
  }

inline Layout HeaderLayout() {
  using T = Header;
  return {"Header",
          "header.md",
          sizeof(T),
          {C4_FIELD(magic), C4_FIELD(major), C4_FIELD(minor), C4_FIELD(endian), C4_FIELD(header_bytes),
           C4_FIELD(record_bytes), C4_FIELD(total_bytes), C4_FIELD(writer)}};
}

inline Layout ProcessIdentityLayout() {
  using T = ProcessIdentity;
  return {"ProcessIdentity",
          "header.md",
          sizeof(T),
          {C4_FIELD(boot_id), C4_FIELD(start_time_ticks), C4_FIELD(pid), C4_FIELD(reserved)}};
}

inline Layout SegmentHeaderLayout() {
  using T = SegmentHeader;
  return {"SegmentHeader",
          "segment.md",
          sizeof(T),
          {C4_FIELD(header),
           C4_FIELD(clock_kind),
           C4_FIELD(level),
           C4_FIELD(ticks_per_second),
           C4_FIELD(base_ticks),
           C4_FIELD(base_monotonic_ns),
           C4_FIELD(pid_namespace),
           C4_FIELD(ended),
           C4_FIELD(job_source),
           C4_FIELD(reserved1),
           C4_FIELD(communicators),
           C4_FIELD(queue_pairs),
           C4_FIELD(rings),
           C4_FIELD(ring_capacity),
           C4_FIELD(communicators_used),
           C4_FIELD(queue_pairs_used),
           C4_FIELD(rings_used),
           C4_FIELD(communicators_refused),
           C4_FIELD(queue_pairs_refused),
           C4_FIELD(rings_refused),
           C4_FIELD(rank_label),
           C4_FIELD(local_rank_label),
           C4_FIELD(world_label),
           C4_FIELD(incarnation),
           C4_FIELD(worker),
           C4_FIELD(host),
           C4_FIELD(job),
           C4_FIELD(program)}};
}

inline Layout WorkerPlaceLayout() {
  using T = WorkerPlace;
  return {"WorkerPlace",
          "segment.md",
          sizeof(T),
          {C4_FIELD(declared), C4_FIELD(dp_rank), C4_FIELD(stage), C4_FIELD(tp_rank), C4_FIELD(cp_rank),
           C4_FIELD(dp_size), C4_FIELD(pp_size), C4_FIELD(tp_size), C4_FIELD(cp_size), C4_FIELD(vpp_size),
           C4_FIELD(layers), C4_FIELD(reserved)}};
}

inline Layout TableRefLayout() {
  using T = TableRef;
  return {"TableRef", "segment.md", sizeof(T), {C4_FIELD(offset), C4_FIELD(count), C4_FIELD(stride_bytes)}};
}

inline Layout CommunicatorSlotLayout() {
  using T = CommunicatorSlot;
  return {"CommunicatorSlot",
          "segment.md",
          sizeof(T),
          {C4_FIELD(phase),
           C4_FIELD(generation),
           C4_FIELD(communicator_id),
           C4_FIELD(parent_id),
           C4_FIELD(rank),
           C4_FIELD(rank_count),
           C4_FIELD(created_ticks),
           C4_FIELD(ready_ticks),
           C4_FIELD(engine),
           C4_FIELD(reserved0),
           C4_FIELD(called),
           C4_FIELD(enqueued),
           C4_FIELD(last_called),
           C4_FIELD(started),
           C4_FIELD(finished),
           C4_FIELD(last_started),
           C4_FIELD(name),
           C4_FIELD(seen),
           C4_FIELD(kernel_error_ns),
           C4_FIELD(gave_up_ticks),
           C4_FIELD(gave_up_result),
           C4_FIELD(blamed),
           C4_FIELD(reserved3),
           C4_FIELD(p2p_called),
           C4_FIELD(p2p_enqueued),
           C4_FIELD(last_p2p_called),
           C4_FIELD(p2p_started),
           C4_FIELD(p2p_finished),
           C4_FIELD(last_p2p_started)}};
}

inline Layout CounterLayout() {
  using T = Counter;
  return {"Counter", "segment.md", sizeof(T), {C4_FIELD(count), C4_FIELD(ticks), C4_FIELD(stream)}};
}

inline Layout OperationInfoLayout() {
  using T = OperationInfo;
  return {"OperationInfo",
          "segment.md",
          sizeof(T),
          {C4_FIELD(count), C4_FIELD(root), C4_FIELD(function), C4_FIELD(data_type), C4_FIELD(reduction),
           C4_FIELD(algorithm)}};
}

inline Layout QueuePairSlotLayout() {
  using T = QueuePairSlot;
  return {"QueuePairSlot",
          "segment.md",
          sizeof(T),
          {C4_FIELD(phase),
           C4_FIELD(generation),
           C4_FIELD(communicator_slot),
           C4_FIELD(direction),
           C4_FIELD(peer),
           C4_FIELD(channel),
           C4_FIELD(index),
           C4_FIELD(queue_pair_number),
           C4_FIELD(transport),
           C4_FIELD(reserved0),
           C4_FIELD(communicator_generation),
           C4_FIELD(created_ticks),
           C4_FIELD(error),
           C4_FIELD(reserved0b),
           C4_FIELD(local),
           C4_FIELD(remote),
           C4_FIELD(peer_number),
           C4_FIELD(reserved1),
           C4_FIELD(posted_messages),
           C4_FIELD(posted_bytes),
           C4_FIELD(completed_messages),
           C4_FIELD(completed_bytes),
           C4_FIELD(moved_bytes),
           C4_FIELD(last_post_ticks),
           C4_FIELD(last_progress_ticks),
           C4_FIELD(last_heard_ticks),
           C4_FIELD(latency_sum_ticks),
           C4_FIELD(latency_max_ticks),
           C4_FIELD(wait_sum_ticks),
           C4_FIELD(wait_max_ticks),
           C4_FIELD(fences),
           C4_FIELD(path_state),
           C4_FIELD(reserved3),
           C4_FIELD(latency_histogram),
           C4_FIELD(wanted_messages),
           C4_FIELD(granted_messages),
           C4_FIELD(done_messages),
           C4_FIELD(wanted_bytes),
           C4_FIELD(done_bytes),
           C4_FIELD(last_wanted_ticks),
           C4_FIELD(last_done_ticks),
           C4_FIELD(reserved6),
           C4_FIELD(first_waits),
           C4_FIELD(first_wait_sum_ticks),
           C4_FIELD(first_wait_max_ticks),
           C4_FIELD(gpu_wait_sum_ticks),
           C4_FIELD(gpu_wait_max_ticks),
           C4_FIELD(credit_wait_sum_ticks),
           C4_FIELD(credit_wait_max_ticks),
           C4_FIELD(reserved7)}};
}

inline Layout EndpointLayout() {
  using T = Endpoint;
  return {"Endpoint", "segment.md", sizeof(T), {C4_FIELD(address), C4_FIELD(port), C4_FIELD(reserved)}};
}

inline Layout RingHeaderLayout() {
  using T = RingHeader;
  return {"RingHeader",
          "segment.md",
          sizeof(T),
          {C4_FIELD(head), C4_FIELD(thread_id), C4_FIELD(lease_count), C4_FIELD(reserved)}};
}

inline Layout RecordLayout() {
  using T = Record;
  return {"Record",
          "segment.md",
          sizeof(T),
          {C4_FIELD(type), C4_FIELD(flags), C4_FIELD(slot), C4_FIELD(generation), C4_FIELD(reserved),
           C4_FIELD(bytes)}};
}

inline Layout OperationRecordLayout() {
  using T = OperationRecord;
  return {"OperationRecord",
          "segment.md",
          sizeof(T),
          {C4_FIELD(sequence), C4_FIELD(called_ticks), C4_FIELD(started_ticks), C4_FIELD(finished_ticks),
           C4_FIELD(info)}};
}

inline Layout MessageRecordLayout() {
  using T = MessageRecord;
  return {"MessageRecord",
          "segment.md",
          sizeof(T),
          {C4_FIELD(sequence), C4_FIELD(posted_ticks), C4_FIELD(completed_ticks), C4_FIELD(bytes),
           C4_FIELD(reserved)}};
}

inline Layout MarkRecordLayout() {
  using T = MarkRecord;
  return {"MarkRecord",
          "segment.md",
          sizeof(T),
          {C4_FIELD(began_ticks), C4_FIELD(ended_ticks), C4_FIELD(step), C4_FIELD(micro_batch),
           C4_FIELD(chunk), C4_FIELD(kind), C4_FIELD(reserved)}};
}

inline Layout ControlFrameLayout() {
  using T = ControlFrame;
  return {"ControlFrame", "control.md", sizeof(T), {C4_FIELD(header), C4_FIELD(type), C4_FIELD(reserved)}};
}

inline Layout ControlHelloLayout() {
  using T = ControlHello;
  return {"ControlHello",
          "control.md",
          sizeof(T),
          {C4_FIELD(segment_name), C4_FIELD(library_version), C4_FIELD(reserved)}};
}

inline Layout ControlWelcomeLayout() {
  using T = ControlWelcome;
  return {"ControlWelcome", "control.md", sizeof(T), {C4_FIELD(agent_version), C4_FIELD(level)}};
}

inline Layout ControlLevelLayout() {
  using T = ControlLevel;
  return {"ControlLevel", "control.md", sizeof(T), {C4_FIELD(level), C4_FIELD(reserved)}};
}

inline Layout ControlPathAskLayout() {
  using T = ControlPathAsk;
  return {"ControlPathAsk",
          "control.md",
          sizeof(T),
          {C4_FIELD(connection), C4_FIELD(communicator_id), C4_FIELD(from_rank), C4_FIELD(to_rank),
           C4_FIELD(channel), C4_FIELD(queue_pairs), C4_FIELD(planes), C4_FIELD(protocol), C4_FIELD(job),
           C4_FIELD(ends)}};
}

inline Layout ControlPathAnswerLayout() {
  using T = ControlPathAnswer;
  return {
      "ControlPathAnswer",
      "control.md",
      sizeof(T),
      {C4_FIELD(connection), C4_FIELD(epoch), C4_FIELD(queue_pairs), C4_FIELD(reserved), C4_FIELD(paths)}};
}

inline Layout ControlPathUseLayout() {
  using T = ControlPathUse;
  return {
      "ControlPathUse",
      "control.md",
      sizeof(T),
      {C4_FIELD(connection), C4_FIELD(epoch), C4_FIELD(queue_pairs), C4_FIELD(reserved), C4_FIELD(paths)}};
}

inline Layout ControlHoldArmLayout() {
  using T = ControlHoldArm;
  return {"ControlHoldArm",
          "control.md",
          sizeof(T),
          {C4_FIELD(hold), C4_FIELD(communicator_id), C4_FIELD(calls), C4_FIELD(count), C4_FIELD(arrive_ms),
           C4_FIELD(hold_ms), C4_FIELD(reserved)}};
}

inline Layout ControlHoldStateLayout() {
  using T = ControlHoldState;
  return {"ControlHoldState",
          "control.md",
          sizeof(T),
          {C4_FIELD(hold), C4_FIELD(calls), C4_FIELD(counted), C4_FIELD(held_ns), C4_FIELD(phase),
           C4_FIELD(reason), C4_FIELD(threads), C4_FIELD(reserved)}};
}

inline Layout ControlHoldEndLayout() {
  using T = ControlHoldEnd;
  return {"ControlHoldEnd", "control.md", sizeof(T), {C4_FIELD(hold)}};
}

inline Layout ControlPlanLayout() {
  using T = ControlPlan;
  return {"ControlPlan",
          "control.md",
          sizeof(T),
          {C4_FIELD(plan), C4_FIELD(strategy), C4_FIELD(micro_batches), C4_FIELD(first_micro_batch),
           C4_FIELD(group_micro_batches), C4_FIELD(now), C4_FIELD(next), C4_FIELD(send_to),
           C4_FIELD(receive_from)}};
}

inline Layout ControlPlanAnswerLayout() {
  using T = ControlPlanAnswer;
  return {"ControlPlanAnswer",
          "control.md",
          sizeof(T),
          {C4_FIELD(plan), C4_FIELD(state), C4_FIELD(reason), C4_FIELD(cost_ns)}};
}

inline Layout ControlPlanStepLayout() {
  using T = ControlPlanStep;
  return {"ControlPlanStep",
          "control.md",
          sizeof(T),
          {C4_FIELD(step), C4_FIELD(micro_batch_ns), C4_FIELD(micro_batches), C4_FIELD(group_micro_batches),
           C4_FIELD(worker)}};
}

inline Layout UniqueIdLayout() {
  using T = bootstrap::UniqueId;
  return {"UniqueId",
          "bootstrap.md",
          sizeof(T),
          {C4_FIELD(magic), C4_FIELD(major), C4_FIELD(minor), C4_FIELD(flags), C4_FIELD(root),
           C4_FIELD(nonce), C4_FIELD(check), C4_FIELD(secret), C4_FIELD(reserved)}};
}

inline Layout RankInfoLayout() {
  using T = bootstrap::RankInfo;
  return {
      "RankInfo", "bootstrap.md", sizeof(T), {C4_FIELD(listener), C4_FIELD(process), C4_FIELD(host_hash)}};
}

inline Layout SharedKnobsLayout() {
  using T = bootstrap::SharedKnobs;
  return {"SharedKnobs",
          "bootstrap.md",
          sizeof(T),
          {C4_FIELD(slice_bytes), C4_FIELD(channels), C4_FIELD(algorithm)}};
}

inline Layout JoinLayout() {
  using T = bootstrap::Join;
  return {"Join",
          "bootstrap.md",
          sizeof(T),
          {C4_FIELD(header), C4_FIELD(nonce), C4_FIELD(rank), C4_FIELD(rank_count), C4_FIELD(info),
           C4_FIELD(knobs), C4_FIELD(mac), C4_FIELD(reserved)}};
}

inline Layout TableLayout() {
  using T = bootstrap::Table;
  return {"Table",
          "bootstrap.md",
          sizeof(T),
          {C4_FIELD(header), C4_FIELD(code), C4_FIELD(rank_count), C4_FIELD(session), C4_FIELD(reserved),
           C4_FIELD(text)}};
}

inline Layout MeetLayout() {
  using T = bootstrap::Meet;
  return {"Meet",
          "bootstrap.md",
          sizeof(T),
          {C4_FIELD(header), C4_FIELD(nonce), C4_FIELD(communicator_id), C4_FIELD(meeting), C4_FIELD(rank),
           C4_FIELD(record_bytes), C4_FIELD(mac), C4_FIELD(reserved)}};
}

inline Layout MetLayout() {
  using T = bootstrap::Met;
  return {"Met",
          "bootstrap.md",
          sizeof(T),
          {C4_FIELD(header), C4_FIELD(code), C4_FIELD(rank_count), C4_FIELD(record_bytes), C4_FIELD(reserved),
           C4_FIELD(text)}};
}

inline Layout RasAskLayout() {
  using T = ras::Ask;
  return {"Ask",
          "ras.md",
          sizeof(T),
          {C4_FIELD(header), C4_FIELD(communicator_id), C4_FIELD(query), C4_FIELD(from_rank),
           C4_FIELD(to_rank), C4_FIELD(mac), C4_FIELD(reserved)}};
}

inline Layout RasTellLayout() {
  using T = ras::Tell;
  return {"Tell",
          "ras.md",
          sizeof(T),
          {C4_FIELD(header), C4_FIELD(communicator_id), C4_FIELD(query), C4_FIELD(from_rank),
           C4_FIELD(to_rank), C4_FIELD(total), C4_FIELD(records), C4_FIELD(mac), C4_FIELD(reserved)}};
}

inline Layout RasStateLayout() {
  using T = ras::State;
  return {"State",
          "ras.md",
          sizeof(T),
          {C4_FIELD(communicator_id), C4_FIELD(rank), C4_FIELD(rank_count), C4_FIELD(init_state),
           C4_FIELD(async_error), C4_FIELD(flags), C4_FIELD(reserved), C4_FIELD(calls)}};
}

inline Layout TcpHelloLayout() {
  using T = Hello;
  return {"Hello",
          "tcp.md",
          sizeof(T),
          {C4_FIELD(header), C4_FIELD(communicator_id), C4_FIELD(from_rank), C4_FIELD(to_rank),
           C4_FIELD(channel), C4_FIELD(queue_pair_index), C4_FIELD(queue_pair_count), C4_FIELD(transport),
           C4_FIELD(queue_pair_number), C4_FIELD(chunk_bytes), C4_FIELD(epoch), C4_FIELD(mac)}};
}

inline Layout TcpFrameLayout() {
  using T = Frame;
  return {"Frame",
          "tcp.md",
          sizeof(T),
          {C4_FIELD(mark), C4_FIELD(kind), C4_FIELD(reserved), C4_FIELD(chunk), C4_FIELD(bytes),
           C4_FIELD(sequence), C4_FIELD(message), C4_FIELD(message_bytes)}};
}

inline Layout ShmOfferLayout() {
  using T = shm::Offer;
  return {"Offer",
          "shm.md",
          sizeof(T),
          {C4_FIELD(cookie), C4_FIELD(bytes), C4_FIELD(descriptor), C4_FIELD(reserved)}};
}

inline Layout ShmRegionLayout() {
  using T = shm::Region;
  return {"Region",
          "shm.md",
          sizeof(T),
          {C4_FIELD(header), C4_FIELD(cookie), C4_FIELD(cookie_address), C4_FIELD(pool_offset),
           C4_FIELD(slots), C4_FIELD(pieces), C4_FIELD(piece_bytes), C4_FIELD(reserved1), C4_FIELD(closed),
           C4_FIELD(reserved2), C4_FIELD(wanted_consumed), C4_FIELD(wanted_granted), C4_FIELD(reserved3),
           C4_FIELD(consumed), C4_FIELD(granted), C4_FIELD(heartbeat), C4_FIELD(copy), C4_FIELD(reserved4)}};
}

inline Layout ShmSlotLayout() {
  using T = shm::Slot;
  return {"Slot",
          "shm.md",
          sizeof(T),
          {C4_FIELD(sequence), C4_FIELD(message), C4_FIELD(message_bytes), C4_FIELD(address), C4_FIELD(chunk),
           C4_FIELD(chunk_bytes), C4_FIELD(offset), C4_FIELD(bytes), C4_FIELD(kind), C4_FIELD(piece)}};
}

inline Layout ShmBellPageLayout() {
  using T = shm::BellPage;
  return {"BellPage",
          "shm.md",
          sizeof(T),
          {C4_FIELD(header), C4_FIELD(sleeping), C4_FIELD(pipe), C4_FIELD(shelf_offset),
           C4_FIELD(shelf_pieces), C4_FIELD(shelf_piece_bytes), C4_FIELD(reserved)}};
}

#undef C4_FIELD

inline std::vector<Layout> AllLayouts() {
  return {HeaderLayout(),
          ProcessIdentityLayout(),
          SegmentHeaderLayout(),
          WorkerPlaceLayout(),
          TableRefLayout(),
          CommunicatorSlotLayout(),
          CounterLayout(),
          OperationInfoLayout(),
          QueuePairSlotLayout(),
          EndpointLayout(),
          RingHeaderLayout(),
          RecordLayout(),
          OperationRecordLayout(),
          MessageRecordLayout(),
          MarkRecordLayout(),
          ControlFrameLayout(),
          ControlHelloLayout(),
          ControlWelcomeLayout(),
          ControlLevelLayout(),
          ControlPathAskLayout(),
          ControlPathAnswerLayout(),
          ControlPathUseLayout(),
          ControlHoldArmLayout(),
          ControlHoldStateLayout(),
          ControlHoldEndLayout(),
          ControlPlanLayout(),
          ControlPlanAnswerLayout(),
          ControlPlanStepLayout(),
          UniqueIdLayout(),
          RankInfoLayout(),
          SharedKnobsLayout(),
          JoinLayout(),
          TableLayout(),
          MeetLayout(),
          MetLayout(),
          RasAskLayout(),
          RasTellLayout(),
          RasStateLayout(),
          TcpHelloLayout(),
          TcpFrameLayout(),
          ShmOfferLayout(),
          ShmRegionLayout(),
          ShmSlotLayout(),
          ShmBellPageLayout()};
}

}  // namespace c4::wire
