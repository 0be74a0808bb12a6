// Which of the ways between two leaves one more queue pair takes: the one whose fullest link is the least
// full, the queue pair itself included. In two stages where there are cores: the spine by its links to both
// leaves and by how full its links to the cores are together, then the core.
//
// Fairness. Ways that differ by less than half of the queue pair's own load count as alike; of these it takes
// the one with the least traffic of its own tenant. So every tenant's traffic, and not only the sum, comes to
// lie evenly: a tenant's bursts take as much from every other one, and no link is the busy tenant's own that
// somebody else lands on by bad luck. What it costs in evenness of the sum is half a queue pair at most.
//
// Pure, deterministic (ties go to the lowest column); keeps scratch memory, so one thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <vector>

#include "c4p_master/alloc/accounts.h"
#include "c4p_master/alloc/network.h"

namespace c4::c4p {

// A way, and for how many queue pairs of this pair of NICs a free source port is known that takes it.
struct WayPorts {
  Way way = kNoWay;
  uint32_t ports = 0;
};

// The ways of a plane that can be had. Where switches are configured so that ports are made to measure: all.
struct PlaneWays {
  bool all = true;
  std::vector<WayPorts> ways;  // unless `all`; no way twice
};

// One port less of that way, where there is a list.
void TakePort(Way way, PlaneWays* offered);

class WayChooser {
 public:
  WayChooser(const Network* network, Accounts* accounts) : network_(network), accounts_(accounts) {}

  // kFullest is the rule above. kSum looks at how full the links of a way are together instead: for evening
  // out, where a move that helps an uneven leaf shall not wait until that leaf is the fullest.
  enum class Aim { kFullest, kSum };

  // Ways for `count` queue pairs of one connection, in one plane: fewer where no way more is both offered and
  // up. Each counts for the next, and takes its port off `offered`; nothing is accounted. Valid until the
  // next call.
  const std::vector<Way>& Choose(TenantId tenant, int64_t kbps, LeafId from, LeafId to, uint32_t count,
                                 PlaneWays* offered, Aim aim = Aim::kFullest);
  // How full the fullest link of these hops is, or all of them together; 0 of none.
  double Fill(const Hops& hops, Aim aim) const;

 private:
  static constexpr size_t kNoColumn = SIZE_MAX;

  // A row of links, as those that choose look at it.
  struct View {
    const double* inverse = nullptr;
    const int64_t* load = nullptr;
    const int64_t* own = nullptr;
    size_t columns = 0;
    size_t own_columns = 0;

    int64_t OwnAt(size_t column) const { return column < own_columns ? own[column] : 0; }
  };

  View ViewOf(RowId row) const;
  // With one queue pair more, beside the `taken` ones that this call has put there.
  double Fill(const View& view, size_t column, int64_t taken) const {
    return static_cast<double>(view.load[column] + (taken + 1) * kbps_) * view.inverse[column];
  }
  // Of several links, by the aim.
  double Together(std::initializer_list<double> fills) const {
    double value = 0;
    for (const double fill : fills) value = aim_ == Aim::kSum ? value + fill : std::max(value, fill);
    return value;
  }
  // The best of `value`; kNoColumn: none is up. `grain`, `own` and `sum` are asked for a number in it.
  template <typename Grain, typename Own, typename Sum>
  static size_t Pick(const std::vector<double>& value, const Grain& grain, const Own& own, const Sum& sum);
  void ChooseSpines(LeafId from, LeafId to, uint32_t count, PlaneWays* offered);
  void ChooseOfferedCores(LeafId from, LeafId to, uint32_t count, std::vector<WayPorts>* ways);
  void ChooseCores(LeafId from, LeafId to, uint32_t count);
  Way ChooseCoreOf(SpineId spine, PodId destination, const Network::Counterpart& counterpart,
                   const View& down);
  int64_t TakenOf(Way way) const { return std::count(chosen_.begin(), chosen_.end(), way); }

  const Network* network_;
  Accounts* accounts_;
  TenantId tenant_ = 0;
  int64_t kbps_ = 0;
  Aim aim_ = Aim::kFullest;
  std::vector<Way> chosen_;
  // Scratch.
  std::vector<double> value_;  // of each candidate's links, with the queue pair, by the aim
  std::vector<double> core_value_;
  std::vector<double> row_sums_;
  std::vector<int64_t> taken_;  // by column
  std::vector<uint32_t> ports_;
  std::vector<Hops> hops_;
};

}  // namespace c4::c4p
