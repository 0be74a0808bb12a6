#include "page/matrix.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "service/text.h"

namespace c4::page {
namespace {

enum class By { kRank, kNode, kNic };

absl::StatusOr<By> ByOf(const std::string& word) {
  if (word.empty() || word == "rank") return By::kRank;
  if (word == "node") return By::kNode;
  if (word == "nic") return By::kNic;
  return absl::InvalidArgumentError("a matrix is by rank, node or nic");
}

std::string NameOf(By by, int32_t rank, const std::string& host, const std::string& nic) {
  if (by == By::kRank) return service::Concat("rank ", rank);
  if (by == By::kNode) return host;
  return service::Concat(nic, " of ", host);
}

std::string FromOf(By by, const v1::MatrixCell& cell) {
  return NameOf(by, cell.from_rank(), cell.from_host(), cell.from_nic());
}
std::string ToOf(By by, const v1::MatrixCell& cell) {
  return NameOf(by, cell.to_rank(), cell.to_host(), cell.to_nic());
}

struct Row {
  int32_t first_rank = 0;
  std::string host;
};

struct Together {
  const v1::MatrixCell* slowest = nullptr;
  uint32_t queue_pairs = 0;
  bool slow = false;
};

}  // namespace

absl::StatusOr<v1::PageMatrix> PutTogether(const v1::GetMatrixReply& reply, const std::string& by_word) {
  const absl::StatusOr<By> by = ByOf(by_word);
  if (!by.ok()) return by.status();
  std::map<std::string, Row> rows;
  const auto add = [&](const std::string& name, int32_t rank, const std::string& host) {
    const auto [at, is_new] = rows.try_emplace(name, Row{rank, host});
    if (!is_new) at->second.first_rank = std::min(at->second.first_rank, rank);
  };
  std::map<std::pair<std::string, std::string>, Together> cells;
  for (const v1::MatrixCell& cell : reply.cells()) {
    const std::string from = FromOf(*by, cell);
    const std::string to = ToOf(*by, cell);
    add(from, cell.from_rank(), cell.from_host());
    add(to, cell.to_rank(), cell.to_host());
    Together& together = cells[{from, to}];
    ++together.queue_pairs;
    together.slow = together.slow || cell.slow();
    if (together.slowest == nullptr || together.slowest->ratio() < cell.ratio()) together.slowest = &cell;
  }
  std::vector<std::pair<std::string, Row>> order(rows.begin(), rows.end());
  std::sort(order.begin(), order.end(), [](const auto& a, const auto& b) {
    return std::tie(a.second.first_rank, a.first) < std::tie(b.second.first_rank, b.first);
  });

  v1::PageMatrix matrix;
  matrix.set_job(reply.job());
  matrix.set_master_epoch(reply.master_epoch());
  matrix.set_unix_ns(reply.unix_ns());
  matrix.set_by(*by == By::kRank ? "rank" : *by == By::kNode ? "node" : "nic");
  matrix.set_cells_left_out(reply.cells_left_out());
  *matrix.mutable_ranks() = reply.ranks();
  std::map<std::string, uint32_t> places;
  for (const auto& [name, row] : order) {
    places[name] = static_cast<uint32_t>(matrix.names_size());
    matrix.add_names(name);
    matrix.add_hosts(row.host);
  }
  for (const auto& [ends, together] : cells) {
    matrix.add_from(places[ends.first]);
    matrix.add_to(places[ends.second]);
    matrix.add_ratio(static_cast<float>(together.slowest->ratio()));
    matrix.add_us_per_kib(static_cast<float>(together.slowest->median_ns_per_kib() / 1e3));
    matrix.add_queue_pairs(together.queue_pairs);
    matrix.add_slow(together.slow);
  }
  return matrix;
}

absl::StatusOr<v1::GetMatrixReply> CellOf(const v1::GetMatrixReply& reply, const std::string& by_word,
                                          const std::string& from, const std::string& to) {
  const absl::StatusOr<By> by = ByOf(by_word);
  if (!by.ok()) return by.status();
  v1::GetMatrixReply result;
  result.set_job(reply.job());
  result.set_master_epoch(reply.master_epoch());
  result.set_unix_ns(reply.unix_ns());
  for (const v1::MatrixCell& cell : reply.cells()) {
    if (FromOf(*by, cell) == from && ToOf(*by, cell) == to) *result.add_cells() = cell;
  }
  std::stable_sort(result.mutable_cells()->begin(), result.mutable_cells()->end(),
                   [](const auto& a, const auto& b) { return a.ratio() > b.ratio(); });
  return result;
}

}  // namespace c4::page
