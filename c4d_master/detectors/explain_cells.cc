#include "c4d_master/detectors/explain_cells.h"

#include <algorithm>
#include <unordered_map>

namespace c4::c4d {
namespace {

// Whether it is none, one or several, of numbers that come again and again.
class Few {
 public:
  void Add(uint32_t number) {
    if (state_ == 0) number_ = number;
    if (state_ == 0 || number != number_) state_ = std::min(state_ + 1, 2);
  }
  bool one() const { return state_ == 1; }
  bool several() const { return state_ == 2; }

 private:
  int state_ = 0;
  uint32_t number_ = 0;
};

// A NIC, or a node whose NICs are not told apart.
struct Unit {
  size_t populated = 0;
  std::vector<const Cell*> slow;
  Few slow_peers;
  Few peers;
  Few slow_own;  // of a node: its ranks

  void Add(const Cell& cell, bool is_slow, uint32_t peer, uint32_t own) {
    ++populated;
    peers.Add(peer);
    if (!is_slow) return;
    slow.push_back(&cell);
    slow_peers.Add(peer);
    slow_own.Add(own);
  }
  bool MostlySlow(const SlowThresholds& thresholds) const {
    return !slow.empty() &&
           static_cast<double>(slow.size()) >= thresholds.nic_share * static_cast<double>(populated);
  }
  bool Explains(const SlowThresholds& thresholds) const {
    return slow_peers.several() && MostlySlow(thresholds);
  }
};

bool IsAddressed(const Cell& cell) {
  return !cell.local.empty();
}

class Explainer {
 public:
  Explainer(const JobQueuePairs& all, const std::vector<Cell>& cells, const SlowThresholds& thresholds)
      : all_(all), cells_(cells), thresholds_(thresholds) {}

  Explanation Explain(const std::set<const Process*>& late) {
    for (const Cell& cell : cells_) {
      const QueuePairEnds& ends = *cell.ends;
      if (late.count(ends.sender->process) != 0) continue;
      if (ends.receiver != nullptr && late.count(ends.receiver->process) != 0) continue;
      if (cell.bad()) left_.insert(&cell);
    }
    while (!left_.empty() && Look()) {
      if (!TakeBest()) {
        Rest();
        break;
      }
    }
    Dissolve();
    return std::move(result_);
  }

 private:
  // Whether any slow cell that is left counts.
  bool Look() {
    nics_.assign(all_.nics.size(), Unit());
    hosts_.clear();
    bool strong = false;
    for (const Cell& cell : cells_) {
      const bool is_left = left_.count(&cell) != 0;
      strong = strong || (is_left && cell.low.chunks >= thresholds_.min_chunks);
      if (!Counts(cell)) continue;
      const QueuePairEnds& ends = *cell.ends;
      const bool slow = cell.slow && is_left;
      nics_[ends.from_number].Add(cell, slow, ends.to_number, 0);
      nics_[ends.to_number].Add(cell, slow, ends.from_number, 0);
    }
    if (!strong) return false;
    for (const Cell& cell : cells_) {
      if (Counts(cell) && !IsAddressed(cell)) AddToHosts(cell);
    }
    return true;
  }

  bool Counts(const Cell& cell) const {
    // Of one of whose channels only some are slow it is not its NIC.
    if (cell.slow_upper) return false;
    return (cell.slow && left_.count(&cell) != 0) || (cell.judged && !cell.unclear && cell.low.chunks >= 2);
  }

  // Of the ranks of a node those that are mostly slow, as they may share a NIC.
  void AddToHosts(const Cell& cell) {
    const QueuePairEnds& ends = *cell.ends;
    if (ends.receiver == nullptr || ends.receiver->host == ends.sender->host) return;
    const bool slow = cell.slow && left_.count(&cell) != 0;
    const Host* const from = ends.sender->host;
    const Host* const to = ends.receiver->host;
    if (nics_[ends.from_number].MostlySlow(thresholds_)) {
      hosts_[from].Add(cell, slow, NumberOf(to), ends.from_number);
    }
    if (nics_[ends.to_number].MostlySlow(thresholds_)) {
      hosts_[to].Add(cell, slow, NumberOf(from), ends.to_number);
    }
  }

  uint32_t NumberOf(const Host* host) {
    return numbers_.try_emplace(host, static_cast<uint32_t>(numbers_.size())).first->second;
  }

  bool TakeBest() {
    const Unit* best = nullptr;
    for (const Unit& nic : nics_) {
      if (nic.Explains(thresholds_) && (best == nullptr || nic.slow.size() > best->slow.size())) best = &nic;
    }
    // By name, so that of equal ones it is always the same.
    const std::string* node = nullptr;
    for (const auto& [host, unit] : hosts_) {
      if (!unit.slow_own.several() || !unit.Explains(thresholds_)) continue;
      const bool more = best == nullptr || unit.slow.size() > best->slow.size();
      if (!more && (node == nullptr || unit.slow.size() < best->slow.size() || host->name > *node)) continue;
      best = &unit;
      node = &host->name;
    }
    if (best == nullptr) return false;
    const std::vector<const Cell*>& explained =
        node != nullptr
            ? (result_.nodes[*node] = best->slow)
            : (result_.nics[all_.nics[static_cast<size_t>(best - nics_.data())].address] = best->slow);
    for (const Cell* cell : explained) left_.erase(cell);
    return true;
  }

  // What no NIC explains.
  void Rest() {
    std::set<uint32_t> ends;
    for (const Cell* cell : left_) {
      if (cell->low.chunks < 2) continue;
      result_.connections.push_back(cell);
      ends.insert(cell->ends->from_number);
      ends.insert(cell->ends->to_number);
    }
    result_.ambiguous = ends.size() == 2;
    for (const uint32_t end : ends) {
      const Unit& nic = nics_[end];
      result_.ambiguous = result_.ambiguous && nic.peers.one() && nic.slow.size() == nic.populated;
    }
  }

  // Without addresses nobody knows which ways share a link between switches. Where slow ones are left, or
  // those of several nodes are slow, it may as well be such a link that only looks like one of their NICs.
  void Dissolve() {
    std::set<const Host*> hosts;
    std::vector<const Cell*> explained;
    const auto add = [&](const std::vector<const Cell*>& cells, const Host* host) {
      hosts.insert(host);
      explained.insert(explained.end(), cells.begin(), cells.end());
    };
    for (const auto& [address, cells] : result_.nics) {
      if (IsAddressed(*cells.front())) continue;
      const QueuePairEnds& ends = *cells.front()->ends;
      const bool sends = ends.from_nic == address;
      add(cells, sends || ends.receiver == nullptr ? ends.sender->host : ends.receiver->host);
    }
    for (const auto& [name, cells] : result_.nodes) {
      const QueuePairEnds& ends = *cells.front()->ends;
      add(cells, ends.sender->host->name == name ? ends.sender->host : ends.receiver->host);
    }
    const auto rest =
        static_cast<double>(std::count_if(result_.connections.begin(), result_.connections.end(),
                                          [](const Cell* cell) { return !IsAddressed(*cell); }));
    if (hosts.empty()) return;
    if (hosts.size() == 1 &&
        rest <= thresholds_.unaddressed_rest * (rest + static_cast<double>(explained.size())))
      return;
    std::erase_if(result_.nics, [](const auto& entry) { return !IsAddressed(*entry.second.front()); });
    result_.nodes.clear();
    std::sort(explained.begin(), explained.end());
    explained.erase(std::unique(explained.begin(), explained.end()), explained.end());
    result_.connections.insert(result_.connections.end(), explained.begin(), explained.end());
    std::sort(result_.connections.begin(), result_.connections.end());
    result_.ambiguous = false;
  }

  const JobQueuePairs& all_;
  const std::vector<Cell>& cells_;
  const SlowThresholds& thresholds_;
  std::set<const Cell*> left_;
  std::vector<Unit> nics_;  // as JobQueuePairs::nics
  std::unordered_map<const Host*, Unit> hosts_;
  std::unordered_map<const Host*, uint32_t> numbers_;
  Explanation result_;
};

}  // namespace

Explanation Explain(const JobQueuePairs& all, const std::vector<Cell>& cells,
                    const std::set<const Process*>& late, const SlowThresholds& thresholds) {
  return Explainer(all, cells, thresholds).Explain(late);
}

}  // namespace c4::c4d
