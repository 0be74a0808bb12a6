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
void TakePort(PlaneId plane, Way way, std::vector<PlaneWays>* offered);

class WayChooser {
 public:
  WayChooser(const Network* network, Accounts* accounts) : network_(network), accounts_(accounts) {}

  // kFullest is the rule above. kSum looks at how full the links of a way are together instead: for evening
  // out, where a move that helps an uneven leaf shall not wait until that leaf is the fullest.
  enum class Aim { kFullest, kSum };

  // kNoWay where no way is both offered and up. Does not account, and takes no port off `offered`.
  Way Choose(TenantId tenant, int64_t kbps, LeafId from, LeafId to, const PlaneWays& offered,
             Aim aim = Aim::kFullest);
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
  // Of several links, by the aim.
  double Together(std::initializer_list<double> fills) const {
    double value = 0;
    for (const double fill : fills) value = aim_ == Aim::kSum ? value + fill : std::max(value, fill);
    return value;
  }
  double Fill(const View& view, size_t column) const {
    return static_cast<double>(view.load[column] + kbps_) * view.inverse[column];
  }
  // The best of fullest_; kNoColumn: none is up. `grain`, `own` and `sum` are asked for a number in it.
  template <typename Grain, typename Own, typename Sum>
  size_t Pick(const Grain& grain, const Own& own, const Sum& sum) const;
  // Without those that `ways` does not offer, unless that is null.
  Way ChooseSpine(LeafId from, LeafId to, const std::vector<WayPorts>* ways);
  Way ChooseOfferedCore(LeafId from, LeafId to, const std::vector<WayPorts>& ways);
  Way ChooseCore(LeafId from, LeafId to);
  Way ChooseCoreOf(SpineId spine, PodId destination, const View& down);

  const Network* network_;
  Accounts* accounts_;
  TenantId tenant_ = 0;
  int64_t kbps_ = 0;
  Aim aim_ = Aim::kFullest;
  // Scratch.
  std::vector<double> fullest_;  // of each candidate's links, with the queue pair, by the aim
  std::vector<double> row_sums_;
  std::vector<Hops> hops_;
  std::vector<Way> ways_;
  std::vector<uint8_t> out_;  // columns that do not count
};

}  // namespace c4::c4p
