#include "fabric/jobsim/fates.h"

#include <algorithm>

#include "fabric/jobsim/dice.h"

namespace c4::jobsim {
namespace {

constexpr int kSigAbrt = 6;
constexpr int kSigKill = 9;
constexpr int kSigSegv = 11;
constexpr int kSigTerm = 15;

// What a process that fails by itself leaves: an exception, an assertion, a bad pointer, the kernel's killer.
void FailBy(uint64_t chance, Fate* fate) {
  constexpr int kSignals[] = {0, kSigAbrt, kSigSegv, kSigKill};
  fate->signal = kSignals[chance % 4];
  fate->exit_status = fate->signal == 0 ? 1 : 0;
  fate->for_memory = fate->signal == kSigKill;
}

int64_t Milliseconds(uint64_t chance, double least, double most) {
  return static_cast<int64_t>(Between(chance, least, most) * 1e6);
}

// When the launcher ends a rank, once another one has ended.
int64_t EndedAfterNs(const Shape& shape, Launcher launcher, uint32_t failed, uint32_t rank, uint64_t seed) {
  const uint32_t node = shape.node(rank);
  const uint64_t of_job = Mix({seed, 1});
  const uint64_t of_node = Mix({seed, 2, node});
  const uint64_t of_rank = Mix({seed, 3, rank});
  switch (launcher) {
    case Launcher::kTorchrun:
      // Each node's agent looks ten times a second, and hears of other nodes from the rendezvous.
      if (node == shape.node(failed)) return Milliseconds(of_job, 5, 100) + Milliseconds(of_rank, 0, 5);
      return Milliseconds(of_job, 100, 250) + Milliseconds(of_node, 50, 600) + Milliseconds(of_rank, 0, 5);
    case Launcher::kSrun:
      return Milliseconds(of_job, 20, 300) + Milliseconds(of_node, 0, 40) + Milliseconds(of_rank, 0, 10);
    case Launcher::kMpirun:
      return Milliseconds(of_job, 50, 700) + Milliseconds(of_node, 0, 20) + Milliseconds(of_rank, 0, 5);
    case Launcher::kNone:
      break;
  }
  return kNeverNs;
}

class Maker {
 public:
  Maker(const Shape& shape, const Layout& layout, const Fault& fault, uint64_t seed)
      : shape_(shape), layout_(layout), fault_(fault), seed_(Mix({seed, 0xfa7e})), fates_(shape.ranks()) {}

  std::vector<Fate> Make() {
    Fate& own = fates_[fault_.rank];
    switch (fault_.kind) {
      case FaultKind::kSpin:
        own.spins_ns = fault_.at_ns;
        break;
      case FaultKind::kDataLoader:
      case FaultKind::kFileSystem:
        own.loader_ends_ns = fault_.at_ns;
        own.loader_back_ns = fault_.lasts_ns >= kNeverNs ? kNeverNs : fault_.at_ns + fault_.lasts_ns;
        break;
      case FaultKind::kKill:
        own.ends_ns = fault_.at_ns;
        own.signal = kSigKill;
        FailPeers();
        break;
      case FaultKind::kLaunched:
        own.ends_ns = fault_.at_ns;
        FailBy(Mix({seed_, 4}), &own);
        FailPeers();
        EndOthers();
        break;
      case FaultKind::kOffBus:
        LoseGpu(&own);
        break;
      case FaultKind::kStop:
        own.stops_ns = fault_.at_ns;
        break;
      case FaultKind::kLostNode:
        for (uint32_t rank = 0; rank < shape_.ranks(); ++rank) {
          if (shape_.node(rank) == shape_.node(fault_.rank)) fates_[rank].ends_ns = fault_.at_ns;
        }
        break;
      default:
        break;
    }
    if (shape_.ended_ns < kNeverNs) EndAll();
    return std::move(fates_);
  }

 private:
  // The next call of the GPU's runtime tells the process, which aborts what it can and leaves.
  void LoseGpu(Fate* own) {
    own->gpu_ends_ns = fault_.at_ns;
    own->ends_ns = fault_.at_ns + static_cast<int64_t>(LogBetween(Mix({seed_, 5}), 0.05, 4) * 1e9);
    own->signal = Mix({seed_, 6}) % 2 == 0 ? kSigAbrt : 0;
    own->exit_status = own->signal == 0 ? 1 : 0;
    if (Mix({seed_, 7}) % 2 == 0) {
      own->aborts = true;
      own->fails_ns = own->ends_ns - Milliseconds(Mix({seed_, 8}), 1, 40);
    }
    FailPeers();
    if (fault_.launcher != Launcher::kNone) EndOthers();
  }

  // The host's engine hears at once that a peer's connections are gone; the vendor's waits for its time-outs.
  void FailPeers() {
    if (shape_.engine != Engine::kHost) return;
    const int64_t ended_ns = fates_[fault_.rank].ends_ns;
    for (const Group& group : layout_.groups) {
      if (std::find(group.ranks.begin(), group.ranks.end(), fault_.rank) == group.ranks.end()) continue;
      for (const uint32_t rank : group.ranks) {
        if (rank == fault_.rank) continue;
        fates_[rank].fails_ns = ended_ns + Milliseconds(Mix({seed_, 9, rank}), 1, 50);
        fates_[rank].failed_with = fault_.rank;
      }
    }
  }

  void EndAll() {
    for (uint32_t rank = 0; rank < shape_.ranks(); ++rank) {
      const int64_t after_ns = EndedAfterNs(shape_, Launcher::kSrun, 0, rank, seed_);
      fates_[rank].ends_ns = std::min(fates_[rank].ends_ns, shape_.ended_ns + after_ns);
      fates_[rank].signal = kSigTerm;
    }
  }

  void EndOthers() {
    const int64_t ended_ns = fates_[fault_.rank].ends_ns;
    for (uint32_t rank = 0; rank < shape_.ranks(); ++rank) {
      if (rank == fault_.rank) continue;
      const int64_t after_ns = EndedAfterNs(shape_, fault_.launcher, fault_.rank, rank, seed_);
      fates_[rank].ends_ns = after_ns >= kNeverNs ? kNeverNs : ended_ns + after_ns;
      fates_[rank].signal = fault_.launcher == Launcher::kSrun ? kSigKill : kSigTerm;
    }
  }

  const Shape& shape_;
  const Layout& layout_;
  const Fault& fault_;
  const uint64_t seed_;
  std::vector<Fate> fates_;
};

}  // namespace

std::vector<Fate> MakeFates(const Shape& shape, const Layout& layout, const Fault& fault, uint64_t seed) {
  return Maker(shape, layout, fault, seed).Make();
}

}  // namespace c4::jobsim
