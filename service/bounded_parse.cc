#include "service/bounded_parse.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/unknown_field_set.h>
#include <google/protobuf/wire_format_lite.h>
#include <grpcpp/support/proto_buffer_reader.h>
#include <grpcpp/support/slice.h>
#include <string>
#include <unordered_map>

#include "service/limits.h"
#include "service/text.h"

namespace c4::service {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::MessageFactory;
using google::protobuf::internal::WireFormatLite;
using google::protobuf::io::CodedInputStream;

constexpr int kDeepest = 100;  // as the parser
// Each of these with what the allocator adds, and the room that a list keeps when it grows.
constexpr size_t kElementBytes = 24;
constexpr size_t kStringBytes = 64;
constexpr size_t kUnknownBytes = 48;
constexpr size_t kScalarBytes = 16;

// Of an empty message of that type, which every one takes.
size_t EmptyBytes(const Descriptor* type) {
  thread_local std::unordered_map<const Descriptor*, size_t> known;
  const auto at = known.find(type);
  if (at != known.end()) return at->second;
  const Message* const prototype = MessageFactory::generated_factory()->GetPrototype(type);
  const size_t bytes = prototype == nullptr ? 1024 : prototype->SpaceUsedLong();
  known.emplace(type, bytes);
  return bytes;
}

class Walk {
 public:
  Walk(CodedInputStream* in, size_t most) : in_(in), most_(most) {}

  // Up to the end of the bytes, or of the group that began with field `group`. `type`: nullptr within what is
  // not known.
  bool Fields(const Descriptor* type, int depth, int group = 0) {
    if (depth > kDeepest) return false;
    while (const uint32_t tag = in_->ReadTag()) {
      const int number = WireFormatLite::GetTagFieldNumber(tag);
      if (number == 0) return false;
      if (WireFormatLite::GetTagWireType(tag) == WireFormatLite::WIRETYPE_END_GROUP) return number == group;
      if (!Field(type == nullptr ? nullptr : type->FindFieldByNumber(number), tag, depth)) return false;
    }
    return group == 0 && in_->ConsumedEntireMessage();
  }

  size_t bytes() const { return bytes_; }
  bool too_much() const { return bytes_ > most_; }

 private:
  bool Field(const FieldDescriptor* field, uint32_t tag, int depth) {
    uint64_t number = 0;
    uint32_t four = 0;
    switch (WireFormatLite::GetTagWireType(tag)) {
      case WireFormatLite::WIRETYPE_VARINT:
        return in_->ReadVarint64(&number) && Take(field == nullptr ? kUnknownBytes : kScalarBytes);
      case WireFormatLite::WIRETYPE_FIXED64:
        return in_->ReadLittleEndian64(&number) && Take(field == nullptr ? kUnknownBytes : kScalarBytes);
      case WireFormatLite::WIRETYPE_FIXED32:
        return in_->ReadLittleEndian32(&four) && Take(field == nullptr ? kUnknownBytes : kScalarBytes);
      case WireFormatLite::WIRETYPE_START_GROUP:
        // A set of unknown fields of its own.
        return Take(2 * kUnknownBytes) && Fields(nullptr, depth + 1, WireFormatLite::GetTagFieldNumber(tag));
      case WireFormatLite::WIRETYPE_LENGTH_DELIMITED:
        return in_->ReadVarint32(&four) && Bytes(field, four, depth);
      default:
        return false;
    }
  }

  bool Bytes(const FieldDescriptor* field, uint32_t length, int depth) {
    if (length > static_cast<uint32_t>(INT32_MAX)) return false;
    const int size = static_cast<int>(length);
    if (field != nullptr && field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
      if (!Take(EmptyBytes(field->message_type()) + kElementBytes)) return false;
      const CodedInputStream::Limit limit = in_->PushLimit(size);
      const bool whole = Fields(field->message_type(), depth + 1) && in_->BytesUntilLimit() == 0;
      in_->PopLimit(limit);
      return whole;
    }
    const bool text = field == nullptr || field->cpp_type() == FieldDescriptor::CPPTYPE_STRING;
    // Packed numbers: a byte of the wire is one at the most.
    const size_t taken = text ? kStringBytes + length : size_t{length} * kScalarBytes;
    return Take(taken) && in_->Skip(size);
  }

  bool Take(size_t bytes) {
    bytes_ += bytes;
    return bytes_ <= most_;
  }

  CodedInputStream* const in_;
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

absl::StatusOr<size_t> ParsedBytes(const grpc::ByteBuffer& wire, const google::protobuf::Message& prototype,
                                   size_t most) {
  grpc::ByteBuffer bytes = wire;  // shares what it holds
  grpc::ProtoBufferReader reader(&bytes);
  CodedInputStream in(&reader);
  Walk walk(&in, most);
  const Descriptor* const type = prototype.GetDescriptor();
  const bool whole = reader.status().ok() && walk.Fields(type, 0);
  if (walk.too_much()) return TooLarge(prototype, most);
  if (!whole) return absl::InvalidArgumentError(Concat("this is no ", std::string(type->name())));
  return walk.bytes() + EmptyBytes(type);
}

void ParseShare::Free() {
  if (budget_ != nullptr) budget_->taken_ -= bytes_;
  budget_ = nullptr;
  bytes_ = 0;
}

absl::Status ParseBudget::Parse(const grpc::ByteBuffer& wire, size_t most, google::protobuf::Message* message,
                                ParseShare* share) {
  const absl::StatusOr<size_t> bytes = ParsedBytes(wire, *message, most);
  if (!bytes.ok()) return bytes.status();
  share->Free();
  if (taken_.fetch_add(*bytes) + *bytes > most_) {
    taken_ -= *bytes;
    return absl::ResourceExhaustedError(
        "others' messages take all the memory that there is for them: send it again in a second");
  }
  share->budget_ = this;
  share->bytes_ = *bytes;
  grpc::ByteBuffer shared = wire;
  grpc::ProtoBufferReader reader(&shared);
  if (!message->ParseFromZeroCopyStream(&reader)) {
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
