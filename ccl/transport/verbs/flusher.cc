#include "ccl/transport/verbs/flusher.h"

#include <algorithm>

#include "ccl/base/log.h"
#include "ccl/transport/verbs/ports.h"

namespace c4::verbs {
namespace {

constexpr uint32_t kMostReads = 64;
constexpr size_t kPlaceBytes = 1;

// The queue pair, or the port below it, has failed, and not the request.
bool IsOfPort(int status) {
  return status == abi::kRetryExceeded || status == abi::kFlushed || status == abi::kLocalQpError;
}

}  // namespace

Result ReadFlusher::MakePair(Reader* reader) const {
  C4_RETURN_IF_ERROR(RcQueuePair::Create(reader->port, settings_, {kMostReads, 1, 0}, &reader->pair));
  return reader->pair->Connect(reader->pair->end());
}

Result ReadFlusher::Use(const UsablePort& port) {
  const auto same = [&](const Reader& reader) { return reader.port.device == port.device; };
  if (std::any_of(readers_.begin(), readers_.end(), same)) return Ok();
  Reader reader;
  reader.port = port;
  reader.place = std::make_unique<char[]>(kPlaceBytes);
  reader.posted = reader.done = begun_;
  C4_RETURN_IF_ERROR(
      port.device->memory().Acquire(reader.place.get(), kPlaceBytes, false, &reader.registration));
  C4_RETURN_IF_ERROR(MakePair(&reader));
  readers_.push_back(std::move(reader));
  return Ok();
}

Result ReadFlusher::Begin(const Buffer& buffer) {
  ++begun_;
  buffers_.push_back(buffer);
  return Progress();
}

Result ReadFlusher::Post(Reader* reader) {
  while (reader->posted < begun_) {
    const Buffer& buffer = buffers_[static_cast<size_t>(reader->posted - done())];
    RegistrationUse unused;
    const RegistrationUse* keys = nullptr;
    C4_RETURN_IF_ERROR(KeysOf(buffer, kPlaceBytes, reader->port.device.get(), &unused, &keys));
    RcQueuePair::Read read;
    read.to = reader->place.get();
    read.bytes = kPlaceBytes;
    read.local_key = reader->registration.local_key();
    read.remote_address = reinterpret_cast<uint64_t>(buffer.address);
    read.remote_key = keys->remote_key();
    bool posted = false;
    C4_RETURN_IF_ERROR(reader->pair->PostRead(read, &posted));
    if (!posted) return Ok();
    ++reader->posted;
  }
  return Ok();
}

Result ReadFlusher::TakeCompletions(Reader* reader) {
  do {
    C4_RETURN_IF_ERROR(reader->pair->Poll(&completed_));
    for (const RcQueuePair::Completed& completed : completed_) {
      if (completed.status == abi::kSuccess) {
        ++reader->done;
      } else if (!IsOfPort(completed.status)) {
        return Fail(ncclSystemError, "memory of the GPU cannot be flushed by %s: %s",
                    reader->port.name().c_str(), StatusText(completed.status));
      } else {
        // It failed after all its retries, behind which no write of its device's is still on the bus.
        C4_INFO("%s cannot flush memory of the GPU: %s", reader->port.name().c_str(),
                StatusText(completed.status));
        reader->done = reader->posted;
        reader->pair.reset();
        return Ok();
      }
    }
  } while (!completed_.empty());
  return Ok();
}

Result ReadFlusher::Progress() {
  uint64_t done = begun_;
  for (Reader& reader : readers_) {
    if (reader.pair == nullptr && reader.posted < begun_) {
      // Through a device that is gone nothing has come since.
      if (reader.port.device->lost() || !MakePair(&reader).ok()) {
        reader.pair.reset();
        reader.done = reader.posted = begun_;
      }
    }
    if (reader.pair != nullptr) {
      C4_RETURN_IF_ERROR(Post(&reader));
      C4_RETURN_IF_ERROR(TakeCompletions(&reader));
    }
    done = std::min(done, reader.done);
  }
  buffers_.erase(buffers_.begin(), buffers_.begin() + static_cast<std::ptrdiff_t>(done - this->done()));
  return Ok();
}

}  // namespace c4::verbs
