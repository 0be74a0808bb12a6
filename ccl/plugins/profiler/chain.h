// A profiler plugin of the user's beside ours: NCCL takes one, so ours hands it every event that it asks for,
// in the newest version of the interface that it and NCCL both know, and NCCL's answers are of both. Which
// one it is stands in C4_USER_PROFILER, where the settings put what the user gave NCCL
// (engine/vendor/settings.h); where he gave nothing, one of the default name that the loader finds.
//
// Any thread; nothing is locked while the other plugin is called, as it may end the process.
#pragma once

#include <array>
#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "ccl/plugins/profiler/event_pairs.h"
#include "ccl/plugins/profiler/foreign.h"

namespace c4::profiler {

// A communicator, as both know it.
struct ChainContext {
  uint64_t number = 0;  // what NCCL holds for it; 0: it is nobody's now
  void* ours = nullptr;
  void* theirs = nullptr;
  bool theirs_hears = false;
  uint64_t our_mask = 0;
  std::string name;
  uint64_t hash = 0;

  EventSource source() const { return {name.empty() ? nullptr : name.c_str(), hash}; }
};

class Chain {
 public:
  static constexpr uint32_t kContexts = 1024;

  // `salt` is the process's.
  Chain(std::unique_ptr<Foreign> foreign, uint32_t salt);
  Chain(const Chain&) = delete;
  Chain& operator=(const Chain&) = delete;

  // The process's own, which is decided at the first init, where NCCL speaks `version`; nullptr: ours is
  // alone.
  static Chain* AtInit(int version);
  // The same from then on.
  static Chain* Get() { return current_.load(std::memory_order_acquire); }
  // For tests: in place of the process's own. Not while events come.
  static void Replace(Chain* chain);

  const Foreign& foreign() const { return *foreign_; }
  EventPair Find(const void* number) const { return pairs_.Find(number); }

  // `ours` and `our_mask` are what our own init gave. *mask becomes what both ask for.
  void* Open(void* ours, uint64_t our_mask, int* mask, const InitCall& call);
  // What our own finalize gets; nullptr: nothing to finalize.
  void* Close(void* context);

  // Our own start, of a copy of the event whose parents are ours: gives our handle.
  template <typename Descriptor, typename OwnStart>
  void* Start(void* context, const Descriptor& d, OwnStart own_start);
  void Stop(const EventPair& pair) {
    if (pair.theirs != nullptr) foreign_->Stop(pair.theirs);
  }
  template <typename Args>
  void Record(const EventPair& pair, nccl_profiler::State state, Args* args) {
    if (pair.theirs != nullptr) foreign_->Record(pair.theirs, state, args);
  }

 private:
  // By the number that NCCL holds; nullptr: over, or another process's (PXN).
  const ChainContext* Live(const void* number) const {
    const auto wanted = reinterpret_cast<uint64_t>(number);
    const ChainContext* const context = live_[wanted % kContexts].load(std::memory_order_acquire);
    return context != nullptr && context->number == wanted ? context : nullptr;
  }

  static std::atomic<Chain*> current_;

  const std::unique_ptr<Foreign> foreign_;
  const uint64_t salt_;
  const int pid_;
  EventPairs pairs_;
  // Its own to change at any time: what is handed on to it.
  int their_mask_ = 0;
  std::atomic<bool> hears_some_{false};
  std::atomic<uint64_t> our_mask_{0};  // of the last communicator: all get the same
  std::array<std::atomic<const ChainContext*>, kContexts> live_{};
  std::mutex mutex_;  // of what follows
  uint64_t made_ = 0;
  // Never changed and never freed, as a late event may be looking at one.
  std::vector<std::unique_ptr<const ChainContext>> all_;
};

template <typename Descriptor, typename OwnStart>
void* Chain::Start(void* context, const Descriptor& d, OwnStart own_start) {
  const ChainContext* const chained = Live(context);
  const auto type = static_cast<uint64_t>(d.type);
  EventPair parent = pairs_.Find(d.parentObj);
  if (type == nccl_profiler::kProxyOp && d.proxyOp.pid != pid_) {
    parent = {nullptr, d.parentObj};  // of the process whose operation it is; a plugin looks at the pid first
  }
  EventPair group;
  Descriptor own = d;
  own.parentObj = parent.ours;
  if constexpr (requires { d.coll.parentGroup; }) {
    if (type == nccl_profiler::kColl) {
      group = pairs_.Find(d.coll.parentGroup);
      own.coll.parentGroup = group.ours;
    } else if (type == nccl_profiler::kP2p) {
      group = pairs_.Find(d.p2p.parentGroup);
      own.p2p.parentGroup = group.ours;
    }
  }
  EventPair pair;
  // A step has its operation, whatever the context.
  void* const our_context = chained == nullptr ? nullptr : chained->ours;
  if (IsWanted(type, chained == nullptr ? our_mask_.load(std::memory_order_relaxed) : chained->our_mask))
    pair.ours = own_start(our_context, &own);
  const auto their_mask =
      static_cast<uint64_t>(std::atomic_ref<int>(their_mask_).load(std::memory_order_relaxed));
  const bool known = chained != nullptr ? chained->theirs_hears : parent.theirs != nullptr;
  if (known && IsWanted(type, their_mask)) {
    pair.theirs = foreign_->Start(chained == nullptr ? nullptr : chained->theirs, d,
                                  chained == nullptr ? EventSource() : chained->source(),
                                  {parent.theirs, group.theirs});
  }
  return pairs_.Keep(type, pair);
}

}  // namespace c4::profiler
