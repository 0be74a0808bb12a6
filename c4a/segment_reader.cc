#include "c4a/segment_reader.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <type_traits>

namespace c4::agent {
namespace {

using Code = ReadStatus::Code;

constexpr int kAttempts = 4;
constexpr uint32_t kMaxItemBytes = 4096;  // of a slot or record of a later minor version
constexpr uint32_t kBlockSlots = 256;     // read at once

ReadStatus CutShort(uint64_t offset, uint64_t bytes, ByteSource* source) {
  return {Code::kUnreadable, "bytes " + std::to_string(offset) + " to " + std::to_string(offset + bytes) +
                                 " cannot be read; the file has " + std::to_string(source->Size())};
}

ReadStatus Refuse(const std::string& why) {
  return {Code::kRefused, why};
}

// The last byte of a text belongs to its terminator.
template <size_t kBytes>
void Terminate(char (&text)[kBytes]) {
  text[kBytes - 1] = '\0';
}

// Whether the table lies in the file behind the header, in strides that hold an item.
ReadStatus CheckTable(const char* name, const wire::TableRef& table, uint64_t item_bytes, uint64_t max_stride,
                      uint32_t limit, uint32_t used, const wire::Header& header) {
  const auto refuse = [&](const std::string& why) {
    return Refuse(std::string("table of ") + name + ": " + why);
  };
  if (table.count > limit) {
    return refuse(std::to_string(table.count) + " entries, at most " + std::to_string(limit) + " are read");
  }
  if (used > table.count) return refuse(std::to_string(used) + " used of " + std::to_string(table.count));
  if (table.count == 0) return {};
  if (table.stride_bytes < item_bytes || table.stride_bytes % 64 != 0 || table.stride_bytes > max_stride) {
    return refuse("stride of " + std::to_string(table.stride_bytes) + " bytes for entries of " +
                  std::to_string(item_bytes));
  }
  if (table.offset % 64 != 0 || table.offset < header.header_bytes || table.offset > header.total_bytes) {
    return refuse("offset " + std::to_string(table.offset));
  }
  // count < 2^32 and stride < 2^32: no overflow.
  if (uint64_t{table.count} * table.stride_bytes > header.total_bytes - table.offset) {
    return refuse("ends past the segment's " + std::to_string(header.total_bytes) + " bytes");
  }
  return {};
}

ReadStatus CheckLayout(const wire::SegmentHeader& header, const SegmentLimits& limits, uint64_t file_bytes) {
  const wire::Header& common = header.header;
  if (common.total_bytes > limits.total_bytes) {
    return Refuse("it says that it has " + std::to_string(common.total_bytes) + " bytes, at most " +
                  std::to_string(limits.total_bytes) + " are read");
  }
  if (common.total_bytes > file_bytes) {
    return {Code::kUnreadable, "the file has " + std::to_string(file_bytes) + " of the segment's " +
                                   std::to_string(common.total_bytes) + " bytes"};
  }
  if (common.record_bytes < sizeof(wire::Record) || common.record_bytes > kMaxItemBytes ||
      common.record_bytes % 64 != 0) {
    return Refuse("records of " + std::to_string(common.record_bytes) + " bytes");
  }
  const uint32_t capacity = header.ring_capacity;
  if (header.rings.count > 0 &&
      (capacity == 0 || (capacity & (capacity - 1)) != 0 || capacity > limits.ring_capacity)) {
    return Refuse("rings of " + std::to_string(capacity) + " records");
  }
  const uint64_t ring_bytes = sizeof(wire::RingHeader) + uint64_t{capacity} * common.record_bytes;
  ReadStatus status = CheckTable("communicators", header.communicators, wire::kCommunicatorSlotBytesV10,
                                 kMaxItemBytes, limits.communicators, header.communicators_used, common);
  if (status.ok()) {
    status = CheckTable("queue pairs", header.queue_pairs, wire::kQueuePairSlotBytesV10, kMaxItemBytes,
                        limits.queue_pairs, header.queue_pairs_used, common);
  }
  if (status.ok())
    status = CheckTable("rings", header.rings, ring_bytes, header.header.total_bytes, limits.rings,
                        header.rings_used, common);
  if (!status.ok()) return status;
  if (header.clock_kind != wire::kClockMonotonic && header.clock_kind != wire::kClockTsc) {
    return Refuse("clock of unknown kind " + std::to_string(header.clock_kind));
  }
  if (header.ticks_per_second == 0) return Refuse("a clock of 0 ticks per second");
  return {};
}

// Two reads in a row that agree were not torn by the writer. A slot whose counters move all the time never
// agrees; then it is enough that its owner stayed the same, since counters that move are young anyway.
//
// Reads on until two reads in a row agree; false when the bytes cannot be read. Of a slot of an earlier minor
// version `bytes` are there, the rest stays 0.
template <typename Slot>
bool Settle(ByteSource* source, uint64_t offset, size_t bytes, Slot* before, Slot* slot) {
  static_assert(std::has_unique_object_representations_v<Slot>);  // no padding: memcmp compares values
  for (int attempt = 0; attempt < kAttempts && memcmp(before, slot, sizeof *slot) != 0; ++attempt) {
    *before = *slot;
    if (!source->ReadAt(slot, bytes, offset)) return false;
  }
  return true;
}

template <typename Slot>
bool SameOwner(const Slot& a, const Slot& b) {
  return a.phase == b.phase && a.generation == b.generation;
}

void Tidy(wire::CommunicatorSlot* slot) {
  Terminate(slot->name);
}
void Tidy(wire::QueuePairSlot*) {}

template <typename Slot>
ReadStatus ReadSlots(ByteSource* source, const wire::TableRef& table, uint32_t used,
                     std::vector<IndexedSlot<Slot>>* slots, uint32_t* unsettled) {
  slots->clear();
  std::vector<char> first(size_t{std::min(used, kBlockSlots)} * table.stride_bytes);
  std::vector<char> second(first.size());
  for (uint32_t block = 0; block < used; block += kBlockSlots) {
    const uint32_t count = std::min(used - block, kBlockSlots);
    const size_t bytes = size_t{count} * table.stride_bytes;
    const uint64_t offset = table.offset + uint64_t{block} * table.stride_bytes;
    if (!source->ReadAt(first.data(), bytes, offset) || !source->ReadAt(second.data(), bytes, offset)) {
      return CutShort(offset, bytes, source);
    }
    for (uint32_t i = 0; i < count; ++i) {
      const size_t at = size_t{i} * table.stride_bytes;
      const size_t known = std::min<size_t>(sizeof(Slot), table.stride_bytes);
      Slot before{};
      Slot slot{};
      memcpy(&before, first.data() + at, known);
      memcpy(&slot, second.data() + at, known);
      if (!Settle(source, offset + at, known, &before, &slot)) return CutShort(offset + at, known, source);
      if (!SameOwner(before, slot)) {
        ++*unsettled;
      } else if (slot.phase != wire::kPhaseFree) {
        Tidy(&slot);
        slots->push_back({block + i, slot});
      }
    }
  }
  return {};
}

std::string Backwards(const char* what, uint32_t index, const char* counter, uint64_t before, uint64_t now) {
  return std::string(counter) + " of " + what + " " + std::to_string(index) + " went back from " +
         std::to_string(before) + " to " + std::to_string(now);
}

// Calls `compare` for each slot that is in both with the same owner.
template <typename Slot, typename Compare>
ReadStatus CompareSlots(const std::vector<IndexedSlot<Slot>>& before,
                        const std::vector<IndexedSlot<Slot>>& now, const Compare& compare) {
  size_t at = 0;
  for (const IndexedSlot<Slot>& entry : now) {
    while (at < before.size() && before[at].index < entry.index) ++at;
    if (at == before.size()) break;
    if (before[at].index != entry.index || before[at].slot.generation != entry.slot.generation) continue;
    if (std::string text = compare(entry.index, before[at].slot, entry.slot); !text.empty()) {
      return {Code::kSuspect, std::move(text)};
    }
  }
  return {};
}

}  // namespace

ReadStatus ReadSegmentHeader(ByteSource* source, const SegmentLimits& limits, wire::SegmentHeader* header) {
  const uint64_t file_bytes = source->Size();
  if (file_bytes < sizeof(wire::Header)) {
    return {Code::kUnreadable, "the file has " + std::to_string(file_bytes) + " bytes, less than a header"};
  }
  // A shorter one is of no use, but its first part tells whether it is of another version.
  char bytes[sizeof(wire::SegmentHeader)] = {};
  const size_t available = static_cast<size_t>(std::min<uint64_t>(file_bytes, sizeof bytes));
  if (!source->ReadAt(bytes, available, 0)) return CutShort(0, available, source);
  wire::HeaderFault fault = wire::CheckHeader(bytes, available, wire::kSegmentMagic, wire::kSegmentMajor,
                                              sizeof(wire::SegmentHeader));
  memcpy(header, bytes, sizeof *header);
  if (fault == wire::HeaderFault::kMajor) {
    return Refuse("segment format " + std::to_string(header->header.major) + "." +
                  std::to_string(header->header.minor) + ", this agent reads " +
                  std::to_string(wire::kSegmentMajor) + ".x: use an agent and a library of the same release");
  }
  if (fault != wire::HeaderFault::kOk) return Refuse(std::string("it ") + wire::HeaderFaultText(fault));
  if (available < sizeof bytes) return CutShort(available, sizeof bytes - available, source);
  Terminate(header->host);
  Terminate(header->job);
  Terminate(header->program);
  return CheckLayout(*header, limits, file_bytes);
}

ReadStatus ReadSegment(ByteSource* source, const SegmentLimits& limits, SegmentSnapshot* snapshot) {
  ReadStatus status = ReadSegmentHeader(source, limits, &snapshot->header);
  if (!status.ok()) return status;
  // The job's name may be being written: the same rule as for slots.
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    wire::SegmentHeader again{};
    status = ReadSegmentHeader(source, limits, &again);
    if (!status.ok()) return status;
    const bool same = memcmp(&again, &snapshot->header, sizeof again) == 0;
    snapshot->header = again;
    if (same) break;
  }
  snapshot->slots_unsettled = 0;
  const wire::SegmentHeader& header = snapshot->header;
  status = ReadSlots(source, header.communicators, header.communicators_used, &snapshot->communicators,
                     &snapshot->slots_unsettled);
  if (!status.ok()) return status;
  return ReadSlots(source, header.queue_pairs, header.queue_pairs_used, &snapshot->queue_pairs,
                   &snapshot->slots_unsettled);
}

ReadStatus CheckProgress(const SegmentSnapshot& before, const SegmentSnapshot& now) {
  using wire::CommunicatorSlot;
  using wire::QueuePairSlot;
  ReadStatus status = CompareSlots(
      before.communicators, now.communicators,
      [](uint32_t index, const CommunicatorSlot& a, const CommunicatorSlot& b) {
        const auto check = [&](const char* name, const wire::Counter& was, const wire::Counter& is) {
          return is.count < was.count ? Backwards("communicator", index, name, was.count, is.count)
                                      : std::string();
        };
        if (a.communicator_id != b.communicator_id || a.rank != b.rank) {
          return "communicator " + std::to_string(index) + " changed its identity within one generation";
        }
        // Not what was called: a call that is refused after it was counted is taken back.
        for (std::string text :
             {check("enqueued", a.enqueued, b.enqueued), check("started", a.started, b.started),
              check("finished", a.finished, b.finished),
              check("p2p enqueued", a.p2p_enqueued, b.p2p_enqueued),
              check("p2p started", a.p2p_started, b.p2p_started),
              check("p2p finished", a.p2p_finished, b.p2p_finished)}) {
          if (!text.empty()) return text;
        }
        return std::string();
      });
  if (!status.ok()) return status;
  return CompareSlots(
      before.queue_pairs, now.queue_pairs,
      [](uint32_t index, const QueuePairSlot& a, const QueuePairSlot& b) {
        const auto check = [&](const char* name, uint64_t was, uint64_t is) {
          return is < was ? Backwards("queue pair", index, name, was, is) : std::string();
        };
        // Not the histogram: its counts have 32 bits and begin again from 0. Nor what was posted: what a lost
        // path has not delivered is taken back. Nor the bytes that are wanted: a receive may have room for
        // more than its message brings, as most of NCCL's have, and what did not come is taken back.
        for (std::string text : {check("completed messages", a.completed_messages, b.completed_messages),
                                 check("completed bytes", a.completed_bytes, b.completed_bytes),
                                 check("moved bytes", a.moved_bytes, b.moved_bytes),
                                 check("wanted messages", a.wanted_messages, b.wanted_messages),
                                 check("granted messages", a.granted_messages, b.granted_messages),
                                 check("done messages", a.done_messages, b.done_messages),
                                 check("done bytes", a.done_bytes, b.done_bytes),
                                 check("first waits", a.first_waits, b.first_waits)}) {
          if (!text.empty()) return text;
        }
        return std::string();
      });
}

}  // namespace c4::agent
