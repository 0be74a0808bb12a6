// The files of a tar archive, one after the other (POSIX ustar and pax, GNU's long names): what `tar c`
// writes.
//
// Bytes pass through once; memory is that of one name. One thread; the source must outlive it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "traces/byte_source.h"

namespace c4::traces {

// `head`: the first kTarBlock bytes of a file.
bool LooksLikeTar(std::string_view head);
inline constexpr size_t kTarBlock = 512;

class TarReader {
 public:
  explicit TarReader(ByteSource* source) : source_(source) {}

  // The name of the next plain file, whatever is left of the one before; nullopt: the end. DataLoss where the
  // archive breaks off or a header is damaged.
  absl::StatusOr<std::optional<std::string>> Next();
  // The bytes of that file. The reader must outlive it, and it ends with the next Next().
  std::unique_ptr<ByteSource> Contents();

 private:
  friend class TarContents;
  absl::Status Pass(uint64_t bytes);
  absl::StatusOr<std::string> Block();

  ByteSource* source_;
  uint64_t left_ = 0;     // of the file
  uint64_t padding_ = 0;  // behind it
};

}  // namespace c4::traces
