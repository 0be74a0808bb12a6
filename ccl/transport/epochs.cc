#include "ccl/transport/epochs.h"

#include <algorithm>

namespace c4 {

void SendEpochs::Start(uint64_t now_ns) {
  stage_ = kDialing;
  Dial(now_ns);
}

void SendEpochs::Dial(uint64_t now_ns) {
  const bool ask_port = ask_port_;
  ask_port_ = false;  // should it have to be dialled again, another port is another path
  move_due_ = false;
  next_ = kDialled;
  dialled_ns_ = now_ns;
  streams_->DialNext(next_epoch_++, ask_port);
}

void SendEpochs::DropNext() {
  if (next_ == kNone) return;
  next_ = kNone;
  streams_->DiscardNext();
}

void SendEpochs::Adopt() {
  next_ = kNone;
  stage_ = kGreeting;
  streams_->AdoptNext();
}

void SendEpochs::Pause(uint64_t now_ns, bool refused) {
  DropNext();
  const uint32_t beyond = ++dials_ > kDialsWithoutPause ? dials_ - kDialsWithoutPause : 0;
  // One that was refused at once says that no path is faster.
  const uint64_t pause_ns = beyond == 0 && !refused ? 0 : kFirstPauseNs << std::min(beyond, 10u);
  dial_at_ns_ = now_ns + std::min(pause_ns, kLongestPauseNs);
  stage_ = kPausing;
}

// Only of one that the receiver cannot have adopted: what was greeted is waited for, or fenced.
bool SendEpochs::IsLate(uint64_t now_ns) const {
  return next_ == kDialled && now_ns - dialled_ns_ >= (dials_ < kQuickDials ? kConnectNs : kPatientConnectNs);
}

void SendEpochs::Tick(uint64_t now_ns) {
  if (IsLate(now_ns)) NextLate(now_ns);
  if (stage_ == kPausing && now_ns >= dial_at_ns_) Start(now_ns);
  // The old stream stays in use until the new one is connected.
  const bool may_move = (stage_ == kLive || stage_ == kGreeting) && next_ == kNone;
  if (may_move && move_due_ && now_ns >= move_at_ns_) {
    move_at_ns_ = now_ns + kLongestPauseNs;
    Dial(now_ns);
  }
  if (stage_ == kLive && next_ == kGreeted) stage_ = kDraining;
}

void SendEpochs::NextLate(uint64_t now_ns) {
  if (stage_ == kDialing) {
    Pause(now_ns, false);
    return;
  }
  DropNext();
  move_due_ = true;
}

void SendEpochs::NextGreeted() {
  next_ = kGreeted;
  if (stage_ == kDialing) Adopt();
  if (stage_ == kLive) stage_ = kDraining;
}

void SendEpochs::NextLost(uint64_t now_ns) {
  if (stage_ == kDialing) {
    Pause(now_ns, true);
    return;
  }
  DropNext();
  move_due_ = true;
}

void SendEpochs::Heard() {
  if (stage_ != kGreeting) return;
  dials_ = 0;
  stage_ = next_ == kGreeted ? kDraining : kLive;
}

void SendEpochs::Break(uint64_t now_ns) {
  if (stage_ == kPausing || stage_ == kDialing || stage_ == kDead) return;
  streams_->DiscardCurrent();
  if (stage_ != kGreeting) {
    // A receiver for which the old stream has no use any more may close it by itself.
    stage_ = next_ == kGreeted && !streams_->busy() ? kDraining : kDead;
    return;
  }
  // Nothing was posted in it, so that nobody has to be asked.
  DropNext();
  ++dials_;
  dial_at_ns_ = now_ns + (dials_ > kDialsWithoutPause ? kLongestPauseNs : 0);
  stage_ = kPausing;
}

void SendEpochs::Fenced(uint64_t now_ns) {
  streams_->DiscardCurrent();
  if (next_ == kGreeted) {
    Adopt();
    return;
  }
  DropNext();
  Start(now_ns);
}

void SendEpochs::Move(uint64_t now_ns) {
  ask_port_ = true;
  move_due_ = true;
  if (stage_ == kDialing || stage_ == kLive || stage_ == kGreeting) Dial(now_ns);
  // While it pauses it is dialled next; while it drains or is fenced, once the next stream is in use.
}

QpState SendEpochs::state() const {
  switch (stage_) {
    case kLive:
      return QpState::kLive;
    case kDraining:
      // The fence asks the receiver to go on with the next stream.
      return streams_->busy() ? QpState::kMoving : QpState::kLost;
    case kDead:
      return QpState::kLost;
    default:
      return QpState::kConnecting;
  }
}

void ReceiveEpochs::MarkClosed(uint64_t received) {
  if (closed_) return;
  if (!any_closed_ || received != closed_at_) closed_from_ = epoch_;
  closed_at_ = received;
  closed_ = any_closed_ = true;
}

ReceiveEpochs::Arrival ReceiveEpochs::Arrive(uint32_t epoch, bool in_use, uint64_t received) {
  if (epoch <= epoch_ || (kept_ && epoch <= kept_epoch_)) return kRefuse;
  if (!closed_ && in_use) {
    kept_ = true;
    kept_epoch_ = epoch;
    return kKeep;
  }
  MarkClosed(received);
  epoch_ = epoch;
  closed_ = kept_ = false;
  return kAdopt;
}

ReceiveEpochs::Answer ReceiveEpochs::Ask(uint32_t epoch) const {
  if (epoch > epoch_ || (epoch == epoch_ && !closed_)) return Answer::kClose;
  return any_closed_ && epoch >= closed_from_ ? Answer::kClosed : Answer::kUnknown;
}

bool ReceiveEpochs::Close(uint32_t epoch, uint64_t received) {
  MarkClosed(received);
  epoch_ = epoch;
  const bool goes_on = kept_ && kept_epoch_ > epoch;
  if (goes_on) {
    epoch_ = kept_epoch_;
    closed_ = false;
  }
  kept_ = false;
  return goes_on;
}

}  // namespace c4
