// Messages with tags from one rank to another: what ncclSend and ncclRecv, which know no tags and match in
// the order of their calls, are made into. One mailbox a pair of ranks and direction, with a communicator of
// the two of them, made at the first message, and a thread that moves one message after the other: a header
// says tag and size of what follows. The receiver puts aside what nobody has asked for yet, as long as
// somebody asks for something.
#pragma once

#include <deque>

#include <torch/csrc/distributed/c10d/Store.hpp>

#include "work.h"

namespace c4_torch {

class Mailbox : public std::enable_shared_from_this<Mailbox> {
 public:
  struct Address {
    int from;
    int to;
    bool sends;  // this end is `from`
    std::string name;
  };

  Mailbox(Address address, c10::intrusive_ptr<c10d::Store> store, std::chrono::milliseconds timeout);

  // One message; `tensor` is in one piece.
  void Post(int tag, at::Tensor tensor, WorkPtr work);
  // Ends all that is under way and all that comes, for this reason.
  void Abort(const std::string& reason);
  // Ends the thread; in order where nothing is under way.
  void Stop();

 private:
  struct Letter {
    int tag;
    at::Tensor tensor;
    WorkPtr work;
  };
  struct Header {
    int64_t tag;
    int64_t bytes;
  };

  void Run();
  void Open();
  bool Next();  // moves one message; false: stopped
  bool SendNext();
  bool ReceiveNext();
  void Move(bool sends, void* begin, size_t bytes);
  bool TakeMatching(int64_t tag, Letter* letter);
  void Deliver(const Letter& letter, const at::Tensor& bytes);
  void FailAll(const std::string& reason);

  const Address address_;
  const c10::intrusive_ptr<c10d::Store> store_;
  const std::chrono::milliseconds timeout_;
  std::atomic<bool> cancelled_{false};
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Letter> letters_;
  std::shared_ptr<Channel> channel_;
  bool runs_ = false;
  bool stopped_ = false;
  std::string failure_;
  std::deque<std::pair<int64_t, at::Tensor>> unexpected_;  // the thread's alone
};

}  // namespace c4_torch
