#include "c4a/prober.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <deque>
#include <mutex>
#include <poll.h>
#include <pthread.h>
#include <random>
#include <set>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <thread>
#include <time.h>
#include <unistd.h>
#include <unordered_map>

#include "c4a/order_bounds.h"
#include "c4a/pacing.h"
#include "c4a/probe_answer.h"
#include "c4a/probe_socket.h"

namespace c4::agent {
namespace {

using service::IpTuple;

constexpr int64_t kMsNs = 1'000'000;
constexpr int64_t kSecondNs = 1'000'000'000;
constexpr int kEvents = 64;
constexpr uint64_t kWakeMark = ~uint64_t{0};

int64_t NowNs() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * kSecondNs + now.tv_nsec;
}

struct OrderState {
  uint64_t order = 0;
  int first_ttl = 1;
  int last_ttl = 1;
  size_t left = 0;  // tuples not yet reported
};

struct Waiting {
  std::shared_ptr<OrderState> order;
  IpTuple tuple;
};

}  // namespace

// The thread and what it owns. `mutex_` guards what Submit and Cancel hand over.
class Prober::Loop {
 public:
  Loop(const ProberOptions& options, OnResult on_result);
  ~Loop();

  absl::Status Start();
  void Stop();
  absl::Status Submit(ProbeOrder order);
  void Cancel();
  ProberCounts counts() const { return {packets_.load(), answers_.load(), aliens_.load(), refused_.load()}; }

 private:
  // One tuple under way.
  struct Slot {
    Waiting what;
    ProbeSocket socket;
    ProbeResult result;
    int ttl = 0;
    int tries = 0;
    uint64_t mark = 0;
    std::array<int64_t, kMaxProbeTries> sent_ns{};
    int64_t deadline_ns = 0;  // 0: none
    uint32_t use = 0;         // tells events of this use of the slot from those of an earlier one
    bool busy = false;
    bool sending = false;  // in to_send_
  };

  // TCP that is connected, try by try.
  static bool IsConnect(const Slot& slot) {
    return slot.what.tuple.protocol == service::IpProtocol::kTcp && !slot.socket.segments();
  }

  void Run();
  void TakeSubmitted();
  void CancelAll();
  // What may be sent now is; gives the time at which there is more to do, or -1.
  int64_t Advance();
  bool StartOne();
  void BeginTtl(int index, int ttl);
  void Send(int index);
  void Handle(int index);
  void Judged(int index, const QueuedError& error);
  void Answered(int index, HopStatus status, service::IpAddress address, int tried);
  void TimeOut(int index);
  void NextTtl(int index);
  void Await(int index, int64_t deadline_ns);
  void Fail(int index, ProbeFault fault, int error);
  void Finish(int index);
  void Report(const Waiting& what, ProbeResult result);
  void Wait(int64_t until_ns);
  int64_t WaitNs(int tries);

  const ProberOptions options_;
  const OnResult on_result_;
  Pacing pacing_;
  int epoll_fd_ = -1;
  int wake_fd_ = -1;
  std::thread thread_;
  std::atomic<bool> stop_ = false;

  std::mutex mutex_;
  std::vector<ProbeOrder> submitted_;
  size_t queued_ = 0;  // tuples that are submitted and not yet under way
  bool cancel_ = false;
  OrderBounds bounds_;

  // The thread's own.
  std::vector<Slot> slots_;
  std::vector<int> free_;
  std::deque<int> to_send_;
  std::set<std::pair<int64_t, int>> deadlines_;
  std::deque<Waiting> waiting_;
  std::unordered_map<uint64_t, std::deque<Waiting>> blocked_;  // by the port that is probed from right now
  uint64_t mark_seed_ = 0;
  std::mt19937_64 random_;

  std::atomic<uint64_t> packets_ = 0, answers_ = 0, aliens_ = 0, refused_ = 0;
};

Prober::Loop::Loop(const ProberOptions& options, OnResult on_result)
    : options_(options), on_result_(std::move(on_result)), pacing_(options.per_second, options.burst) {
  std::random_device device;
  mark_seed_ = options.seed != 0 ? options.seed : static_cast<uint64_t>(device()) << 32 | device();
  random_.seed(mark_seed_);
  slots_.resize(static_cast<size_t>(std::max(1, options.max_open)));
  for (int index = static_cast<int>(slots_.size()) - 1; index >= 0; --index) free_.push_back(index);
}

Prober::Loop::~Loop() {
  Stop();
  if (epoll_fd_ >= 0) close(epoll_fd_);
  if (wake_fd_ >= 0) close(wake_fd_);
}

absl::Status Prober::Loop::Start() {
  if (options_.tries < 1 || options_.tries > kMaxProbeTries || options_.first_wait_ms < 1 ||
      options_.max_wait_ms < options_.first_wait_ms || options_.max_wait_ms > 600) {
    return absl::InvalidArgumentError("a prober tries 1 to 16 times and waits 1 to 600 ms for an answer");
  }
  epoll_fd_ = epoll_create1(EPOLL_CLOEXEC);
  wake_fd_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = kWakeMark;
  if (epoll_fd_ < 0 || wake_fd_ < 0 || epoll_ctl(epoll_fd_, EPOLL_CTL_ADD, wake_fd_, &event) != 0) {
    return absl::ErrnoToStatus(errno, "cannot start the prober");
  }
  // Signals are the program's, not this thread's.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  thread_ = std::thread([this] {
    pthread_setname_np(pthread_self(), "c4-prober");
    Run();
  });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return absl::OkStatus();
}

void Prober::Loop::Stop() {
  if (!thread_.joinable()) return;
  stop_ = true;
  eventfd_write(wake_fd_, 1);
  thread_.join();
}

absl::Status Prober::Loop::Submit(ProbeOrder order) {
  if (order.tuples.empty()) return absl::InvalidArgumentError("an order without tuples");
  if (order.first_ttl < 1 || order.last_ttl < order.first_ttl || order.last_ttl > 255) {
    return absl::InvalidArgumentError("times to live are 1 to 255, the first not above the last");
  }
  {
    const std::lock_guard lock(mutex_);
    if (absl::Status bounded = bounds_.Check(order, options_, queued_, NowNs()); !bounded.ok()) {
      ++refused_;
      return bounded;
    }
    queued_ += order.tuples.size();
    submitted_.push_back(std::move(order));
  }
  eventfd_write(wake_fd_, 1);
  return absl::OkStatus();
}

void Prober::Loop::Cancel() {
  {
    const std::lock_guard lock(mutex_);
    cancel_ = true;
  }
  eventfd_write(wake_fd_, 1);
}

void Prober::Loop::Run() {
  while (!stop_.load()) {
    TakeSubmitted();
    Wait(Advance());
  }
  slots_.clear();
}

void Prober::Loop::TakeSubmitted() {
  std::vector<ProbeOrder> submitted;
  bool cancel = false;
  {
    const std::lock_guard lock(mutex_);
    submitted.swap(submitted_);
    std::swap(cancel, cancel_);
  }
  for (ProbeOrder& order : submitted) {
    const auto state = std::make_shared<OrderState>(
        OrderState{order.order, order.first_ttl, order.last_ttl, order.tuples.size()});
    for (const IpTuple& tuple : order.tuples) waiting_.push_back({state, tuple});
  }
  if (cancel) CancelAll();
}

void Prober::Loop::CancelAll() {
  for (int index = 0; index < static_cast<int>(slots_.size()); ++index) {
    if (slots_[static_cast<size_t>(index)].busy) Fail(index, ProbeFault::kCancelled, 0);
  }
  to_send_.clear();
  // Finish has put what was blocked back in line.
  std::deque<Waiting> waiting;
  waiting.swap(waiting_);
  for (auto& [key, line] : blocked_) waiting.insert(waiting.end(), line.begin(), line.end());
  blocked_.clear();
  {
    const std::lock_guard lock(mutex_);
    queued_ -= waiting.size();
  }
  for (const Waiting& what : waiting) {
    ProbeResult result;
    result.tuple = what.tuple;
    result.fault = ProbeFault::kCancelled;
    result.error = FaultText(what.tuple, result.fault, 0);
    Report(what, std::move(result));
  }
}

bool Prober::Loop::StartOne() {
  while (!waiting_.empty() && !free_.empty()) {
    Waiting next = std::move(waiting_.front());
    waiting_.pop_front();
    const uint64_t key = PortKey(next.tuple);
    if (const auto line = blocked_.find(key); line != blocked_.end()) {
      line->second.push_back(std::move(next));
      continue;
    }
    {
      const std::lock_guard lock(mutex_);
      --queued_;
    }
    blocked_[key];
    const int index = free_.back();
    free_.pop_back();
    Slot& slot = slots_[static_cast<size_t>(index)];
    slot.what = std::move(next);
    slot.result = {};
    slot.result.tuple = slot.what.tuple;
    slot.busy = true;
    if (!CanBeProbed(slot.what.tuple)) {
      Fail(index, ProbeFault::kBadTuple, EINVAL);
      continue;
    }
    BeginTtl(index, slot.what.order->first_ttl);
    return true;
  }
  return false;
}

int64_t Prober::Loop::Advance() {
  int64_t now = NowNs();
  while (!deadlines_.empty() && deadlines_.begin()->first <= now) TimeOut(deadlines_.begin()->second);
  // Tuples that are under way come first, so that they soon make room.
  while (!to_send_.empty() || StartOne()) {
    now = NowNs();
    if (!pacing_.Take(now)) {
      const int64_t next = pacing_.NextNs();
      return deadlines_.empty() ? next : std::min(next, deadlines_.begin()->first);
    }
    const int index = to_send_.front();
    to_send_.pop_front();
    Send(index);
  }
  return deadlines_.empty() ? -1 : deadlines_.begin()->first;
}

void Prober::Loop::BeginTtl(int index, int ttl) {
  Slot& slot = slots_[static_cast<size_t>(index)];
  slot.ttl = ttl;
  slot.tries = 0;
  slot.mark = service::MixBits(mark_seed_ += 0x9e3779b97f4a7c15U);
  slot.sending = true;
  to_send_.push_back(index);
}

int64_t Prober::Loop::WaitNs(int tries) {
  int64_t wait_ms = options_.first_wait_ms;
  for (int i = 1; i < tries && wait_ms < options_.max_wait_ms; ++i) wait_ms *= 2;
  wait_ms = std::min<int64_t>(wait_ms, options_.max_wait_ms);
  std::uniform_int_distribution<int64_t> jitter(wait_ms * kMsNs / 2, wait_ms * kMsNs * 3 / 2);
  return jitter(random_);
}

void Prober::Loop::Send(int index) {
  Slot& slot = slots_[static_cast<size_t>(index)];
  slot.sending = false;
  slot.sent_ns[static_cast<size_t>(slot.tries)] = NowNs();
  const SendOutcome sent = slot.socket.Send(slot.what.tuple, slot.ttl, slot.mark, slot.tries);
  ++slot.tries;
  if (sent.fault != ProbeFault::kNone) return Fail(index, sent.fault, sent.error);
  ++packets_;
  if (sent.reached) return Answered(index, HopStatus::kReached, slot.what.tuple.destination, -1);
  if (sent.opened) {
    epoll_event event{};
    // Errors are always told. A TCP connect is waited for, to come about.
    event.events = IsConnect(slot) ? EPOLLOUT : EPOLLIN;
    event.data.u64 = static_cast<uint64_t>(++slot.use) << 32 | static_cast<uint64_t>(index);
    if (epoll_ctl(epoll_fd_, EPOLL_CTL_ADD, slot.socket.fd(), &event) != 0) {
      return Fail(index, ProbeFault::kSystem, errno);
    }
  }
  Await(index, NowNs() + WaitNs(slot.tries));
}

void Prober::Loop::Await(int index, int64_t deadline_ns) {
  Slot& slot = slots_[static_cast<size_t>(index)];
  if (slot.deadline_ns != 0) deadlines_.erase({slot.deadline_ns, index});
  slot.deadline_ns = deadline_ns;
  if (deadline_ns != 0) deadlines_.insert({deadline_ns, index});
}

void Prober::Loop::Handle(int index) {
  Slot& slot = slots_[static_cast<size_t>(index)];
  const uint32_t use = slot.use;
  QueuedError error;
  while (slot.busy && slot.use == use && slot.socket.ReadError(&error)) Judged(index, error);
  if (!slot.busy || slot.use != use || slot.socket.fd() < 0) return;
  const bool reached = slot.socket.ReadReached(slot.what.tuple);
  if (reached && slot.tries > 0) {
    return Answered(index, HopStatus::kReached, slot.what.tuple.destination, -1);
  }
  // Whatever woke us has killed the connection without an answer that counts: the try is lost, and an event
  // that stays would keep us awake.
  if (IsConnect(slot)) slot.socket.Close();
}

void Prober::Loop::Judged(int index, const QueuedError& error) {
  Slot& slot = slots_[static_cast<size_t>(index)];
  // Nothing has been sent yet with this time to live: what comes is late, and of an earlier one.
  const int tries = slot.tries;
  const bool segment = slot.socket.segments();
  const Judgement judgement =
      tries == 0 ? Judgement() : Judge(slot.what.tuple, slot.mark, tries, segment, error);
  switch (judgement.verdict) {
    case Verdict::kHop:
      return Answered(index, HopStatus::kAnswered, error.offender, judgement.tried);
    case Verdict::kReached:
      return Answered(index, HopStatus::kReached, error.offender, judgement.tried);
    case Verdict::kUnreachable:
      return Answered(index, HopStatus::kUnreachable, error.offender, judgement.tried);
    case Verdict::kLocal:
      return Fail(index, ProbeFault::kNoRoute, error.error);
    case Verdict::kAlien:
      // Segments of one pair of hosts hear the answers to each other's.
      if (!segment) ++aliens_;
      return;
  }
}

void Prober::Loop::Answered(int index, HopStatus status, service::IpAddress address, int tried) {
  Slot& slot = slots_[static_cast<size_t>(index)];
  ++answers_;
  const int answered = tried >= 0 ? tried : slot.tries - 1;
  const int64_t rtt = NowNs() - slot.sent_ns[static_cast<size_t>(answered)];
  slot.result.hops.push_back({slot.ttl, status, address, rtt, slot.tries});
  if (status != HopStatus::kAnswered) return Finish(index);
  NextTtl(index);
}

void Prober::Loop::TimeOut(int index) {
  Slot& slot = slots_[static_cast<size_t>(index)];
  Await(index, 0);
  // On a busy host this thread may be late itself, and the answer have come in time.
  const int ttl = slot.ttl;
  const uint32_t use = slot.use;
  Handle(index);
  if (slot.ttl != ttl || slot.use != use) return;
  if (slot.tries < options_.tries) {
    slot.sending = true;
    to_send_.push_back(index);
    return;
  }
  slot.result.hops.push_back({slot.ttl, HopStatus::kSilent, {}, 0, slot.tries});
  NextTtl(index);
}

void Prober::Loop::NextTtl(int index) {
  Slot& slot = slots_[static_cast<size_t>(index)];
  Await(index, 0);
  if (slot.sending) std::erase(to_send_, index);  // a late answer overtook the next try
  slot.sending = false;
  if (slot.ttl >= slot.what.order->last_ttl) return Finish(index);
  if (IsConnect(slot)) slot.socket.Close();
  BeginTtl(index, slot.ttl + 1);
}

void Prober::Loop::Fail(int index, ProbeFault fault, int error) {
  Slot& slot = slots_[static_cast<size_t>(index)];
  slot.result.fault = fault;
  slot.result.error = FaultText(slot.what.tuple, fault, error);
  Finish(index);
}

void Prober::Loop::Finish(int index) {
  Slot& slot = slots_[static_cast<size_t>(index)];
  Await(index, 0);
  if (slot.sending) std::erase(to_send_, index);
  slot.sending = false;
  slot.socket.Close();
  ++slot.use;
  slot.busy = false;
  free_.push_back(index);
  const auto line = blocked_.find(PortKey(slot.what.tuple));
  if (line != blocked_.end()) {
    // Those that waited for the port go first, in their order.
    waiting_.insert(waiting_.begin(), line->second.begin(), line->second.end());
    blocked_.erase(line);
  }
  const Waiting what = std::move(slot.what);
  Report(what, std::move(slot.result));
}

void Prober::Loop::Report(const Waiting& what, ProbeResult result) {
  const bool last = --what.order->left == 0;
  on_result_(what.order->order, std::move(result), last);
}

void Prober::Loop::Wait(int64_t until_ns) {
  const int64_t left_ns = std::max<int64_t>(0, until_ns - NowNs());
  const timespec left = {left_ns / kSecondNs, left_ns % kSecondNs};
  // ppoll, because epoll_wait knows milliseconds only and probes may be paced more finely.
  pollfd any = {epoll_fd_, POLLIN, 0};
  if (ppoll(&any, 1, until_ns >= 0 ? &left : nullptr, nullptr) <= 0) return;
  epoll_event events[kEvents];
  const int count = epoll_wait(epoll_fd_, events, kEvents, 0);
  for (int i = 0; i < count; ++i) {
    if (events[i].data.u64 == kWakeMark) {
      eventfd_t value = 0;
      eventfd_read(wake_fd_, &value);
      continue;
    }
    const int index = static_cast<int>(events[i].data.u64 & 0xffffffffU);
    const Slot& slot = slots_[static_cast<size_t>(index)];
    if (slot.busy && slot.use == static_cast<uint32_t>(events[i].data.u64 >> 32)) Handle(index);
  }
}

Prober::Prober(const ProberOptions& options, OnResult on_result)
    : loop_(std::make_unique<Loop>(options, std::move(on_result))) {}

Prober::~Prober() = default;

absl::Status Prober::Start() {
  return loop_->Start();
}

void Prober::Stop() {
  loop_->Stop();
}

absl::Status Prober::Submit(ProbeOrder order) {
  return loop_->Submit(std::move(order));
}

void Prober::Cancel() {
  loop_->Cancel();
}

ProberCounts Prober::counts() const {
  return loop_->counts();
}

}  // namespace c4::agent
