// The calls of ccl/include/c4/stream.h, and the handles behind them.
#include <atomic>
#include <map>
#include <memory>
#include <mutex>

#include "ccl/base/caught.h"
#include "ccl/base/fork.h"
#include "ccl/engine/host/stream.h"
#include "ccl/include/c4/stream.h"

namespace c4::host {
namespace {

// What was enqueued on a stream when the event was recorded last; nothing before that.
struct Event {
  std::shared_ptr<Stream> stream;
  uint64_t ticket = 0;
};

struct Registry {
  std::mutex mutex;
  std::map<cudaStream_t, std::shared_ptr<Stream>> streams;
  std::map<c4Event_t, std::unique_ptr<Event>> events;
  std::shared_ptr<Stream> null = std::make_shared<Stream>(0);
  uint64_t next_id = 1;
  std::atomic<uint64_t> null_forbidden_in{0};  // a process, as Forks() + 1: not in its children
};

// Never destroyed: the user's threads may outlive main.
Registry& TheRegistry() {
  static auto* const registry = new Registry();
  return *registry;
}

// A copy, so that nothing is held while somebody waits for it.
bool FindEvent(c4Event_t handle, Event* event) {
  Registry& registry = TheRegistry();
  const std::lock_guard<std::mutex> lock(registry.mutex);
  const auto found = registry.events.find(handle);
  if (found == registry.events.end()) return false;
  *event = *found->second;
  return true;
}

}  // namespace

std::shared_ptr<Stream> FindStream(cudaStream_t handle) {
  Registry& registry = TheRegistry();
  if (handle == nullptr) return registry.null;
  const std::lock_guard<std::mutex> lock(registry.mutex);
  const auto found = registry.streams.find(handle);
  return found == registry.streams.end() ? nullptr : found->second;
}

void ForbidNullStream() {
  TheRegistry().null_forbidden_in = Forks() + 1;
}

bool IsNullStreamForbidden() {
  return TheRegistry().null_forbidden_in == Forks() + 1;
}

}  // namespace c4::host

using c4::host::Event;
using c4::host::FindEvent;
using c4::host::FindStream;
using c4::host::Stream;
using c4::host::TheRegistry;

namespace {

// Every call ends here, whatever it throws.
template <typename Body>
ncclResult_t Code(const Body& body) {
  ncclResult_t code = ncclSuccess;
  const c4::Result caught = c4::Caught([&] {
    code = body();
    return c4::Ok();
  });
  return caught.ok() ? code : caught.code();
}

}  // namespace

ncclResult_t c4StreamCreate(cudaStream_t* stream) {
  if (stream == nullptr) return ncclInvalidArgument;
  return Code([&] {
    auto& registry = TheRegistry();
    const std::lock_guard<std::mutex> lock(registry.mutex);
    auto made = std::make_shared<Stream>(registry.next_id++);
    const auto handle = reinterpret_cast<cudaStream_t>(made.get());
    registry.streams.emplace(handle, std::move(made));
    *stream = handle;
    return ncclSuccess;
  });
}

ncclResult_t c4StreamDestroy(cudaStream_t stream) {
  return Code([&] {
    auto& registry = TheRegistry();
    const std::lock_guard<std::mutex> lock(registry.mutex);
    const auto found = registry.streams.find(stream);
    if (found == registry.streams.end()) return ncclInvalidArgument;
    // Operations under way hold the stream; only the handle is gone.
    found->second->Destroy();
    registry.streams.erase(found);
    return ncclSuccess;
  });
}

ncclResult_t c4StreamSynchronize(cudaStream_t stream) {
  return Code([&] {
    const std::shared_ptr<Stream> found = FindStream(stream);
    return found == nullptr ? ncclInvalidArgument : found->Synchronize().code();
  });
}

ncclResult_t c4StreamQuery(cudaStream_t stream) {
  return Code([&] {
    const std::shared_ptr<Stream> found = FindStream(stream);
    if (found == nullptr) return ncclInvalidArgument;
    return found->IsOver(found->LastTicket()) ? ncclSuccess : ncclInProgress;
  });
}

ncclResult_t c4StreamWaitEvent(cudaStream_t stream, c4Event_t event) {
  return Code([&] {
    const std::shared_ptr<Stream> found = FindStream(stream);
    Event recorded;
    if (found == nullptr || !FindEvent(event, &recorded)) return ncclInvalidArgument;
    if (recorded.stream == nullptr) return ncclSuccess;
    return found->WaitFor(recorded.stream, recorded.ticket).code();
  });
}

ncclResult_t c4EventCreate(c4Event_t* event) {
  if (event == nullptr) return ncclInvalidArgument;
  return Code([&] {
    auto& registry = TheRegistry();
    const std::lock_guard<std::mutex> lock(registry.mutex);
    auto made = std::make_unique<Event>();
    const auto handle = reinterpret_cast<c4Event_t>(made.get());
    registry.events.emplace(handle, std::move(made));
    *event = handle;
    return ncclSuccess;
  });
}

ncclResult_t c4EventDestroy(c4Event_t event) {
  return Code([&] {
    auto& registry = TheRegistry();
    const std::lock_guard<std::mutex> lock(registry.mutex);
    return registry.events.erase(event) == 1 ? ncclSuccess : ncclInvalidArgument;
  });
}

ncclResult_t c4EventRecord(c4Event_t event, cudaStream_t stream) {
  return Code([&] {
    const std::shared_ptr<Stream> found = FindStream(stream);
    if (found == nullptr) return ncclInvalidArgument;
    const uint64_t ticket = found->LastTicket();
    auto& registry = TheRegistry();
    const std::lock_guard<std::mutex> lock(registry.mutex);
    const auto entry = registry.events.find(event);
    if (entry == registry.events.end()) return ncclInvalidArgument;
    *entry->second = {found, ticket};
    return ncclSuccess;
  });
}

ncclResult_t c4EventQuery(c4Event_t event) {
  return Code([&] {
    Event recorded;
    if (!FindEvent(event, &recorded)) return ncclInvalidArgument;
    return recorded.stream == nullptr || recorded.stream->IsOver(recorded.ticket) ? ncclSuccess
                                                                                  : ncclInProgress;
  });
}

ncclResult_t c4EventSynchronize(c4Event_t event) {
  return Code([&] {
    Event recorded;
    if (!FindEvent(event, &recorded)) return ncclInvalidArgument;
    return recorded.stream == nullptr ? ncclSuccess : recorded.stream->AwaitTicket(recorded.ticket).code();
  });
}
