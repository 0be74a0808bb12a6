#include "ccl/tap/steering.h"

#include <cstring>
#include <poll.h>
#include <string>
#include <sys/eventfd.h>
#include <unistd.h>

#include "ccl/base/fork.h"
#include "ccl/base/knobs.h"
#include "ccl/base/log.h"
#include "ccl/transport/verbs/source_port.h"

namespace c4::tap {
namespace {

constexpr int64_t kSteers = 2;  // of C4_TAP
constexpr int kWaitMs = 1000;

// Such addresses never leave their link; InfiniBand's look the same.
bool IsLinkLocal(const wire::Endpoint& end) {
  return end.address[0] == 0xfe && (end.address[1] & 0xc0) == 0x80;
}

bool IsSameHost(const wire::Endpoint& a, const wire::Endpoint& b) {
  return memcmp(a.address, b.address, sizeof a.address) == 0;
}

}  // namespace

Steering* Steering::ForProcess() {
  static const uint64_t forks = Forks();
  static Steering* const steering = []() -> Steering* {
    if (KnobNumber(Knob::C4_TAP) != kSteers) return nullptr;
    PathSelector* const selector = PathSelector::ForProcess();
    const verbs::Library* library = nullptr;
    if (selector == nullptr || !verbs::ProcessLibrary(&library).ok()) return nullptr;
    return new Steering(selector, library);
  }();
  return Forks() == forks ? steering : nullptr;
}

Steering::Steering(PathSelector* selector, const verbs::Library* library)
    : selector_(selector), library_(library) {
  wake_.Reset(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
}

Steering::~Steering() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
    for (const auto& [queue_pair, steered] : steered_) selector_->Close(steered.number);
  }
  const uint64_t one = 1;
  (void)!write(wake_.get(), &one, sizeof one);
  if (thread_.started()) thread_.Join();
}

uint16_t Steering::Ask(const abi::QueuePair* queue_pair, const Route& route, int rank) {
  const bool has_path = route.remote.port != 0 && !IsLinkLocal(route.remote) && !IsLinkLocal(route.local) &&
                        !IsSameHost(route.local, route.remote);
  Forget(queue_pair);
  if (!has_path) return 0;
  PathQuestion question;
  question.from_rank = rank;
  question.to_rank = -1;
  question.protocol = IPPROTO_UDP;
  question.ends = {{FromEndpoint(route.local), FromEndpoint(route.remote)}};
  PathAdvice advice;
  Steered steered;
  steered.number = selector_->Open(question, wake_.get(), &advice);
  steered.epoch = advice.epoch;
  const std::lock_guard lock(mutex_);
  steered_[queue_pair] = steered;
  if (!started_) {
    started_ = true;
    const Result begun = thread_.Start("c4-steering", [this] { Run(); });
    if (!begun.ok()) C4_INFO("queue pairs do not follow corrections: %s", begun.message().c_str());
  }
  const uint16_t port = advice.paths.empty() ? 0 : advice.paths[0].source_port;
  return verbs::CanBeSourcePort(port) ? port : 0;
}

void Steering::Uses(abi::QueuePair* queue_pair, WatchedQueuePair* watched, const Route& route) {
  const std::lock_guard lock(mutex_);
  const auto found = steered_.find(queue_pair);
  if (found == steered_.end()) return;
  Steered& steered = found->second;
  steered.queue_pair = queue_pair;
  steered.watched = watched;
  steered.route = route;
  Tell(steered);
}

void Steering::Forget(const abi::QueuePair* queue_pair) {
  const std::lock_guard lock(mutex_);
  const auto found = steered_.find(queue_pair);
  if (found == steered_.end()) return;
  selector_->Close(found->second.number);
  steered_.erase(found);
}

void Steering::Tell(const Steered& steered) {
  wire::ControlPathInUse use{};
  use.source = steered.route.local;
  use.destination = steered.route.remote;
  use.state = wire::kPathLive;
  selector_->Use(steered.number, steered.epoch, {use});
}

void Steering::Run() {
  for (;;) {
    pollfd entry{wake_.get(), POLLIN, 0};
    if (poll(&entry, 1, kWaitMs) > 0) {
      uint64_t count = 0;
      (void)!read(wake_.get(), &count, sizeof count);
    }
    const std::lock_guard lock(mutex_);
    if (stop_) return;
    FollowAll();
  }
}

void Steering::FollowAll() {
  for (auto& [queue_pair, steered] : steered_) {
    if (steered.queue_pair == nullptr) continue;  // its change is under way
    PathAdvice advice;
    if (!selector_->TakeCorrection(steered.number, &advice)) continue;
    steered.epoch = advice.epoch;
    const uint16_t port = advice.paths.empty() ? 0 : advice.paths[0].source_port;
    steered.wanted = verbs::CanBeSourcePort(port) && port != steered.route.local.port ? port : 0;
    if (steered.wanted != 0 && Move(steered)) {
      steered.route.local.port = steered.wanted;
      steered.route.flow_label = verbs::FlowLabelOf(steered.wanted);
      steered.watched->Routed(steered.route);
    }
    steered.wanted = 0;
    Tell(steered);
  }
}

bool Steering::Move(const Steered& steered) {
  if (library_->set_source_port != nullptr &&
      library_->set_source_port(steered.queue_pair, steered.wanted) == 0) {
    return true;
  }
  if (!said_) {
    said_ = true;
    C4_INFO(
        "queue pairs of %s keep their source ports while they live: its driver has no safe way to change "
        "them",
        steered.queue_pair->context->device->name);
  }
  return false;
}

}  // namespace c4::tap
