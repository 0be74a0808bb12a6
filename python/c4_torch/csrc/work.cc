#include "work.h"

#include <ATen/ThreadLocalState.h>
#include <algorithm>

#include "exit_gate.h"

namespace c4_torch {
namespace {

std::atomic<uint64_t> next_key{1};

std::exception_ptr Failed(const std::string& sentence) {
  return std::make_exception_ptr(C10_BUILD_ERROR(DistBackendError, sentence));
}

c10::IValue Value(const std::vector<at::Tensor>& tensors) {
  return c10::IValue(tensors);
}

// Futures that PyTorch's own code reads hold a list of tensors.
c10::intrusive_ptr<c10::ivalue::Future> NewFuture() {
  return c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()));
}

}  // namespace

GroupWork::GroupWork(int rank, const Call& call, std::shared_ptr<Ledger> ledger)
    : Work(rank, call.type, call.title, call.inputs),
      ledger_(std::move(ledger)),
      title_(call.title),
      inputs_(call.inputs),
      outputs_(call.outputs),
      timeout_(call.timeout),
      deadline_(began_ + call.timeout),
      sequence_(call.sequence),
      key_(next_key.fetch_add(1)) {}

void GroupWork::Place(std::shared_ptr<Channel> channel, Event event, std::function<void()> finish) {
  channel_ = std::move(channel);
  event_.emplace(std::move(event));
  finish_ = std::move(finish);
  expire_ = [this](const std::string& reason) { channel_->Abort(reason); };
}

void GroupWork::Settle(const std::string& failure) {
  if (settling_.exchange(true)) return;
  std::exception_ptr exception = failure.empty() ? nullptr : Failed(failure);
  if (exception == nullptr && finish_) {
    try {
      finish_();
    } catch (...) {
      exception = std::current_exception();
    }
  }
  const auto took = std::chrono::steady_clock::now() - began_;
  duration_ns_.store(std::chrono::nanoseconds(took).count());
  finish_ = nullptr;
  inputs_.clear();
  settled_.store(true, std::memory_order_release);
  finish(exception);
  c10::intrusive_ptr<c10::ivalue::Future> future;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    future = future_;
  }
  if (exception == nullptr) {
    const float ms = std::chrono::duration<float, std::milli>(took).count();
    ledger_->RunCompletionHooks({key_, ms});
    if (future != nullptr) future->markCompleted(Value(outputs_));
  } else if (future != nullptr) {
    future->setError(exception);
  }
}

void GroupWork::SettlePlaced() {
  const std::string failure = channel_->Failure();
  if (!failure.empty() && !settling_.load()) ledger_->RunAbortHooks();
  Settle(failure.empty() ? failure : Describe() + ": " + failure);
}

void GroupWork::Poll() {
  if (!settled() && event_.has_value() && channel_->IsOver(*event_)) SettlePlaced();
}

void GroupWork::Await(std::chrono::milliseconds timeout) {
  if (event_.has_value() && timeout == kNoTimeout) {
    {
      const ExitGate::Outside outside;
      channel_->Await(*event_);
    }
    SettlePlaced();
  } else if (event_.has_value()) {
    ledger_->Attend(WorkPtr::reclaim_copy(this));
  }
  const ExitGate::Outside outside;
  std::unique_lock<std::mutex> lock(mutex_);
  if (timeout == kNoTimeout) {
    cv_.wait(lock, [this] { return completed_; });
  } else if (!cv_.wait_for(lock, timeout, [this] { return completed_; })) {
    C10_THROW_ERROR(DistBackendError, Describe() + ": timed out after " + std::to_string(timeout.count()) +
                                          " ms of waiting; the operation goes on");
  }
}

void GroupWork::Drive() {
  try {
    if (!settled()) Await(kNoTimeout);
  } catch (const std::exception& failed) {
    Settle(failed.what());
  }
}

void GroupWork::Expire() {
  ledger_->RunAbortHooks();
  const std::string reason = "timed out after " + std::to_string(timeout_.count()) +
                             " ms (the timeout of the process group or of the call)";
  if (expire_) expire_(reason);
  Poll();
}

std::string GroupWork::Describe() const {
  return std::string(title_) + " number " + std::to_string(sequence_) + " of rank " + std::to_string(rank_);
}

bool GroupWork::isCompleted() {
  Poll();
  return settled();
}

bool GroupWork::isSuccess() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return completed_ && exception_ == nullptr;
}

bool GroupWork::wait(std::chrono::milliseconds timeout) {
  if (!settled()) Await(timeout);
  std::unique_lock<std::mutex> lock(mutex_);
  cv_.wait(lock, [this] { return completed_; });
  if (exception_ != nullptr) std::rethrow_exception(exception_);
  return true;
}

void GroupWork::abort() {
  if (!settled() && expire_) expire_("the work was aborted by the program");
  Poll();
}

c10::intrusive_ptr<c10::ivalue::Future> GroupWork::getFuture() {
  c10::intrusive_ptr<c10::ivalue::Future> future;
  bool over = false;
  std::exception_ptr exception;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (future_ != nullptr) return future_;
    future = NewFuture();
    over = completed_;
    exception = exception_;
    future_ = future;
  }
  if (!over) {
    if (event_.has_value()) ledger_->Attend(WorkPtr::reclaim_copy(this));
  } else if (exception != nullptr) {
    future->setError(exception);
  } else {
    future->markCompleted(Value(outputs_));
  }
  return future;
}

float GroupWork::getDuration() const {
  return static_cast<float>(duration_ns_.load()) / 1e6F;
}

bool JointWork::isCompleted() {
  return std::all_of(parts_.begin(), parts_.end(), [](const auto& part) { return part->isCompleted(); });
}

bool JointWork::isSuccess() const {
  return std::all_of(parts_.begin(), parts_.end(), [](const auto& part) { return part->isSuccess(); });
}

std::exception_ptr JointWork::exception() const {
  for (const auto& part : parts_) {
    if (std::exception_ptr failed = part->exception()) return failed;
  }
  return nullptr;
}

std::vector<at::Tensor> JointWork::result() {
  std::vector<at::Tensor> all;
  for (const auto& part : parts_) {
    for (const at::Tensor& tensor : part->result()) all.push_back(tensor);
  }
  return all;
}

bool JointWork::wait(std::chrono::milliseconds timeout) {
  const Deadline deadline = std::chrono::steady_clock::now() + timeout;
  for (const auto& part : parts_) {
    std::chrono::milliseconds left = kNoTimeout;
    if (timeout != kNoTimeout) {
      left =
          std::chrono::duration_cast<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
      left = std::max(left, std::chrono::milliseconds(1));
    }
    part->wait(left);
  }
  return true;
}

void JointWork::abort() {
  for (const auto& part : parts_) part->abort();
}

c10::intrusive_ptr<c10::ivalue::Future> JointWork::getFuture() {
  auto joint = NewFuture();
  c10::List<c10::intrusive_ptr<c10::ivalue::Future>> futures(
      c10::FutureType::create(c10::ListType::create(c10::TensorType::get())));
  for (const auto& part : parts_) futures.push_back(part->getFuture());
  const auto all = c10::collectAll(futures);
  all->addCallback([joint, tensors = result()](c10::ivalue::Future& done) {
    if (done.hasError()) {
      joint->setError(done.exception_ptr());
    } else {
      joint->markCompleted(Value(tensors));
    }
  });
  return joint;
}

}  // namespace c4_torch
