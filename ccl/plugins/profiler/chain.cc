#include "ccl/plugins/profiler/chain.h"

#include <unistd.h>
#include <utility>

#include "ccl/base/clock.h"
#include "ccl/base/knobs.h"
#include "ccl/base/log.h"

namespace c4::profiler {

std::atomic<Chain*> Chain::current_{nullptr};

Chain* Chain::AtInit(int version) {
  static std::once_flag decided;
  std::call_once(decided, [version] {
    if (Get() != nullptr) return;
    const std::string wanted = KnobText(Knob::C4_USER_PROFILER);
    std::string fault;
    std::unique_ptr<Foreign> foreign = Foreign::Open(wanted, version, &fault);
    if (foreign == nullptr) {
      if (!fault.empty()) {
        C4_WARN("the profiler plugin %s %s: C4's own runs alone",
                wanted.empty() ? "libnccl-profiler.so" : wanted.c_str(), fault.c_str());
      }
      return;
    }
    C4_INFO("the profiler plugin %s (%s, v%d) hears of every event beside C4's own (v%d)",
            wanted.empty() ? "libnccl-profiler.so" : wanted.c_str(), foreign->name(), foreign->version(),
            version);
    const auto salt = static_cast<uint32_t>(getpid()) ^ static_cast<uint32_t>(MonotonicNs() >> 10);
    current_.store(new Chain(std::move(foreign), salt), std::memory_order_release);
  });
  return Get();
}

Chain::Chain(std::unique_ptr<Foreign> foreign, uint32_t salt)
    : foreign_(std::move(foreign)), salt_((salt & 0xfff) | 0x1000), pid_(getpid()), pairs_(salt) {}

void Chain::Replace(Chain* chain) {
  current_.store(chain, std::memory_order_release);
}

void* Chain::Open(void* ours, uint64_t our_mask, int* mask, const InitCall& call) {
  void* theirs = nullptr;
  const int result = foreign_->Init(&theirs, &their_mask_, call);
  if (result != 0) {
    C4_WARN("the profiler plugin %s refuses a communicator (%d): of that it hears nothing", foreign_->name(),
            result);
  }
  if (result == 0) hears_some_.store(true, std::memory_order_relaxed);
  // The mask is the process's: what it asked for an earlier one holds on.
  const bool hears = hears_some_.load(std::memory_order_relaxed);
  const int asked = hears ? std::atomic_ref<int>(their_mask_).load(std::memory_order_relaxed) : 0;
  *mask = static_cast<int>(our_mask) | asked;
  if (ours == nullptr && result != 0) return nullptr;
  auto context = std::make_unique<ChainContext>();
  context->ours = ours;
  context->theirs = theirs;
  context->theirs_hears = result == 0;
  context->our_mask = ours == nullptr ? 0 : our_mask;
  context->name = call.name == nullptr ? "" : call.name;
  context->hash = call.hash;
  const std::lock_guard<std::mutex> lock(mutex_);
  our_mask_ = our_mask;
  for (uint32_t tries = 0; tries < kContexts; ++tries) {
    const uint64_t number = salt_ << 40 | ++made_;
    std::atomic<const ChainContext*>& place = live_[number % kContexts];
    if (place.load(std::memory_order_relaxed) != nullptr) continue;
    context->number = number;
    place.store(context.get(), std::memory_order_release);
    all_.push_back(std::move(context));
    return reinterpret_cast<void*>(number);  // NOLINT(performance-no-int-to-ptr): never followed
  }
  C4_WARN("a communicator's events are heard by nobody: no place is left for it");
  return nullptr;
}

void* Chain::Close(void* number) {
  const ChainContext* const context = Live(number);
  if (context == nullptr) return nullptr;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    live_[context->number % kContexts].store(nullptr, std::memory_order_release);
  }
  if (context->theirs_hears) foreign_->Finalize(context->theirs);
  return context->ours;
}

}  // namespace c4::profiler
