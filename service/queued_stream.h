// A gRPC server's stream whose messages come from another thread, such as a state thread. They are queued
// and written in order. The sender holds the queue, which may outlive the stream for a moment.
//
// Reactor: grpc::ServerWriteReactor<grpc::ByteBuffer>, or a ServerBidiReactor of these. Derived objects are
// made with new and delete themselves. Any thread pushes and ends. A stream that has ended or is full drops
// the message and says so.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <grpcpp/grpcpp.h>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "service/bounded_parse.h"
#include "service/state_thread.h"

namespace c4::service {

template <typename Reactor>
class QueuedStream : public Reactor {
 public:
  enum class Pushed { kTaken, kFull, kGone };

  class Queue {
   public:
    // At most `most` messages of `most_bytes` together wait to be read.
    Pushed Push(const google::protobuf::Message& message, size_t most, size_t most_bytes) {
      const std::lock_guard lock(mutex_);
      if (stream_ == nullptr || stream_->ending_.has_value()) return Pushed::kGone;
      const size_t bytes = message.ByteSizeLong();
      if (pending_.size() >= most || (bytes_ > 0 && bytes_ + bytes > most_bytes)) return Pushed::kFull;
      bytes_ += bytes;
      pending_.push_back(Serialized(message));
      stream_->NextLocked();
      return Pushed::kTaken;
    }
    // What is queued is dropped, and a write that is under way is waited for.
    void End(const grpc::Status& status) {
      const std::lock_guard lock(mutex_);
      if (stream_ == nullptr) return;
      if (!stream_->ending_.has_value()) stream_->ending_ = status;
      stream_->NextLocked();
    }

   private:
    friend class QueuedStream;
    std::mutex mutex_;
    QueuedStream* stream_ = nullptr;        // nullptr: it is gone
    uint64_t id_ = 0;                       // 0: not begun yet
    size_t bytes_ = 0;                      // of pending_
    std::deque<grpc::ByteBuffer> pending_;  // the first is being written while writing_
  };

  void OnWriteDone(bool ok) override {
    const std::shared_ptr<Queue> queue = queue_;  // Finish may let the stream go before the lock
    const std::lock_guard lock(queue->mutex_);
    queue->bytes_ -= queue->pending_.front().Length();
    queue->pending_.pop_front();
    writing_ = false;
    if (!ok && !ending_.has_value()) ending_ = grpc::Status::OK;
    NextLocked();
  }

  void OnCancel() override {
    const std::shared_ptr<Queue> queue = queue_;
    queue->End(grpc::Status::CANCELLED);
  }

  void OnDone() override {
    uint64_t id = 0;
    {
      const std::lock_guard lock(queue_->mutex_);
      queue_->stream_ = nullptr;
      id = queue_->id_;
    }
    if (id != 0) (void)thread_->Post([end = end_, id] { end(id); });
    delete this;
  }

 protected:
  // On `thread`: `end` is called once the stream is gone, with what the beginning gave.
  QueuedStream(StateThread* thread, std::function<void(uint64_t)> end)
      : thread_(thread), end_(std::move(end)), queue_(std::make_shared<Queue>()) {
    queue_->stream_ = this;
  }

  // To be called at the end of the constructor. `begin` runs on the state thread and gives an id that is not
  // 0; OnBegun follows. A stream that is refused, or for which the thread has no time left, ends at once.
  void Begin(const grpc::Status& refused, const grpc::Status& closing,
             std::function<uint64_t(const std::shared_ptr<Queue>&)> begin) {
    const std::shared_ptr<Queue> queue = queue_;
    if (!refused.ok()) return queue->End(refused);
    const bool posted = thread_->Post([queue, begin = std::move(begin), end = end_] {
      const uint64_t id = begin(queue);
      const std::lock_guard lock(queue->mutex_);
      queue->id_ = id;
      if (queue->stream_ == nullptr) return end(id);  // it has left in the meantime
      queue->stream_->OnBegun(id);
    });
    if (!posted) queue->End(closing);
  }

  // On the state thread; must not push or end.
  virtual void OnBegun(uint64_t /*id*/) {}

  // Calls `what` with the stream while that is there and does not end.
  template <typename Derived, typename What>
  static void WithStream(const std::shared_ptr<Queue>& queue, const What& what) {
    const std::lock_guard lock(queue->mutex_);
    if (queue->stream_ != nullptr && !queue->stream_->ending_.has_value()) {
      what(static_cast<Derived*>(queue->stream_));
    }
  }

  const std::shared_ptr<Queue>& queue() const { return queue_; }

 private:
  void NextLocked() {
    if (writing_ || finished_) return;
    if (ending_.has_value()) {
      finished_ = true;
      this->Finish(*ending_);
    } else if (!queue_->pending_.empty()) {
      writing_ = true;
      this->StartWrite(&queue_->pending_.front());
    }
  }

  StateThread* const thread_;
  const std::function<void(uint64_t)> end_;
  const std::shared_ptr<Queue> queue_;
  bool writing_ = false;
  bool finished_ = false;
  std::optional<grpc::Status> ending_;
};

}  // namespace c4::service
