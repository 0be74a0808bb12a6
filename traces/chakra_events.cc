#include "traces/chakra_events.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <optional>

#include "absl/strings/str_cat.h"

namespace c4::traces {
namespace {

constexpr std::array<const char*, 11> kTypes = {
    "INVALID_NODE",   "METADATA_NODE",  "MEM_LOAD_NODE", "MEM_STORE_NODE", "COMP_NODE",      "COMM_SEND_NODE",
    "COMM_RECV_NODE", "COMM_COLL_NODE", "STORAGE_NODE",  "BATCH_NODE",     "CHECKPOINT_NODE"};
constexpr std::array<const char*, 10> kCollectives = {
    "ALL_REDUCE", "REDUCE",         "ALL_GATHER",           "GATHER", "SCATTER", "BROADCAST",
    "ALL_TO_ALL", "REDUCE_SCATTER", "REDUCE_SCATTER_BLOCK", "BARRIER"};
constexpr char kCollective[] = "comm_type";
constexpr uint64_t kMost_us = uint64_t{3} * 1000 * 1000 * 1000 * 1000 * 1000;  // as of profiles

enum Wire : uint8_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

// One field after the other of a message.
struct Fields {
  std::string_view rest;
  uint64_t number = 0;
  uint8_t wire = 0;
  uint64_t value = 0;      // of a varint or a fixed number, as bits
  std::string_view bytes;  // of a text, a message or a list

  bool Varint(uint64_t* to) {
    *to = 0;
    for (unsigned shift = 0; shift < 64 && !rest.empty(); shift += 7) {
      const auto byte = static_cast<uint8_t>(rest.front());
      rest.remove_prefix(1);
      *to |= uint64_t{byte & 0x7fU} << shift;
      if ((byte & 0x80) == 0) return true;
    }
    return false;
  }

  bool Fixed(size_t size) {
    if (rest.size() < size) return false;
    value = 0;
    for (size_t i = size; i-- > 0;) value = value << 8 | static_cast<uint8_t>(rest[i]);
    rest.remove_prefix(size);
    return true;
  }

  // False: the message is over (then `rest` is empty), or damaged.
  bool Next() {
    uint64_t tag = 0;
    if (rest.empty()) return false;
    if (!Varint(&tag)) return Damaged();
    number = tag >> 3;
    wire = static_cast<uint8_t>(tag & 7);
    bool good = number > 0;
    switch (wire) {
      case kVarint:
        good = good && Varint(&value);
        break;
      case kFixed64:
        good = good && Fixed(8);
        break;
      case kFixed32:
        good = good && Fixed(4);
        break;
      case kBytes: {
        uint64_t size = 0;
        good = good && Varint(&size) && size <= rest.size();
        if (!good) break;
        bytes = rest.substr(0, size);
        rest.remove_prefix(size);
        break;
      }
      default:
        good = false;
    }
    return good || Damaged();
  }

  bool damaged = false;
  bool Damaged() {
    damaged = true;
    return false;
  }
};

int64_t ZigZag(uint64_t value) {
  return static_cast<int64_t>(value >> 1) ^ -static_cast<int64_t>(value & 1);
}

// An AttributeProto's scalar as text; nullopt: a list, or what is not known.
std::optional<std::string> Scalar(const Fields& field) {
  switch (field.number) {
    case 3:
    case 5: {
      const double value =
          field.number == 3 ? std::bit_cast<double>(field.value)
                            : static_cast<double>(std::bit_cast<float>(static_cast<uint32_t>(field.value)));
      return absl::StrCat(value);
    }
    case 7:
    case 9:
    case 23:
    case 25:
      return absl::StrCat(field.number == 23 ? int64_t{static_cast<int32_t>(field.value)}
                                             : static_cast<int64_t>(field.value));
    case 11:
    case 13:
    case 19:
    case 21:
      return absl::StrCat(field.value);
    case 15:
    case 17:
      return absl::StrCat(ZigZag(field.value));
    case 27:
      return field.value != 0 ? "true" : "false";
    case 29:
    case 31:
      if (field.wire == kBytes) return std::string(field.bytes);
      return std::nullopt;
    default:
      return std::nullopt;
  }
}

void SetTime(uint64_t micros, KinetoTime* time) {
  time->text = absl::StrCat(micros);
  if (micros < kMost_us) time->ns = static_cast<int64_t>(micros) * 1000;
}

}  // namespace

bool IsChakra(std::string_view file) {
  for (const std::string_view packed : {".gz", ".zst"}) {
    if (file.ends_with(packed)) file.remove_suffix(packed.size());
  }
  return file.ends_with(".et");
}

absl::Status ChakraEvents::Wrong(const std::string& what) const {
  return absl::InvalidArgumentError(
      absl::StrCat("message ", messages_, ", byte ", passed_ + at_, ": ", what));
}

bool ChakraEvents::Fill() {
  if (!status_.ok()) return false;
  passed_ += end_;
  at_ = end_ = 0;
  const absl::StatusOr<size_t> count = source_->Read(buffer_.data(), buffer_.size());
  if (!count.ok()) status_ = count.status();
  end_ = count.value_or(0);
  return end_ > 0;
}

absl::StatusOr<bool> ChakraEvents::ReadMessage() {
  uint64_t size = 0;
  for (unsigned shift = 0;; shift += 7) {
    if (at_ == end_ && !Fill()) {
      if (!status_.ok()) return status_;
      if (shift == 0) return false;
      return Wrong("the file ends within a length: is it cut off?");
    }
    const auto byte = static_cast<uint8_t>(buffer_[at_++]);
    if (shift < 63) size |= uint64_t{byte & 0x7fU} << shift;
    if ((byte & 0x80) == 0) break;
    if (shift > 63) return Wrong("a length has too many bytes: this is no Chakra execution trace");
  }
  if (size > kLongestMessage) {
    return Wrong(absl::StrCat("a message of ", size, " bytes: this is no Chakra execution trace"));
  }
  message_.clear();
  while (message_.size() < size) {
    if (at_ == end_ && !Fill()) {
      if (!status_.ok()) return status_;
      return Wrong("the file ends within a message: is it cut off?");
    }
    const size_t more = std::min(size - message_.size(), end_ - at_);
    message_.append(buffer_.data() + at_, more);
    at_ += more;
  }
  return true;
}

absl::StatusOr<bool> ChakraEvents::Next(KinetoEvent* event) {
  for (bool first = messages_ == 0;; first = false) {
    const absl::StatusOr<bool> more = ReadMessage();
    if (!more.ok()) return more.status();
    if (!*more) break;
    ++messages_;
    if (first) continue;  // metadata of the trace: nothing that is needed
    if (absl::Status node = Node(event); !node.ok()) return node;
    return true;
  }
  if (messages_ == 0) return Wrong("the file is empty");
  if (!any_start_) {
    return absl::InvalidArgumentError(
        "no node has a time (start_time_micros): this execution trace says what depends on what, not when it "
        "ran, as those that are converted from PyTorch's; give the profiler's files (Kineto) instead");
  }
  return false;
}

absl::Status ChakraEvents::Node(KinetoEvent* event) {
  event->number = messages_ - 2;  // nodes count from 0
  event->phase = "X";
  event->name.clear();
  event->category = kTypes[0];
  event->pid.clear();
  event->tid.clear();
  event->args_used = 0;
  uint64_t start_us = 0;
  uint64_t duration_us = 0;
  uint64_t id = 0;
  Fields fields{message_};
  while (fields.Next()) {
    switch (fields.number) {
      case 1:
        if (fields.wire == kVarint) id = fields.value;
        break;
      case 2:
        if (fields.wire == kBytes) event->name = fields.bytes;
        break;
      case 3:
        if (fields.wire == kVarint && fields.value < kTypes.size()) event->category = kTypes[fields.value];
        break;
      case 6:
        if (fields.wire == kVarint) start_us = fields.value;
        break;
      case 7:
        if (fields.wire == kVarint) duration_us = fields.value;
        break;
      case 10:
        if (fields.wire == kBytes && !Attribute(fields.bytes, event))
          return Wrong("an attribute is damaged: this is no Chakra execution trace");
        break;
      default:
        break;
    }
  }
  if (fields.damaged) return Wrong("a node is damaged: this is no Chakra execution trace");
  any_start_ = any_start_ || start_us > 0;
  SetTime(start_us, &event->start);
  SetTime(duration_us, &event->duration);
  if (!args_.contains("id")) return absl::OkStatus();
  if (event->args_used == event->args.size()) event->args.emplace_back();
  event->args[event->args_used++] = {"id", absl::StrCat(id)};
  return absl::OkStatus();
}

bool ChakraEvents::Attribute(std::string_view message, KinetoEvent* event) {
  std::string name;
  std::optional<std::string> value;
  Fields fields{message};
  while (fields.Next()) {
    if (fields.number == 1 && fields.wire == kBytes) {
      name = fields.bytes;
    } else if (fields.number > 2) {
      value = Scalar(fields);
      if (name == kCollective && fields.wire == kVarint && fields.value < kCollectives.size())
        value = kCollectives[fields.value];
    }
  }
  if (fields.damaged) return false;
  if (!value) return true;
  if (name == "tid" || name == "stream") event->tid = *value;
  if (!args_.contains(name) || event->Arg(name) != nullptr) return true;
  if (event->args_used == event->args.size()) event->args.emplace_back();
  event->args[event->args_used++] = {std::move(name), *std::move(value)};
  return true;
}

}  // namespace c4::traces
