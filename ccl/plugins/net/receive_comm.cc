#include "ccl/plugins/net/receive_comm.h"

#include <algorithm>
#include <utility>

namespace c4::net {

ReceiveComm::ReceiveComm(const Identity& identity, std::shared_ptr<Gate> gate, const ConnectionKey& key)
    : Comm(identity, key.peer, key.channel, key.communicator_id, abi::kMaxRequests * kMostReceives),
      gate_(std::move(gate)),
      key_(key),
      connection_(std::make_unique<ReceiveConnection>(identity.rank, key.peer)) {
  connection_->UseTags();
}

Result ReceiveComm::Attach(Backend* backend, std::vector<Accepted> queue_pairs) {
  const std::lock_guard<std::mutex> lock(mutex_);
  backend_ = backend;
  return backend->Accept(std::move(queue_pairs), recording(), connection_.get());
}

ncclResult_t ReceiveComm::Receive(int count, const Buffer* to, const size_t* bytes, const int* tags,
                                  void** request) {
  const std::lock_guard<std::mutex> lock(mutex_);
  ++drives_;
  if (!failed_.ok()) return failed_.code();
  Request* const made = TakeRequest();
  if (made == nullptr) return Drive();
  for (int i = 0; i < count; ++i) connection_->PostAtMost(to[i], bytes[i], tags[i], &made->bytes[i]);
  made->done_at = connection_->posted();
  made->flushed_at = 0;
  made->count = count;
  *request = made;
  return Drive();
}

// One for all: what a device reads of one buffer comes behind what it wrote into any.
ncclResult_t ReceiveComm::Flush(int count, const Buffer* buffers, void** request) {
  const std::lock_guard<std::mutex> lock(mutex_);
  ++drives_;
  if (!failed_.ok()) return failed_.code();
  const Buffer* const last =
      std::find_if(buffers, buffers + count, [](const Buffer& b) { return b.kind != MemoryKind::kHost; });
  if (last == buffers + count) return ncclSuccess;
  Result begun = connection_->Flush(*last);
  if (!begun.ok()) return Failed(std::move(begun));
  if (connection_->flushed() == connection_->flushes()) return ncclSuccess;
  Request* const made = TakeRequest();
  if (made == nullptr)
    return Failed(Fail(ncclInternalError, "more flushes are under way than NCCL asks for"));
  made->done_at = 0;
  made->flushed_at = connection_->flushes();
  made->count = 0;
  *request = made;
  return ncclSuccess;
}

void ReceiveComm::TakeLate(Accepted late) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!closed_) connection_->TakeLate(std::move(late));
}

void ReceiveComm::Leave() {
  if (failed_.ok()) connection_->SayGoodbye();
  connection_.reset();
}

}  // namespace c4::net
