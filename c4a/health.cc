#include "c4a/health.h"

namespace c4::agent {

ProcessState StateOfLetter(char letter) {
  switch (letter) {
    case 'R':
      return ProcessState::kRunning;
    case 'S':
    case 'I':
      return ProcessState::kSleeping;
    case 'D':
    case 'K':
    case 'P':
    case 'W':
      return ProcessState::kBlocked;
    case 'T':
      return ProcessState::kStopped;
    case 't':
      return ProcessState::kTraced;
    case 'Z':
      return ProcessState::kZombie;
    case 'X':
    case 'x':
      return ProcessState::kGone;
    default:
      return ProcessState::kUnknown;
  }
}

void HealthTracker::Update(const std::optional<ProcessInfo>& info, int64_t now_ns) {
  if (!info.has_value()) {
    Enter(ProcessState::kUnknown, now_ns);
    return;
  }
  const uint64_t io_bytes = info->io_bytes.value_or(health_.io_bytes);
  TakeSample({now_ns, info->cpu_ns, io_bytes});
  health_.cpu_ns = info->cpu_ns;
  health_.io_bytes = io_bytes;
  health_.wait_channel = info->wait_channel;
  // Who is blocked in the kernel waits for a disk or a file system: what an fsync writes is charged to
  // nobody.
  if (StateOfLetter(info->stat.state) == ProcessState::kBlocked) health_.io_progress_ns = now_ns;
  Enter(StateOfLetter(info->stat.state), now_ns);
}

void HealthTracker::TakeSample(const Sample& sample) {
  if (!seen_ || sample.cpu_ns != health_.cpu_ns || sample.io_bytes != health_.io_bytes)
    moved_ns_ = sample.at_ns;
  if (seen_ && sample.io_bytes != health_.io_bytes) io_moved_ns_ = sample.at_ns;
  samples_.push_back(sample);
  while (samples_.size() > 2 && sample.at_ns - samples_[1].at_ns >= kWorkWindowNs) samples_.pop_front();
  const Sample& before = samples_.front();
  const auto elapsed_ns = static_cast<double>(sample.at_ns - before.at_ns);
  const bool computes = sample.cpu_ns > before.cpu_ns &&
                        static_cast<double>(sample.cpu_ns - before.cpu_ns) >= kWorkShare * elapsed_ns;
  const bool transfers = sample.io_bytes >= before.io_bytes + kWorkIoBytes;
  if (!seen_ || computes || transfers) health_.progress_ns = moved_ns_;
  if (seen_ && transfers) health_.io_progress_ns = io_moved_ns_;
}

void HealthTracker::Gone(int64_t now_ns) {
  health_.wait_channel.clear();
  Enter(ProcessState::kGone, now_ns);
}

void HealthTracker::Exited(const ProcessExit& exit) {
  health_.exit = exit;
}

void HealthTracker::Enter(ProcessState state, int64_t now_ns) {
  if (!seen_ || state != health_.state) health_.state_since_ns = now_ns;
  if (!seen_) health_.progress_ns = now_ns;
  health_.state = state;
  seen_ = true;
}

}  // namespace c4::agent
