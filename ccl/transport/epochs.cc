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

void SendEpochs::Break(uint64_t /*now_ns*/) {
  if (stage_ != kGreeting && stage_ != kLive && stage_ != kDraining) return;
  closes_unused_ = stage_ == kGreeting;
  fenced_ = false;
  stage_ = kClosing;
  streams_->CloseCurrent();
}

void SendEpochs::CurrentClosed(uint64_t now_ns) {
  if (stage_ != kClosing) return;
  if (!closes_unused_) {
    // A receiver for which the old stream has no use any more may close it by itself.
    stage_ = next_ == kGreeted && !streams_->busy() ? kDraining : kDead;
    if (fenced_) Fenced(now_ns);
    return;
  }
  // Nothing was posted in it, so that nobody has to be asked.
  DropNext();
  ++dials_;
  dial_at_ns_ = now_ns + (dials_ > kDialsWithoutPause ? kLongestPauseNs : 0);
  stage_ = kPausing;
}

void SendEpochs::Fenced(uint64_t now_ns) {
  // It was asked for before this end broke, when nothing was under way.
  if (stage_ == kClosing) {
    fenced_ = true;
    return;
  }
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
    case kClosing:
      return closes_unused_ ? QpState::kConnecting : QpState::kLost;
    case kDead:
      return QpState::kLost;
    default:
      return QpState::kConnecting;
  }
}

bool ReceiveEpochs::takes(uint32_t epoch) const {
  return epoch > epoch_ && (!kept_ || epoch > kept_epoch_) && (!closing_ || epoch > closing_to_);
}

void ReceiveEpochs::Adopt() {
  epoch_ = kept_epoch_;
  closed_ = kept_ = false;
  streams_->AdoptNext();
}

void ReceiveEpochs::Arrive(uint32_t epoch, bool in_use) {
  kept_ = true;
  kept_epoch_ = epoch;
  if (closed_) {
    Adopt();
  } else if (!in_use) {
    Close(epoch_);
  }
}

void ReceiveEpochs::Close(uint32_t up_to) {
  closing_to_ = closing_ ? std::max(closing_to_, up_to) : up_to;
  if (closing_) return;
  closing_ = true;
  streams_->CloseCurrent();
}

EpochAnswer ReceiveEpochs::Fence(uint32_t epoch) {
  if (closes(epoch)) Close(epoch);
  if (closing_ && epoch >= epoch_) return EpochAnswer::kClosing;
  return any_closed_ && epoch >= closed_from_ ? EpochAnswer::kClosed : EpochAnswer::kUnknown;
}

void ReceiveEpochs::CurrentClosed(uint64_t received) {
  if (!closing_) return;
  closing_ = false;
  if (!closed_) {
    if (!any_closed_ || received != closed_at_) closed_from_ = epoch_;
    closed_at_ = received;
    closed_ = any_closed_ = true;
  }
  epoch_ = closing_to_;
  if (!kept_) return;
  if (kept_epoch_ > epoch_) {
    Adopt();
  } else {
    kept_ = false;
    streams_->DiscardNext();
  }
}

}  // namespace c4
