// The nodes of a Chakra execution trace (protobuf, as ASTRA-sim reads them: NAME.RANK.et) as events of a
// profile, for traces whose nodes say when they ran: a node with its time is a complete event, its category
// is the type by the schema's name (COMP_NODE), its attributes are the arguments; comm_type stands by name
// (ALL_REDUCE), "id" is the node's.
//
// The format: messages behind their length as a varint, GlobalMetadata first, then Nodes. Read as a stream;
// memory is that of one message. One thread; the source must outlive it.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "traces/byte_source.h"
#include "traces/kineto_events.h"

namespace c4::traces {

// Whether a file of that name is one; packed or not.
bool IsChakra(std::string_view file);

class ChakraEvents final : public ProfileEvents {
 public:
  ChakraEvents(ByteSource* source, const std::set<std::string>& args)
      : source_(source), args_(args), buffer_(kPiece) {}

  // InvalidArgument also at the end of a trace in which no node has a start.
  absl::StatusOr<bool> Next(KinetoEvent* event) override;
  const KinetoHeader& header() const override { return header_; }

 private:
  static constexpr size_t kPiece = 256 * 1024;
  static constexpr uint64_t kLongestMessage = 16 << 20;

  absl::Status Wrong(const std::string& what) const;
  bool Fill();
  // False: the file is over.
  absl::StatusOr<bool> ReadMessage();
  absl::Status Node(KinetoEvent* event);
  bool Attribute(std::string_view message, KinetoEvent* event);

  ByteSource* source_;
  const std::set<std::string>& args_;
  KinetoHeader header_;
  std::vector<char> buffer_;
  size_t at_ = 0;
  size_t end_ = 0;
  uint64_t passed_ = 0;
  absl::Status status_;  // of the source
  std::string message_;
  uint64_t messages_ = 0;
  bool any_start_ = false;
};

}  // namespace c4::traces
