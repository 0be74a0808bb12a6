// Messages with tags from one rank to another: what ncclSend and ncclRecv, which know no tags and match in
// the order of their calls, are made into. One mailbox a pair of ranks and direction, with a communicator of
// the two of them, made at the first message, and a thread that moves one message after the other: a header
// says tag and size of what follows. The receiver puts aside what nobody has asked for yet, as long as
// somebody asks for something. A letter that waits for any of several ranks is in the mailboxes of all of
// them; the one that has a message for it claims it, and the others drop it.
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

  struct Letter {
    int tag;
    at::Tensor tensor;  // in one piece
    WorkPtr work;
    std::shared_ptr<std::atomic<bool>> claimed;  // true: somebody moves it or has ended it
    bool shared;                                 // it is in other mailboxes as well
  };

  Mailbox(Address address, c10::intrusive_ptr<c10d::Store> store, std::chrono::milliseconds timeout);

  // One message. Not empty: the mailbox has failed, for that reason, and does nothing with it.
  std::string Post(Letter letter);
  // Ends all that is under way and all that comes, for this reason.
  void Abort(const std::string& reason);
  // Ends the thread; in order where nothing is under way.
  void Stop();

 private:
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
  void Listen(bool listens);
  // REQUIRES: mutex_. Claims the first letter of this tag that nobody else has.
  bool TakeMatching(int64_t tag, Letter* letter);
  void Deliver(const Letter& letter, const at::Tensor& bytes);
  void DropClaimed();  // REQUIRES: mutex_
  // Ends what is for this mailbox alone, and what is in others as well where `shared`.
  void Fail(const std::string& reason, bool shared);
  bool AwaitLetter();  // false: there is none, and none will come

  const Address address_;
  const c10::intrusive_ptr<c10d::Store> store_;
  const std::chrono::milliseconds timeout_;
  std::atomic<bool> cancelled_{false};
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Letter> letters_;
  std::shared_ptr<Channel> channel_;
  bool runs_ = false;
  bool listens_ = false;  // the thread waits for the other end, for whatever it may send
  bool stopped_ = false;
  std::string failure_;
  std::deque<std::pair<int64_t, at::Tensor>> unexpected_;  // by tag: what no letter waited for
};

}  // namespace c4_torch
