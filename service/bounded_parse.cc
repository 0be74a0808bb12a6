#include "service/bounded_parse.h"

#include <google/protobuf/descriptor.h>
#include <grpcpp/support/slice.h>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "service/limits.h"
#include "service/text.h"

namespace c4::service {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::MessageFactory;

constexpr int kDeepest = 100;  // as the parser
// Each of these with what the allocator adds, and the room that a list keeps when it grows.
constexpr size_t kElementBytes = 24;
constexpr size_t kStringBytes = 64;
constexpr size_t kUnknownBytes = 48;
constexpr size_t kScalarBytes = 16;
constexpr int kMostTabled =
    256;  // fields with greater numbers count as unknown ones, and their content as text

// What a walk has to know of a type: telling it from its descriptor again and again would cost as much as the
// parser takes.
struct Shape {
  enum class Kind : uint8_t { kUnknown, kNumber, kText, kMessage };
  struct Field {
    Kind kind = Kind::kUnknown;
    // How a number that stands alone is written. In another form the parser keeps it as a field that it does
    // not know, which takes more.
    uint8_t form = 0;
    const Shape* inner = nullptr;
  };
  size_t empty_bytes = 0;     // of a message without content, which every one takes
  std::vector<Field> fields;  // by number
};

// The forms of fields on the wire.
constexpr uint8_t kVarint = 0;
constexpr uint8_t kEight = 1;
constexpr uint8_t kLength = 2;
constexpr uint8_t kStartGroup = 3;
constexpr uint8_t kEndGroup = 4;
constexpr uint8_t kFour = 5;

uint8_t FormOf(FieldDescriptor::Type type) {
  switch (type) {
    case FieldDescriptor::TYPE_DOUBLE:
    case FieldDescriptor::TYPE_FIXED64:
    case FieldDescriptor::TYPE_SFIXED64:
      return kEight;
    case FieldDescriptor::TYPE_FLOAT:
    case FieldDescriptor::TYPE_FIXED32:
    case FieldDescriptor::TYPE_SFIXED32:
      return kFour;
    default:
      return kVarint;
  }
}

// Stays for ever: types are few.
const Shape* ShapeOf(const Descriptor* type, std::map<const Descriptor*, Shape>* known) {
  const auto [at, is_new] = known->try_emplace(type);
  Shape& shape = at->second;
  if (!is_new) return &shape;
  shape.empty_bytes = MessageFactory::generated_factory()->GetPrototype(type)->SpaceUsedLong();
  for (int i = 0; i < type->field_count(); ++i) {
    const FieldDescriptor& field = *type->field(i);
    if (field.number() >= kMostTabled) continue;
    const auto number = static_cast<size_t>(field.number());
    if (shape.fields.size() <= number) shape.fields.resize(number + 1);
    Shape::Field entry;
    switch (field.cpp_type()) {
      case FieldDescriptor::CPPTYPE_MESSAGE:
        entry = {Shape::Kind::kMessage, 0, ShapeOf(field.message_type(), known)};
        break;
      case FieldDescriptor::CPPTYPE_STRING:
        entry.kind = Shape::Kind::kText;
        break;
      default:
        entry.kind = Shape::Kind::kNumber;
        entry.form = FormOf(field.type());
    }
    shape.fields[number] = entry;
  }
  return &shape;
}

const Shape& ShapeOf(const Descriptor* type) {
  static std::mutex mutex;
  static std::map<const Descriptor*, Shape> known;
  const std::scoped_lock lock(mutex);
  return *ShapeOf(type, &known);
}

// Over the bytes of the wire, which are of nobody known. Places in them are passed on and given back, never
// stored: bytes may alias whatever is stored.
class Walk {
 public:
  explicit Walk(size_t most) : most_(most) {}

  // From `at` up to `end`, or to the end of the group that began with field `group`. `shape`: nullptr within
  // what is not known. nullptr: this is no message, or it is too much.
  const uint8_t* Fields(const uint8_t* at, const uint8_t* end, const Shape* shape, int depth,
                        uint64_t group = 0) {
    if (depth > kDeepest) return nullptr;
    const size_t known = shape == nullptr ? 0 : shape->fields.size();
    size_t bytes = 0;
    while (at < end) {
      uint64_t tag = 0;
      if ((at = Number(at, end, &tag)) == nullptr) return nullptr;
      tag &= UINT32_MAX;  // what is above the parser passes over
      const uint64_t number = tag >> 3;
      if (number == 0) return nullptr;
      const Shape::Field field = number < known ? shape->fields[number] : Shape::Field();
      uint64_t value = 0;
      switch (tag & 7) {
        case kVarint:
          bytes += Single(field, kVarint);
          at = Number(at, end, &value);
          break;
        case kEight:
          bytes += Single(field, kEight);
          at = end - at < 8 ? nullptr : at + 8;
          break;
        case kFour:
          bytes += Single(field, kFour);
          at = end - at < 4 ? nullptr : at + 4;
          break;
        case kLength:
          if ((at = Number(at, end, &value)) == nullptr || value > static_cast<uint64_t>(end - at))
            return nullptr;
          if (field.kind == Shape::Kind::kMessage) {
            if (!Take(field.inner->empty_bytes + kElementBytes)) return nullptr;
            if (Fields(at, at + value, field.inner, depth + 1) == nullptr) return nullptr;
          } else if (field.kind == Shape::Kind::kNumber) {
            bytes += kStringBytes + value * kScalarBytes;  // packed: a byte of the wire is one at the most
          } else {
            bytes += kStringBytes + value;
          }
          at += value;
          break;
        case kStartGroup:
          // A set of unknown fields of its own.
          if (!Take(2 * kUnknownBytes)) return nullptr;
          at = Fields(at, end, nullptr, depth + 1, number);
          break;
        case kEndGroup:
          return number == group && Take(bytes) ? at : nullptr;
        default:
          return nullptr;
      }
      if (at == nullptr) return nullptr;
    }
    return group == 0 && Take(bytes) ? at : nullptr;
  }

  size_t bytes() const { return bytes_; }
  bool too_much() const { return bytes_ > most_; }

 private:
  static size_t Single(Shape::Field field, uint8_t form) {
    return field.kind == Shape::Kind::kNumber && field.form == form ? kScalarBytes : kUnknownBytes;
  }

  static const uint8_t* Number(const uint8_t* at, const uint8_t* end, uint64_t* value) {
    if (at < end && *at < 0x80) {
      *value = *at;
      return at + 1;
    }
    uint64_t number = 0;
    for (unsigned shift = 0; shift < 70 && at < end; shift += 7) {
      const uint8_t byte = *at++;
      if (shift < 64) number |= static_cast<uint64_t>(byte & 0x7f) << shift;
      if (byte >= 0x80) continue;
      *value = number;
      return at;
    }
    return nullptr;
  }

  bool Take(size_t bytes) {
    bytes_ += bytes;
    return bytes_ <= most_;
  }

  const size_t most_;
  size_t bytes_ = 0;
};

absl::Status TooLarge(const google::protobuf::Message& message, size_t most) {
  return absl::ResourceExhaustedError(Concat("a ", std::string(message.GetDescriptor()->name()), " may take ",
                                             most >> 20,
                                             " MiB of memory; this one would take "
                                             "more: send less at a time"));
}

}  // namespace

absl::StatusOr<size_t> ParsedBytes(const grpc::Slice& wire, const google::protobuf::Message& prototype,
                                   size_t most) {
  const Shape& shape = ShapeOf(prototype.GetDescriptor());
  Walk walk(most);
  const bool whole = walk.Fields(wire.begin(), wire.end(), &shape, 0) != nullptr;
  if (walk.too_much()) return TooLarge(prototype, most);
  if (!whole) {
    return absl::InvalidArgumentError(Concat("this is no ", std::string(prototype.GetDescriptor()->name())));
  }
  return walk.bytes() + shape.empty_bytes;
}

void ParseShare::Free() {
  if (budget_ != nullptr) budget_->taken_ -= bytes_;
  budget_ = nullptr;
  bytes_ = 0;
}

absl::Status ParseBudget::Parse(const grpc::ByteBuffer& wire, size_t most, google::protobuf::Message* message,
                                ParseShare* share) {
  grpc::Slice whole;
  if (!wire.TrySingleSlice(&whole).ok() && !wire.DumpToSingleSlice(&whole).ok()) {
    return absl::InvalidArgumentError("the message cannot be read");
  }
  const absl::StatusOr<size_t> bytes = ParsedBytes(whole, *message, most);
  if (!bytes.ok()) return bytes.status();
  share->Free();
  if (taken_.fetch_add(*bytes) + *bytes > most_) {
    taken_ -= *bytes;
    return absl::ResourceExhaustedError(
        "others' messages take all the memory that there is for them: send it again in a second");
  }
  share->budget_ = this;
  share->bytes_ = *bytes;
  if (!message->ParseFromArray(whole.begin(), static_cast<int>(whole.size()))) {
    return absl::InvalidArgumentError(Concat("this is no ", std::string(message->GetDescriptor()->name())));
  }
  return absl::OkStatus();
}

ParseBudget& PeersMessages() {
  static ParseBudget budget(limits::kParsedBytes);
  return budget;
}

grpc::ByteBuffer Serialized(const google::protobuf::Message& message) {
  const grpc::Slice bytes(message.SerializeAsString());
  return {&bytes, 1};
}

}  // namespace c4::service
