// Makes what has come into memory of a GPU visible there. A network device writes through the bus, and may
// say that it has before the GPU sees it.
//
// Belongs to a connection, on its thread; nothing blocks. Flushes end in the order in which they began.
#pragma once

#include <cstdint>

#include "ccl/base/result.h"
#include "ccl/transport/buffer.h"

namespace c4 {

class Flusher {
 public:
  Flusher() = default;
  Flusher(const Flusher&) = delete;
  Flusher& operator=(const Flusher&) = delete;
  virtual ~Flusher() = default;

  // Begins one for all that has come so far. `buffer`: some registered memory of that GPU.
  virtual Result Begin(const Buffer& buffer) = 0;
  virtual uint64_t begun() const = 0;
  virtual uint64_t done() const = 0;
  virtual Result Progress() = 0;
};

}  // namespace c4
