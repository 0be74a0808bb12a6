// Reads the bytes of a file piece by piece, through gzip or zstd where it is packed, in a few megabytes of
// memory.
//
// A source belongs to one thread. Errors are sentences that say what to do. After an error the source is
// useless.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace c4::traces {

class ByteSource {
 public:
  virtual ~ByteSource() = default;
  // Up to `size` bytes; 0: the end. DataLoss where a packed stream breaks off or is damaged.
  virtual absl::StatusOr<size_t> Read(char* to, size_t size) = 0;
};

// `text` must outlive it.
std::unique_ptr<ByteSource> MemoryBytes(std::string_view text);

// `head`, and then what `rest` gives: for who has looked at the first bytes.
std::unique_ptr<ByteSource> WithHead(std::string head, std::unique_ptr<ByteSource> rest);

// The first bytes of `source`, up to `size`, fewer at its end; they are gone from it.
absl::StatusOr<std::string> TakeHead(ByteSource* source, size_t size);

// Unpacks what `packed` holds, told by its first bytes; hands on what is not packed.
absl::StatusOr<std::unique_ptr<ByteSource>> Unpacked(std::unique_ptr<ByteSource> packed);

// The file, unpacked. "-": standard input. NotFound and the like, with the path.
absl::StatusOr<std::unique_ptr<ByteSource>> OpenBytes(const std::string& path);

// All of it; InvalidArgument above `limit` bytes.
absl::StatusOr<std::string> ReadAll(ByteSource* source, size_t limit);

}  // namespace c4::traces
