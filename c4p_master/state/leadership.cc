#include "c4p_master/state/leadership.h"

#include <algorithm>
#include <utility>

namespace c4::c4p {

Leadership::State Leadership::state(int64_t now_ns) const {
  if (lost_ || (epoch_ != 0 && now_ns >= valid_until_ns_)) return State::kLost;
  return epoch_ != 0 ? State::kLeads : State::kWaits;
}

std::optional<Leadership::Step> Leadership::Next(int64_t now_ns) {
  if (under_way_ || now_ns < next_ns_ || state(now_ns) == State::kLost) return std::nullopt;
  asked_ns_ = now_ns;
  next_ns_ = now_ns + times_.renew_ns;
  Step step;
  if (!read_first_) {
    const bool leads = epoch_ != 0;
    step.write = true;
    step.revision = seen_.revision;
    step.record = seen_.record;
    ++step.record.renewals;
    step.takes = !leads;
    if (step.takes) {
      step.record.holder = self_;
      step.record.epoch = std::max(wished_, seen_.record.epoch + 1);
    }
  }
  under_way_ = step;
  return step;
}

void Leadership::Seen(const LeaseSeen& seen, int64_t now_ns) {
  under_way_.reset();
  const bool changed = seen.revision != seen_.revision || unchanged_since_ns_ < 0;
  seen_ = seen;
  if (changed) unchanged_since_ns_ = now_ns;
  if (epoch_ != 0) {
    // A renewal of which nobody knew whether it was written.
    if (seen.record.holder != self_ || seen.record.epoch != epoch_) {
      lost_ = true;
      return;
    }
    read_first_ = false;
    next_ns_ = now_ns;
    return;
  }
  // One that was taken without our knowing: it is left to run out, for nothing was done as its leader.
  const bool free = seen.revision == 0 || now_ns - unchanged_since_ns_ >= times_.given_ns;
  read_first_ = !free;
  if (free) next_ns_ = now_ns;
}

void Leadership::Wrote(bool written, int64_t revision, int64_t) {
  const Step step = *std::exchange(under_way_, std::nullopt);
  if (!written) {
    // Somebody else has written, or this one without knowing: look.
    read_first_ = true;
    if (epoch_ != 0) next_ns_ = 0;
    return;
  }
  seen_ = {step.record, revision};
  epoch_ = step.record.epoch;
  // From before it was asked, and a third less than others wait: what is decided just now has that time to
  // reach agents.
  valid_until_ns_ = asked_ns_ + times_.given_ns * 2 / 3;
  read_first_ = false;
}

void Leadership::Failed(int64_t now_ns) {
  under_way_.reset();
  read_first_ = true;
  // A leader has no time to lose.
  next_ns_ = epoch_ != 0 ? now_ns + times_.renew_ns / 4 : now_ns + times_.renew_ns;
}

}  // namespace c4::c4p
