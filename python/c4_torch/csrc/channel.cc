#include "channel.h"

#include <algorithm>
#include <stdexcept>
#include <thread>
#include <utility>

namespace c4_torch {
namespace {

constexpr auto kFirstPause = std::chrono::microseconds(50);
constexpr auto kLongestPause = std::chrono::milliseconds(10);

}  // namespace

Event::Event() {
  if (TheLibrary().c4EventCreate(&event_) != ncclSuccess) throw std::runtime_error("c4EventCreate failed");
}

Event::~Event() {
  if (event_ != nullptr && getpid() == process_) TheLibrary().c4EventDestroy(event_);
}

ncclUniqueId NewId() {
  ncclUniqueId id;
  const ncclResult_t code = TheLibrary().c4HostUniqueId(&id);
  if (code != ncclSuccess) throw std::runtime_error(TheLibrary().Sentence(nullptr, code));
  return id;
}

Channel::Channel(const ncclUniqueId& id, int rank, int size, const std::string& name, Deadline deadline,
                 const std::atomic<bool>& cancelled) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;  // so that the deadline is ours
  config.commName = name.c_str();
  ncclResult_t code = library_.ncclCommInitRankConfig(&comm_, size, id, rank, &config);
  for (std::chrono::microseconds pause = kFirstPause; code == ncclSuccess || code == ncclInProgress;
       pause = std::min<std::chrono::microseconds>(2 * pause, kLongestPause)) {
    ncclResult_t state = ncclSuccess;
    code = library_.ncclCommGetAsyncError(comm_, &state);
    if (code == ncclSuccess) code = state;
    if (code != ncclInProgress) break;
    if (cancelled.load() || std::chrono::steady_clock::now() > deadline) {
      library_.ncclCommAbort(comm_);
      throw std::runtime_error(cancelled.load()
                                   ? "the process group was destroyed before all ranks had joined"
                                   : "not all ranks have joined in time");
    }
    std::this_thread::sleep_for(pause);
  }
  if (code == ncclSuccess) code = library_.c4StreamCreate(&stream_);
  if (code == ncclSuccess) return;
  const std::string sentence = library_.Sentence(comm_, code);
  if (comm_ != nullptr) library_.ncclCommAbort(comm_);
  throw std::runtime_error(sentence);
}

Channel::~Channel() {
  if (Inherited()) return;
  if (comm_ != nullptr) library_.ncclCommAbort(comm_);
  library_.c4StreamDestroy(stream_);
}

void Channel::CheckProcess() const {
  if (!Inherited()) return;
  throw std::runtime_error("the process group belongs to the process that this one was forked from");
}

Event Channel::Submit(const Enqueue& enqueue) {
  CheckProcess();
  Event event;
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!failure_.empty()) throw std::runtime_error(failure_);
  if (comm_ == nullptr) throw std::runtime_error("the process group was destroyed");
  const ncclResult_t code = enqueue(library_, comm_, stream_);
  if (code != ncclSuccess && code != ncclInProgress) {
    throw std::runtime_error(library_.Sentence(comm_, code));
  }
  library_.c4EventRecord(event.get(), stream_);
  return event;
}

bool Channel::IsOver(const Event& event) const {
  if (Inherited()) return false;
  return library_.c4EventQuery(event.get()) != ncclInProgress;
}

void Channel::Await(const Event& event) const {
  CheckProcess();
  library_.c4EventSynchronize(event.get());
}

std::string Channel::Failure() {
  if (Inherited()) return "the process group belongs to the process that this one was forked from";
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!failure_.empty() || comm_ == nullptr) return failure_;
  ncclResult_t state = ncclSuccess;
  const ncclResult_t code = library_.ncclCommGetAsyncError(comm_, &state);
  if (code != ncclSuccess) state = code;
  if (state != ncclSuccess && state != ncclInProgress) failure_ = library_.Sentence(comm_, state);
  return failure_;
}

void Channel::Abort(const std::string& reason) {
  ncclComm_t comm = nullptr;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (failure_.empty()) failure_ = reason;
    comm = std::exchange(comm_, nullptr);
  }
  if (comm != nullptr && !Inherited()) library_.ncclCommAbort(comm);
}

void Channel::Leave() {
  ncclComm_t comm = nullptr;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    comm = std::exchange(comm_, nullptr);
  }
  if (comm != nullptr && !Inherited()) library_.ncclCommDestroy(comm);
}

}  // namespace c4_torch
