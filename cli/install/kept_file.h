// What `c4 install` writes down of a file or symbolic link so that it can say later whether it is still the
// same, and the copying that keeps it so. Blocking; any thread. Errors name the file and what to do.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "cli/base/status.h"

namespace c4::cli {

struct KeptFile {
  bool is_link = false;
  std::string link_target;  // as the link has it
  std::string sha256;       // of the bytes, through the link; empty: the link leads nowhere
  uint64_t size_bytes = 0;
  unsigned mode = 0;        // permission bits
  int64_t modified_ns = 0;  // of the file itself, since 1970

  // The same bytes; or the same link, wherever that leads by now, but somewhere.
  bool IsSameAs(const KeptFile& other) const;
};

// nullopt: there is nothing of that name.
StatusOr<std::optional<KeptFile>> LookAtFile(const std::string& path);

// The bytes of `from` in the new file `to` (an old one is replaced), on the disk when this returns. Rights,
// owner (where this user may give it) and time are those of `like`. No file is left after an error.
Status CopyFile(const std::string& from, const std::string& to, const std::string& like);

// The link `link` under the name `to`, with its time.
Status CopyLink(const KeptFile& link, const std::string& to);

// Makes names that were created, renamed or removed in `folder` outlive a crash of the machine, where the
// file system can do that.
void FlushFolder(const std::string& folder);

}  // namespace c4::cli
