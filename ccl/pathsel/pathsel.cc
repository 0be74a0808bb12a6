#include "ccl/pathsel/pathsel.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <unistd.h>
#include <utility>

#include "ccl/base/clock.h"
#include "ccl/base/fork.h"
#include "ccl/base/knobs.h"
#include "ccl/base/log.h"

namespace c4 {
namespace {

// After a wait in vain.
constexpr uint64_t kNobodyWaitsNs = 10000000000u;

wire::ControlPathAsk AskOf(const PathQuestion& question, uint64_t connection, const char* job) {
  wire::ControlPathAsk ask{};
  ask.connection = connection;
  ask.communicator_id = question.communicator_id;
  ask.from_rank = question.from_rank;
  ask.to_rank = question.to_rank;
  ask.channel = question.channel;
  ask.queue_pairs = static_cast<uint16_t>(std::min(question.queue_pairs, wire::kControlMostQueuePairs));
  ask.planes = static_cast<uint16_t>(std::min<size_t>(question.ends.size(), wire::kControlMostPlanes));
  ask.protocol = question.protocol;
  CopyText(ask.job, sizeof ask.job, job);
  for (size_t i = 0; i < ask.planes; ++i) {
    ask.ends[i] = {ToEndpoint(question.ends[i].source), ToEndpoint(question.ends[i].destination)};
    ask.ends[i].source.port = 0;
  }
  return ask;
}

}  // namespace

PathSelector* PathSelector::ForProcess() {
  static PathSelector* const started = []() -> PathSelector* {
    Monitor& monitor = Monitor::Get();
    if (KnobNumber(Knob::C4_CONTROL) == 0 || monitor.segment().file_name().empty()) return nullptr;
    auto* selector = new PathSelector(&monitor);  // lives as long as the process
    const Result result = selector->Start();
    if (!result.ok()) C4_WARN("%s", result.message().c_str());
    return result.ok() ? selector : nullptr;
  }();
  static const uint64_t forks = Forks();
  return Forks() == forks ? started : nullptr;
}

PathSelector::Connection* PathSelector::Add(const PathQuestion& question, int wake_fd, uint64_t* number) {
  *number = next_++;
  Connection& connection = connections_[*number];
  connection.ask = AskOf(question, *number, monitor_->segment().header().job);
  connection.use = {};
  connection.use.connection = *number;
  connection.wake_fd = wake_fd;
  return &connection;
}

uint64_t PathSelector::Open(const PathQuestion& question, int wake_fd, PathAdvice* advice) {
  std::unique_lock lock(mutex_);
  uint64_t number = 0;
  Connection& connection = *Add(question, wake_fd, &number);
  if (question.queue_pairs <= wire::kControlMostQueuePairs && Wait(&lock, number)) {
    *advice = *std::exchange(connection.advice, std::nullopt);
  }
  connection.waiting = false;
  return number;
}

uint64_t PathSelector::Ask(const PathQuestion& question, int wake_fd) {
  const std::lock_guard lock(mutex_);
  uint64_t number = 0;
  Connection& connection = *Add(question, wake_fd, &number);
  connection.waiting = false;
  const uint64_t now = MonotonicNs();
  const bool fits = question.queue_pairs <= wire::kControlMostQueuePairs;
  if (fits && agent_ == Agent::kThere) connection.asked = client_.Send(wire::kControlPathAsk, connection.ask);
  if (fits && now >= wait_again_ns_) {
    connection.until_ns = now + static_cast<uint64_t>(KnobNumber(Knob::C4_PATH_WAIT_MS)) * 1000000;
  }
  return number;
}

bool PathSelector::Expects(uint64_t number) {
  const std::lock_guard lock(mutex_);
  const auto found = connections_.find(number);
  if (found == connections_.end()) return false;
  Connection& connection = found->second;
  if (connection.answered || connection.until_ns == 0 || agent_ == Agent::kAlone) return false;
  if (MonotonicNs() < connection.until_ns) return true;
  connection.until_ns = 0;
  if (agent_ == Agent::kThere) WaitedInVain();
  return false;
}

bool PathSelector::Wait(std::unique_lock<std::mutex>* lock, uint64_t number) {
  const uint64_t now = MonotonicNs();
  const auto ms = static_cast<uint64_t>(KnobNumber(Knob::C4_PATH_WAIT_MS));
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(ms);
  Connection& connection = connections_.at(number);
  // The agent's thread has hardly started when the first communicator is made.
  answered_.wait_until(*lock, deadline, [&] { return agent_ != Agent::kUnknown; });
  if (agent_ != Agent::kThere) return false;
  if (!connection.asked) connection.asked = client_.Send(wire::kControlPathAsk, connection.ask);
  if (!connection.asked) return false;
  if (now < wait_again_ns_) return false;
  const bool heard =
      answered_.wait_until(*lock, deadline, [&] { return connection.answered || agent_ != Agent::kThere; });
  if (!heard) WaitedInVain();
  return connection.advice.has_value();
}

void PathSelector::WaitedInVain() {
  wait_again_ns_ = MonotonicNs() + kNobodyWaitsNs;
  if (std::exchange(warned_, true)) return;
  C4_INFO(
      "no paths were advised within %lld ms (C4_PATH_WAIT_MS): connections take the kernel's ports, and move "
      "when advice comes",
      static_cast<long long>(KnobNumber(Knob::C4_PATH_WAIT_MS)));
}

bool PathSelector::TakeCorrection(uint64_t number, PathAdvice* advice) {
  const std::lock_guard lock(mutex_);
  const auto found = connections_.find(number);
  if (found == connections_.end() || !found->second.advice) return false;
  *advice = *std::exchange(found->second.advice, std::nullopt);
  return true;
}

void PathSelector::Use(uint64_t number, uint64_t epoch, const std::vector<wire::ControlPathInUse>& paths) {
  const std::lock_guard lock(mutex_);
  const auto found = connections_.find(number);
  if (found == connections_.end()) return;
  wire::ControlPathUse& use = found->second.use;
  use.epoch = epoch;
  use.queue_pairs = static_cast<uint32_t>(std::min<size_t>(paths.size(), wire::kControlMostQueuePairs));
  std::copy_n(paths.begin(), use.queue_pairs, use.paths);
  (void)client_.Send(wire::kControlPathUse, use);  // an agent that comes later hears it then
}

void PathSelector::Close(uint64_t number) {
  const std::lock_guard lock(mutex_);
  if (connections_.erase(number) == 0) return;
  wire::ControlPathUse use{};
  use.connection = number;
  (void)client_.Send(wire::kControlPathUse, use);
}

void PathSelector::Connected() {
  {
    const std::lock_guard lock(mutex_);
    agent_ = Agent::kThere;
    for (auto& [number, connection] : connections_) {
      connection.asked = client_.Send(wire::kControlPathAsk, connection.ask);
      if (connection.use.queue_pairs > 0) (void)client_.Send(wire::kControlPathUse, connection.use);
    }
  }
  answered_.notify_all();
}

void PathSelector::Alone() {
  {
    const std::lock_guard lock(mutex_);
    agent_ = Agent::kAlone;
  }
  answered_.notify_all();
}

void PathSelector::Answered(const wire::ControlPathAnswer& answer) {
  bool waiting = false;
  {
    const std::lock_guard lock(mutex_);
    const auto found = connections_.find(answer.connection);
    if (found == connections_.end()) return;
    Connection& connection = found->second;
    waiting = connection.waiting;
    if (answer.epoch == 0) {
      // Nobody can advise: no reason to wait any longer.
      connection.answered = true;
    } else {
      // What cannot be an answer to what was asked is none.
      if (answer.epoch <= connection.epoch || answer.queue_pairs > connection.ask.queue_pairs) return;
      PathAdvice advice;
      advice.epoch = answer.epoch;
      advice.paths.assign(answer.paths, answer.paths + answer.queue_pairs);
      const bool fits =
          std::all_of(advice.paths.begin(), advice.paths.end(),
                      [&](const wire::ControlPath& path) { return path.plane < connection.ask.planes; });
      if (!fits) return;
      connection.answered = true;
      connection.epoch = answer.epoch;
      connection.advice = std::move(advice);
    }
    if (!waiting && connection.advice) {
      news_.fetch_add(1, std::memory_order_release);
      const uint64_t one = 1;
      const ssize_t ignored = write(connection.wake_fd, &one, sizeof one);
      (void)ignored;
    }
  }
  if (waiting) answered_.notify_all();
}

}  // namespace c4
