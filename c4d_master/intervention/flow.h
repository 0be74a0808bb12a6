// A queue pair as an experiment sees it at one look: who sends to whom, which way its data take, and what its
// chunks took on that way in the window of the detectors. And the things that may be to blame for it: the
// links that it takes, the NICs and the ranks at its ends.
//
// Plain values and pure functions; any thread; no errors.
#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

namespace c4::c4d {

struct Flow {
  // What is the same of it at any time; ranks are the job's.
  uint64_t communicator_id = 0;
  int32_t from_rank = -1;
  int32_t to_rank = -1;
  uint32_t channel = 0;
  uint32_t index = 0;
  // And how it is now.
  std::string from_host;
  std::string to_host;
  std::string from_nic;
  std::string to_nic;
  std::string local;  // "address:port" now
  std::string remote;
  std::vector<std::string>
      links;  // that its data take, directed, hosts' own first and last; empty: not known
  // On this way, in the window.
  double ns_per_kib = 0;  // the low quantile; 0: no chunk
  double chunks = 0;
  double bytes = 0;     // what they held, about
  double ratio = 0;     // to what is usual, as the detectors have it
  bool judged = false;  // as a cell (detectors/cells.h)
  bool slow = false;
  bool unclear = false;
  bool sound = true;  // both ends are seen and can run, and it is not fenced

  auto Id() const { return std::tie(communicator_id, from_rank, to_rank, channel, index); }
  bool IsSame(const Flow& other) const { return Id() == other.Id(); }
};

const Flow* FindFlow(const std::vector<Flow>& flows, const Flow& wanted);  // nullptr: it is not there

enum class ThingKind { kLink, kNic, kRank };

// What may be to blame.
struct Thing {
  ThingKind kind = ThingKind::kLink;
  std::string name;   // "leaf0-spine1", "10.0.0.2", "rank 3"
  std::string host;   // of a NIC or rank
  int32_t rank = -1;  // of a rank

  auto operator<=>(const Thing& other) const {
    return std::tie(kind, name) <=> std::tie(other.kind, other.name);
  }
  bool operator==(const Thing& other) const { return kind == other.kind && name == other.name; }
};

// A thing in the direction in which a flow uses it: "leaf0>spine1", "out", "in".
struct Use {
  Thing thing;
  std::string direction;
};

// The links between switches are those but the first and the last; a host's own link is its NIC's matter.
std::vector<Use> UsesOf(const Flow& flow);
bool TakesThing(const Flow& flow, const Thing& thing);

// "spine0", of the highest switches that these flows take; empty where no path is known.
std::string WayText(const std::vector<Flow>& flows);
// "rank 0 to rank 1", "4 pairs of ranks".
std::string EndsText(const std::vector<Flow>& flows);
// "1 queue pair", "4 queue pairs".
std::string CountText(size_t queue_pairs);

}  // namespace c4::c4d
