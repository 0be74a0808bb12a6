#include "c4d_master/detectors/cells.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <string>
#include <unordered_map>

#include "absl/strings/str_format.h"
#include "analysis/median.h"
#include "service/text.h"
#include "service/verdict_json.h"

namespace c4::c4d {
namespace {

using service::Concat;

constexpr size_t kMaxTold = 6;

QueuePairKey KeyOf(const QueuePairEnds& ends) {
  return {ends.communicator->id,    ends.from->rank,        ends.queue_pair->peer,
          ends.queue_pair->channel, ends.queue_pair->index, ends.queue_pair->carrier};
}

// The upper quantile of a cell that holds several channels.
struct Upper {
  size_t cell = 0;
  double ns_per_kib = 0;
  double usual = 0;
  double usual_bad = 0;
};

void AddUpper(const Windows& windows, Windows::History process, const QueuePairKey& key, size_t back,
              size_t cell, const SlowThresholds& thresholds, std::vector<Upper>* uppers) {
  const std::vector<PathLatency> recent = windows.Recent(process, key, back, thresholds.upper_share);
  if (recent.empty()) return;
  uppers->push_back({cell, recent.back().latency.ns_per_kib,
                     windows.Usual(process, key, thresholds.upper_share).ns_per_kib,
                     windows.Usual(process, key, thresholds.upper_usual_share).ns_per_kib});
}

void JudgeUppers(const std::vector<Upper>& uppers, const SlowThresholds& thresholds,
                 std::vector<Cell>* cells) {
  std::vector<double> ratios;
  for (const Upper& upper : uppers) {
    Cell& cell = (*cells)[upper.cell];
    if (upper.usual > 0) cell.upper_ratio = upper.ns_per_kib / upper.usual;
    ratios.push_back(cell.upper_ratio);
  }
  const double usual_ratio = std::max(ratios.empty() ? 1.0 : analysis::LowerMedian(ratios), 0.5);
  for (const Upper& upper : uppers) {
    Cell& cell = (*cells)[upper.cell];
    cell.slow_upper =
        !cell.slow && cell.upper_ratio >= thresholds.own_factor &&
        cell.upper_ratio >= std::min(thresholds.matrix_factor * usual_ratio, thresholds.matrix_most) &&
        upper.ns_per_kib >= thresholds.bad_factor * upper.usual_bad;
  }
}

}  // namespace

double Cell::bytes() const {
  const QueuePair* const queue_pair = ends->queue_pair;
  if (queue_pair == nullptr || queue_pair->completed_messages == 0) return low.chunks;
  return low.chunks * static_cast<double>(queue_pair->completed_bytes) /
         static_cast<double>(queue_pair->completed_messages);
}

std::vector<Cell> Cells(const std::vector<QueuePairEnds>& queue_pairs, const Windows& windows, size_t back,
                        const SlowThresholds& thresholds) {
  std::vector<Cell> cells;
  std::vector<double> ratios;
  std::vector<Upper> uppers;
  std::map<uint64_t, std::vector<double>> lows;
  std::vector<double>* of_communicator = nullptr;
  const Communicator* communicator = nullptr;
  std::unordered_map<const Process*, Windows::History> histories;
  const Process* sender = nullptr;
  Windows::History process = nullptr;
  std::vector<PathLatency> recent;
  cells.reserve(queue_pairs.size());
  ratios.reserve(queue_pairs.size());
  for (const QueuePairEnds& ends : queue_pairs) {
    if (ends.sender->superseded) continue;
    if (of_communicator == nullptr || ends.communicator != communicator) {  // they come one after the other
      communicator = ends.communicator;
      of_communicator = &lows[communicator->id];
    }
    if (ends.sender->process != sender) {
      sender = ends.sender->process;
      const auto [known_process, is_new] = histories.try_emplace(sender);
      if (is_new) known_process->second = windows.Of(sender->key);
      process = known_process->second;
    }
    windows.Recent(process, KeyOf(ends), back, thresholds.share, &recent);
    if (recent.empty()) continue;
    const Latency usual = windows.Usual(process, KeyOf(ends), thresholds.share);
    const bool known = usual.chunks >= thresholds.min_usual_chunks;
    const double usual_bad =
        known ? windows.Usual(process, KeyOf(ends), thresholds.usual_share).ns_per_kib : 0;
    for (const PathLatency& path : recent) {
      Cell cell;
      cell.ends = &ends;
      cell.local = path.local;
      cell.remote = path.remote;
      cell.low = path.latency;
      if (known) {
        cell.usual = usual.ns_per_kib;
        cell.usual_bad = usual_bad;
        cell.ratio = cell.low.ns_per_kib / cell.usual;
        ratios.push_back(cell.ratio);
      }
      of_communicator->push_back(cell.low.ns_per_kib);
      cells.push_back(cell);
    }
    if (known && ends.queue_pair->carrier == Carrier::kVendor) {
      AddUpper(windows, process, KeyOf(ends), back, cells.size() - 1, thresholds, &uppers);
    }
  }
  // The whole job may have become slower (or faster) for a reason of its own.
  const double usual_ratio = std::max(ratios.empty() ? 1.0 : analysis::LowerMedian(ratios), 0.5);
  std::map<uint64_t, double> medians;
  for (const auto& [id, values] : lows) {
    if (values.size() >= 4) medians[id] = analysis::LowerMedian(values);
  }
  // What the bad chunks of the job usually cost, whichever way they take: less than that holds nobody up.
  const double job_bad = windows.UsualOfAll(thresholds.usual_share).ns_per_kib;
  for (Cell& cell : cells) {
    if (cell.usual > 0) {
      cell.judged = true;
      const bool grown =
          cell.ratio >= thresholds.own_factor &&
          cell.ratio >= std::min(thresholds.matrix_factor * usual_ratio, thresholds.matrix_most);
      cell.slow = grown && cell.low.ns_per_kib >= thresholds.bad_factor * std::max(cell.usual_bad, job_bad);
      cell.unclear = grown && !cell.slow;
      continue;
    }
    const auto median = medians.find(cell.ends->communicator->id);
    if (median == medians.end() || median->second <= 0) continue;
    cell.ratio = cell.low.ns_per_kib / median->second;
    cell.judged = cell.low.chunks >= thresholds.blind_chunks &&
                  windows.Own(cell.ends->sender->process->key, back).seen >= thresholds.blind_slices;
    cell.slow = cell.judged && cell.ratio >= thresholds.blind_factor;
  }
  JudgeUppers(uppers, thresholds, &cells);
  return cells;
}

size_t SlowSlices(const Cell& cell, const Windows& windows, double least_chunks,
                  const SlowThresholds& thresholds) {
  const double share = cell.slow_upper ? thresholds.upper_share : thresholds.share;
  const double usual_share = cell.slow_upper ? thresholds.upper_usual_share : thresholds.usual_share;
  const Windows::History process = windows.Of(cell.ends->sender->process->key);
  const QueuePairKey key = KeyOf(*cell.ends);
  const double usual = windows.Usual(process, key, share).ns_per_kib;
  const double usual_bad = windows.Usual(process, key, usual_share).ns_per_kib;
  size_t slow = 0;
  for (const Latency& slice : windows.BySlices(process, key, share)) {
    if (slice.chunks < least_chunks) continue;
    const bool is_slow = usual > 0 && slice.ns_per_kib >= thresholds.own_factor * usual &&
                         slice.ns_per_kib >= thresholds.bad_factor * usual_bad;
    if (!is_slow) break;
    ++slow;
  }
  return slow;
}

size_t SlicesAgainstChance(const Windows& windows, size_t count, const SlowThresholds& thresholds) {
  constexpr double kSlicesADay = 86400;
  const double share = std::min(windows.ScatterShare(), 0.5);
  const double tries = std::max<double>(1, static_cast<double>(count)) * kSlicesADay;
  const double wanted = std::log(tries / thresholds.chance_a_day) / -std::log(share);
  const auto slices = static_cast<size_t>(std::ceil(std::max(1.0, wanted)));
  return std::clamp(slices, thresholds.again_slices, std::max(thresholds.again_slices, kRecentSlices));
}

namespace {

// Of the newest slice that tells anything.
double UpperRatio(const Windows::History& process, const QueuePairKey& key, const Windows& windows,
                  const SlowThresholds& thresholds) {
  const double usual = windows.Usual(process, key, thresholds.upper_share).ns_per_kib;
  for (const Latency& slice : windows.BySlices(process, key, thresholds.upper_share)) {
    if (slice.chunks >= kLeastSliceChunks && usual > 0) return slice.ns_per_kib / usual;
  }
  return 0;
}

}  // namespace

std::vector<Cell> CellsBySlices(const std::vector<QueuePairEnds>& queue_pairs, const Windows& windows,
                                const SlowThresholds& thresholds) {
  std::vector<Cell> cells;
  std::vector<double> ratios;
  const size_t slices =
      std::max(thresholds.own_persist, SlicesAgainstChance(windows, queue_pairs.size(), thresholds));
  for (const QueuePairEnds& ends : queue_pairs) {
    if (ends.sender->superseded || ends.queue_pair->carrier != Carrier::kVendor) continue;
    const Windows::History process = windows.Of(ends.sender->process->key);
    const Latency usual = windows.Usual(process, KeyOf(ends), thresholds.share);
    if (usual.chunks < thresholds.min_usual_chunks) continue;
    Cell cell;
    cell.ends = &ends;
    cell.usual = usual.ns_per_kib;
    cell.judged = true;
    for (const Latency& slice : windows.BySlices(process, KeyOf(ends), thresholds.share)) {
      if (slice.chunks < kLeastSliceChunks) continue;
      if (cell.low.chunks == 0) cell.low.ns_per_kib = slice.ns_per_kib;
      cell.low.chunks += slice.chunks;
    }
    if (cell.low.chunks == 0) continue;
    cell.ratio = cell.low.ns_per_kib / cell.usual;
    ratios.push_back(cell.ratio);
    cell.slow = SlowSlices(cell, windows, kLeastSliceChunks, thresholds) >= slices;
    if (!cell.slow) {
      cell.slow_upper = true;
      cell.slow_upper = SlowSlices(cell, windows, kLeastSliceChunks, thresholds) >= slices;
      if (cell.slow_upper) cell.upper_ratio = UpperRatio(process, KeyOf(ends), windows, thresholds);
    }
    cells.push_back(cell);
  }
  const double median = std::max(ratios.empty() ? 1.0 : analysis::LowerMedian(ratios), 0.5);
  const double least = std::min(thresholds.matrix_factor * median, thresholds.matrix_most);
  for (Cell& cell : cells) cell.slow = cell.slow && cell.ratio >= least;
  return cells;
}

namespace {

// The vendor's engine says no addresses, and all channels to a peer come together in one way.
std::string CellText(const Cell& cell) {
  const QueuePairEnds& ends = *cell.ends;
  const int32_t to = ends.receiver == nullptr ? -1 : ends.receiver->process->rank;
  const std::string path = cell.local.empty() ? "" : absl::StrFormat(" (%s to %s)", cell.local, cell.remote);
  const std::string channels =
      cell.slow_upper && cell.upper_ratio > 0
          ? absl::StrFormat("; the slower of its channels %.1f times what is usual for them",
                            cell.upper_ratio)
          : "";
  return absl::StrFormat("rank %d to rank %d%s: %.1f us per KiB, %.1f times %s, %.0f chunks%s",
                         ends.sender->process->rank, to, path, cell.low.ns_per_kib / 1e3, cell.ratio,
                         cell.usual > 0 ? "what is usual for it" : "the median of its communicator",
                         cell.low.chunks, channels);
}

}  // namespace

Finding DescribeCells(const std::vector<const Cell*>& cells) {
  Finding finding;
  finding.syndrome = Syndrome::kCommunicationSlow;
  finding.confidence = 0.5;
  std::set<uint64_t> communicators;
  size_t told = 0;
  for (const Cell* cell : cells) {
    ConnectionRef ref = RefOf(*cell->ends);
    ref.local = cell->local;
    ref.remote = cell->remote;
    ref.ratio = cell->ratio;
    finding.connections.push_back(std::move(ref));
    communicators.insert(cell->ends->communicator->id);
    finding.since_at_ns = std::max(finding.since_at_ns, cell->ends->sender->host->as_of_ns - 4 * kSecondNs);
    if (++told <= kMaxTold) finding.evidence.push_back({"latency", CellText(*cell)});
  }
  if (told > kMaxTold) {
    finding.evidence.push_back({"latency", Concat("the same on ", told - kMaxTold, " more queue pairs")});
  }
  SortConnections(&finding.connections);
  finding.communicators.assign(communicators.begin(), communicators.end());
  if (!communicators.empty()) finding.communicator_id = *communicators.begin();
  return finding;
}

std::vector<MatrixCell> LatencyMatrix(const JobSnapshot& snapshot, const Windows& windows,
                                      const SlowThresholds& thresholds) {
  std::vector<MatrixCell> matrix;
  const std::vector<QueuePairEnds>& queue_pairs = CollectQueuePairs(snapshot);
  for (const Cell& cell : Cells(queue_pairs, windows, 0, thresholds)) {
    if (cell.local != cell.ends->queue_pair->local || cell.remote != cell.ends->queue_pair->remote) continue;
    MatrixCell item;
    item.connection = RefOf(*cell.ends);
    item.connection.ratio = cell.ratio;
    item.from_nic = cell.ends->from_nic;
    item.to_nic = cell.ends->to_nic;
    for (const PathLatency& path :
         windows.Recent(cell.ends->sender->process->key, KeyOf(*cell.ends), 0, 0.5)) {
      if (path.local == cell.local && path.remote == cell.remote) item.ns_per_kib = path.latency.ns_per_kib;
    }
    item.low_ns_per_kib = cell.low.ns_per_kib;
    item.usual_ns_per_kib = cell.usual;
    item.chunks = cell.low.chunks;
    item.slow = cell.slow;
    matrix.push_back(std::move(item));
  }
  return matrix;
}

}  // namespace c4::c4d
