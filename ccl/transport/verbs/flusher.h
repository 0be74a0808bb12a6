// Flushes by a read behind the writes: what a device reads from memory passes none of what it wrote there
// before. Each device that writes for a connection gets a queue pair to itself, which reads a byte a flush.
//
// See transport/flusher.h.
#pragma once

#include <deque>
#include <memory>
#include <vector>

#include "ccl/transport/flusher.h"
#include "ccl/transport/verbs/rc.h"

namespace c4::verbs {

class ReadFlusher final : public Flusher {
 public:
  explicit ReadFlusher(const Settings& settings) : settings_(settings) {}

  // From now on that port may write into memory of a GPU.
  Result Use(const UsablePort& port);
  Result Begin(const Buffer& buffer) override;
  uint64_t begun() const override { return begun_; }
  uint64_t done() const override { return begun_ - buffers_.size(); }
  Result Progress() override;

 private:
  struct Reader {
    UsablePort port;
    std::unique_ptr<char[]> place;  // where the byte goes
    RegistrationUse registration;   // of the place
    std::unique_ptr<RcQueuePair> pair;
    // Flushes, of all that have begun.
    uint64_t posted = 0;
    uint64_t done = 0;
  };

  Result MakePair(Reader* reader) const;
  Result Post(Reader* reader);
  Result TakeCompletions(Reader* reader);

  const Settings settings_;
  std::vector<Reader> readers_;  // by device
  std::deque<Buffer> buffers_;   // of flushes that have begun and are not done, oldest first
  std::vector<RcQueuePair::Completed> completed_;
  uint64_t begun_ = 0;
};

}  // namespace c4::verbs
