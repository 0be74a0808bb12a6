#include "c4d_master/matrix_reply.h"

#include <algorithm>
#include <tuple>
#include <unordered_set>
#include <vector>

#include "c4d_master/detectors/cells.h"

namespace c4::c4d {
namespace {

void Fill(const MatrixCell& cell, v1::MatrixCell* item) {
  item->set_from_rank(cell.connection.from_rank);
  item->set_to_rank(cell.connection.to_rank);
  item->set_from_host(cell.connection.from_host);
  item->set_to_host(cell.connection.to_host);
  item->set_from_nic(cell.from_nic);
  item->set_to_nic(cell.to_nic);
  item->set_communicator_id(cell.connection.communicator_id);
  item->set_channel(cell.connection.channel);
  item->set_index(cell.connection.index);
  item->set_median_ns_per_kib(cell.ns_per_kib);
  item->set_low_ns_per_kib(cell.low_ns_per_kib);
  item->set_usual_ns_per_kib(cell.usual_ns_per_kib);
  item->set_ratio(cell.connection.ratio);
  item->set_chunks(static_cast<uint64_t>(cell.chunks));
  item->set_slow(cell.slow);
}

// Leaves `most` of them, in the order that they had.
void KeepSlowest(size_t most, std::vector<MatrixCell>* cells) {
  const auto key = [](const MatrixCell& cell) { return std::tie(cell.slow, cell.connection.ratio); };
  std::vector<const MatrixCell*> order;
  for (const MatrixCell& cell : *cells) order.push_back(&cell);
  std::nth_element(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(most), order.end(),
                   [&](const MatrixCell* a, const MatrixCell* b) {
                     return std::tuple(key(*b), a) < std::tuple(key(*a), b);
                   });
  std::vector<bool> kept(cells->size());
  for (size_t i = 0; i < most; ++i) kept[static_cast<size_t>(order[i] - cells->data())] = true;
  size_t next = 0;
  for (size_t i = 0; i < cells->size(); ++i) {
    if (kept[i] && next != i) (*cells)[next] = std::move((*cells)[i]);
    next += kept[i] ? 1 : 0;
  }
  cells->resize(next);
}

}  // namespace

void FillMatrix(const JobSnapshot& snapshot, const Windows& windows, const SlowThresholds& thresholds,
                const v1::GetMatrixRequest& request, v1::GetMatrixReply* reply) {
  const std::unordered_set<int32_t> rows(request.ranks().begin(), request.ranks().end());
  const auto is_asked = [&](int32_t rank) { return rows.empty() || rows.contains(rank); };
  std::vector<MatrixCell> cells = LatencyMatrix(snapshot, windows, thresholds);
  std::erase_if(cells, [&](const MatrixCell& cell) {
    return !is_asked(cell.connection.from_rank) && !is_asked(cell.connection.to_rank);
  });
  const size_t most =
      request.most_cells() == 0 ? kMostMatrixCells : std::min<size_t>(kMostMatrixCells, request.most_cells());
  if (cells.size() > most) {
    reply->set_cells_left_out(cells.size() - most);
    KeepSlowest(most, &cells);
  }
  reply->mutable_cells()->Reserve(static_cast<int>(cells.size()));
  for (const MatrixCell& cell : cells) Fill(cell, reply->add_cells());
  for (const ProcessRef& ref : snapshot.processes) {
    if (ref.superseded || ref.process->ended || ref.process->rank < 0 || !is_asked(ref.process->rank))
      continue;
    const OwnTime own = windows.Own(ref.process->key, 0);
    if (own.slices == 0) continue;
    v1::RankTime* item = reply->add_ranks();
    item->set_rank(ref.process->rank);
    item->set_host(ref.host->name);
    item->set_own_ns(own.recent_ns);
    item->set_usual_own_ns(own.usual_ns);
    item->set_cycle_ns(own.cycle_ns);
    item->set_first_wait_ns(own.first_wait_ns);
  }
}

}  // namespace c4::c4d
