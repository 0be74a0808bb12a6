#include "ccl/engine/host/stream.h"

#include <chrono>
#include <map>

#include "ccl/include/c4/stream.h"

namespace c4::host {
namespace {

struct Registry {
  std::mutex mutex;
  std::map<cudaStream_t, std::shared_ptr<Stream>> streams;
  std::shared_ptr<Stream> null = std::make_shared<Stream>(0);
  uint64_t next_id = 1;
};

// Never destroyed: the user's threads may outlive main.
Registry& TheRegistry() {
  static auto* const registry = new Registry();
  return *registry;
}

}  // namespace

uint64_t Stream::TakeTicket() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return ++taken_;
}

bool Stream::WaitForTurn(uint64_t ticket, int ms) {
  std::unique_lock<std::mutex> lock(mutex_);
  return changed_.wait_for(lock, std::chrono::milliseconds(ms), [&] { return finished_ + 1 >= ticket; });
}

void Stream::Finish(uint64_t ticket, const Result& result) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!result.ok() && failure_.ok()) failure_ = result;
  early_.insert(ticket);
  while (!early_.empty() && *early_.begin() == finished_ + 1) {
    early_.erase(early_.begin());
    ++finished_;
  }
  changed_.notify_all();
}

Result Stream::Synchronize() {
  std::unique_lock<std::mutex> lock(mutex_);
  const uint64_t last = taken_;
  changed_.wait(lock, [&] { return finished_ >= last; });
  Result failure = failure_;
  failure_ = Ok();
  return failure;
}

std::shared_ptr<Stream> FindStream(cudaStream_t handle) {
  Registry& registry = TheRegistry();
  if (handle == nullptr) return registry.null;
  const std::lock_guard<std::mutex> lock(registry.mutex);
  const auto found = registry.streams.find(handle);
  return found == registry.streams.end() ? nullptr : found->second;
}

}  // namespace c4::host

using c4::host::FindStream;
using c4::host::Stream;
using c4::host::TheRegistry;

ncclResult_t c4StreamCreate(cudaStream_t* stream) {
  if (stream == nullptr) return ncclInvalidArgument;
  auto& registry = TheRegistry();
  const std::lock_guard<std::mutex> lock(registry.mutex);
  auto made = std::make_shared<Stream>(registry.next_id++);
  *stream = reinterpret_cast<cudaStream_t>(made.get());
  registry.streams.emplace(*stream, std::move(made));
  return ncclSuccess;
}

ncclResult_t c4StreamDestroy(cudaStream_t stream) {
  auto& registry = TheRegistry();
  const std::lock_guard<std::mutex> lock(registry.mutex);
  // Operations under way hold the stream; only the handle is gone.
  return registry.streams.erase(stream) == 1 ? ncclSuccess : ncclInvalidArgument;
}

ncclResult_t c4StreamSynchronize(cudaStream_t stream) {
  const std::shared_ptr<Stream> found = FindStream(stream);
  if (found == nullptr) return ncclInvalidArgument;
  return found->Synchronize().code();
}
