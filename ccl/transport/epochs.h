// The life of a queue pair with fail-over, from one stream to the next, at each of its ends: which epoch is
// in use, which is being made, what is closed. Backends do what these machines say (docs/formats/tcp.md has
// the rules).
//
// Pure: events and times in, calls of an interface out. Each belongs to its queue pair, and to one thread.
// Closing takes time where a network writes and reads memory by itself (an RC queue pair goes to ERR and
// drains its completions first): a backend begins when it is told to, and says when it has, at once or later.
// The simulation of fail-over (tests/unit/ccl/failover_sim.h) drives these very machines.
#pragma once

#include <cstdint>

#include "ccl/transport/path.h"

namespace c4 {

// What the sender's machine asks of its backend. The next stream and the one in use are apart: at most one of
// each.
class SendStreams {
 public:
  // Begins to make the stream of that epoch, in the place of a next one that there may be. `ask_port`: from
  // the source port that was asked for; else from any.
  virtual void DialNext(uint32_t epoch, bool ask_port) = 0;
  virtual void DiscardNext() = 0;
  // The next stream is the one in use from now on.
  virtual void AdoptNext() = 0;
  // Begins to close the stream in use: nothing is sent any more. SendEpochs::CurrentClosed, in this call or
  // later, says that nothing of it reads buffers any more.
  virtual void CloseCurrent() = 0;
  // The stream in use goes: it is closed, or nothing is under way on it.
  virtual void DiscardCurrent() = 0;
  // Chunks are posted in this epoch and not acknowledged.
  virtual bool busy() const = 0;

 protected:
  ~SendStreams() = default;
};

class SendEpochs {
 public:
  enum Stage {
    kPausing,   // until it dials again
    kDialing,   // until the hello is written
    kGreeting,  // until the receiver is heard; nothing was posted in this epoch
    kLive,
    kDraining,  // takes no more: the next stream is ready
    kClosing,   // until the backend has closed its end of the stream in use
    kDead,      // until the receiver has closed the epoch
  };

  // A stream that is not connected by then is tried from another port, hence over another path. After many in
  // vain there may be no path as fast as that.
  static constexpr uint64_t kConnectNs = 100000000;
  static constexpr uint64_t kPatientConnectNs = 1000000000;
  static constexpr uint32_t kQuickDials = 16;
  // Pauses between dials: none at first, then longer and longer.
  static constexpr uint32_t kDialsWithoutPause = 4;
  static constexpr uint64_t kFirstPauseNs = 20000000;
  static constexpr uint64_t kLongestPauseNs = 1000000000;

  // Dials epoch 0 at the first Tick. `streams` outlives this, and is not called before.
  explicit SendEpochs(SendStreams* streams) : streams_(streams) {}

  // Time has passed: pauses end, what is late is dialled again. Tell of what has come before, then call this.
  void Tick(uint64_t now_ns);
  // The next stream is connected and its hello has gone out whole, so that the receiver may use it at any
  // time.
  void NextGreeted();
  // The next stream cannot be made.
  void NextLost(uint64_t now_ns);
  // The receiver was heard on the stream in use.
  void Heard();
  // The stream in use has ended, stalled, or is given up.
  void Break(uint64_t now_ns);
  // What CloseCurrent began is done.
  void CurrentClosed(uint64_t now_ns);
  // The receiver has closed the epoch in use; what was posted in it is settled.
  void Fenced(uint64_t now_ns);
  // The path has changed: a stream over it takes the place of the one in use, which is drained first. Asked
  // for while a stream is being made or drained, the change comes as soon as it can, and only the last one
  // counts.
  void Move(uint64_t now_ns);

  Stage stage() const { return stage_; }
  QpState state() const;
  // Of a lost epoch: this end is closed, so that the receiver may be asked to close the other.
  bool drained() const { return stage_ != kClosing; }
  bool next_greeted() const { return next_ == kGreeted; }
  bool has_next() const { return next_ != kNone; }

 private:
  enum Next { kNone, kDialled, kGreeted };

  void Start(uint64_t now_ns);
  void Dial(uint64_t now_ns);
  void DropNext();
  void Adopt();
  void NextLate(uint64_t now_ns);
  void Pause(uint64_t now_ns, bool refused);
  bool IsLate(uint64_t now_ns) const;

  SendStreams* const streams_;
  Stage stage_ = kPausing;
  Next next_ = kNone;
  bool closes_unused_ = false;  // what is being closed: nothing was posted in it
  bool fenced_ = false;         // while it is being closed
  uint32_t next_epoch_ = 0;
  uint64_t dialled_ns_ = 0;
  bool ask_port_ = true;     // the next dial asks for the source port
  bool move_due_ = false;    // the stream in use is not on the path that was asked for last
  uint64_t move_at_ns_ = 0;  // not before then
  uint32_t dials_ = 0;       // in vain, since a stream worked
  uint64_t dial_at_ns_ = 0;
};

// What the receiver's machine asks of its backend. The stream in use and the next one, which the sender has
// greeted on already, are apart: at most one of each.
class ReceiveStreams {
 public:
  // Begins to close the stream in use, where there is one. What has come until then is still taken in;
  // ReceiveEpochs::CurrentClosed, in this call or later, says how many chunks that makes.
  virtual void CloseCurrent() = 0;
  virtual void AdoptNext() = 0;
  virtual void DiscardNext() = 0;

 protected:
  ~ReceiveStreams() = default;
};

// What is known of an epoch that was asked about.
enum class EpochAnswer {
  kUnknown,  // that is too long ago
  kClosing,  // ask again
  kClosed,
};

// The receiver's end. It knows the epoch in use, and of the closed ones those since a chunk last arrived: a
// sender asks for the fence of an epoch that it has posted to, and epochs of which nothing came may lie
// between that one and the one in use.
class ReceiveEpochs {
 public:
  // `streams` outlives this.
  ReceiveEpochs(uint32_t epoch, ReceiveStreams* streams) : streams_(streams), epoch_(epoch) {}

  // False of an old one that was late.
  bool takes(uint32_t epoch) const;
  // The stream of that epoch has said hello: it is the next one, in the place of another. `in_use`: data of
  // the present epoch came, or are there to be read: the sender drains it before it leaves, and asks for its
  // fence. Else the next one takes its place as soon as it is closed. REQUIRES: takes.
  void Arrive(uint32_t epoch, bool in_use);
  // Whether Fence would begin to close the stream in use.
  bool closes(uint32_t epoch) const { return epoch > epoch_ || (epoch == epoch_ && !closed_); }
  // The sender asks for the fence of that epoch: the present one is over, and so are those before `epoch` of
  // which no hello came.
  EpochAnswer Fence(uint32_t epoch);
  // What CloseCurrent began is done. `received`: chunks that came in all.
  void CurrentClosed(uint64_t received);

  uint32_t epoch() const { return epoch_; }
  uint64_t closed_at() const { return closed_at_; }
  bool closing() const { return closing_; }

 private:
  void Close(uint32_t up_to);
  void Adopt();

  ReceiveStreams* const streams_;
  uint32_t epoch_;
  bool closed_ = false;  // epoch_ itself
  bool closing_ = false;
  uint32_t closing_to_ = 0;  // all up to this one
  bool any_closed_ = false;
  uint32_t closed_from_ = 0;  // from this one on all before epoch_ were closed at closed_at_
  uint64_t closed_at_ = 0;
  bool kept_ = false;
  uint32_t kept_epoch_ = 0;
};

}  // namespace c4
