// A source of events: one kind of file, or a library, that is read again and again. Read may take as long as
// a stuck driver does: it is called on a thread that does nothing else (monitor.h). A source that this node
// does not have says so with NotFound and a sentence, which is no trouble; other errors are.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "c4a/health/event.h"

namespace c4::agent {

class HealthSource {
 public:
  HealthSource() = default;
  HealthSource(const HealthSource&) = delete;
  HealthSource& operator=(const HealthSource&) = delete;
  virtual ~HealthSource() = default;

  virtual const char* name() const = 0;  // at most 8 characters: a thread is named after it
  virtual int period() const = 0;        // of so many looks of the monitor it takes part in one
  // What happened since the last call; the first one finds out what is usual.
  virtual absl::StatusOr<std::vector<HealthEvent>> Read(int64_t now_ns) = 0;
};

}  // namespace c4::agent
