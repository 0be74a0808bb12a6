// Segments for tests, laid out as a library would (wire/segment.h), but with every byte in the test's hand.
// Values are in memory; ToFile puts them into a file.
#pragma once

#include <algorithm>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include "wire/segment.h"

namespace c4::test {

struct SegmentShape {
  uint32_t communicators = 4;
  uint32_t queue_pairs = 4;
  uint32_t rings = 2;
  uint32_t ring_capacity = 8;
};

class SegmentBuilder {
 public:
  explicit SegmentBuilder(const SegmentShape& shape = {}) {
    const uint64_t ring_stride =
        sizeof(wire::RingHeader) + uint64_t{shape.ring_capacity} * sizeof(wire::Record);
    wire::SegmentHeader h{};
    h.header.magic = wire::kSegmentMagic;
    h.header.major = wire::kSegmentMajor;
    h.header.minor = wire::kSegmentMinor;
    h.header.endian = wire::kEndianMark;
    h.header.header_bytes = sizeof h;
    h.header.record_bytes = sizeof(wire::Record);
    h.header.writer.pid = 4711;
    h.header.writer.start_time_ticks = 99;
    memset(h.header.writer.boot_id, 0xab, sizeof h.header.writer.boot_id);
    h.clock_kind = wire::kClockMonotonic;
    h.ticks_per_second = 1'000'000'000;
    h.communicators = {sizeof h, shape.communicators, sizeof(wire::CommunicatorSlot)};
    h.queue_pairs = {End(h.communicators), shape.queue_pairs, sizeof(wire::QueuePairSlot)};
    h.rings = {End(h.queue_pairs), shape.rings, static_cast<uint32_t>(ring_stride)};
    h.ring_capacity = shape.ring_capacity;
    h.rings_used = shape.rings;
    h.rank_label = 2;
    h.local_rank_label = 0;
    h.world_label = 4;
    h.header.total_bytes = End(h.rings);
    strcpy(h.host, "node7");
    strcpy(h.job, "job-1");
    strcpy(h.program, "train.py");
    bytes_.assign(h.header.total_bytes, 0);
    memcpy(bytes_.data(), &h, sizeof h);
  }

  std::vector<char>& bytes() { return bytes_; }
  wire::SegmentHeader& header() { return At<wire::SegmentHeader>(0); }
  wire::CommunicatorSlot& communicator(uint32_t i) {
    header().communicators_used = std::max(header().communicators_used, i + 1);
    return At<wire::CommunicatorSlot>(header().communicators.offset +
                                      uint64_t{i} * header().communicators.stride_bytes);
  }
  wire::QueuePairSlot& queue_pair(uint32_t i) {
    header().queue_pairs_used = std::max(header().queue_pairs_used, i + 1);
    return At<wire::QueuePairSlot>(header().queue_pairs.offset +
                                   uint64_t{i} * header().queue_pairs.stride_bytes);
  }
  wire::RingHeader& ring(uint32_t i) {
    return At<wire::RingHeader>(header().rings.offset + uint64_t{i} * header().rings.stride_bytes);
  }
  wire::Record& record(uint32_t ring_index, uint64_t number) {
    return At<wire::Record>(header().rings.offset + uint64_t{ring_index} * header().rings.stride_bytes +
                            sizeof(wire::RingHeader) +
                            number % header().ring_capacity * sizeof(wire::Record));
  }

  // A ready communicator of 4 ranks.
  wire::CommunicatorSlot& AddCommunicator(uint32_t i, uint64_t id, int32_t rank) {
    wire::CommunicatorSlot& slot = communicator(i);
    slot.phase = wire::kPhaseReady;
    slot.generation = 1;
    slot.communicator_id = id;
    slot.rank = rank;
    slot.rank_count = 4;
    return slot;
  }

  // An operation that ran from `started` to `finished`.
  void PushOperation(uint32_t ring_index, uint32_t slot, uint64_t started, uint64_t finished,
                     uint64_t count = 100, wire::Function function = wire::kAllReduce) {
    wire::RingHeader& head = ring(ring_index);
    wire::Record next{};
    next.type = wire::kRecordOperation;
    next.slot = slot;
    next.generation = 1;
    next.operation.sequence = head.head;
    next.operation.started_ticks = started;
    next.operation.finished_ticks = finished;
    next.operation.info.count = count;
    next.operation.info.function = function;
    record(ring_index, head.head) = next;
    ++head.head;
  }

  void PushMark(uint32_t ring_index, wire::MarkKind kind, uint64_t began, uint64_t ended,
                int32_t micro_batch) {
    wire::RingHeader& head = ring(ring_index);
    wire::Record next{};
    next.type = wire::kRecordMark;
    next.mark.began_ticks = began;
    next.mark.ended_ticks = ended;
    next.mark.step = -1;
    next.mark.micro_batch = micro_batch;
    next.mark.chunk = -1;
    next.mark.kind = kind;
    record(ring_index, head.head) = next;
    ++head.head;
  }

  std::string ToFile(const std::string& path) const {
    std::ofstream(path, std::ios::binary | std::ios::trunc)
        .write(bytes_.data(), static_cast<std::streamsize>(bytes_.size()));
    return path;
  }

 private:
  static uint64_t End(const wire::TableRef& table) {
    return (table.offset + uint64_t{table.count} * table.stride_bytes + 63) / 64 * 64;
  }
  template <typename T>
  T& At(uint64_t offset) {
    return *reinterpret_cast<T*>(bytes_.data() + offset);
  }

  std::vector<char> bytes_;
};

}  // namespace c4::test
