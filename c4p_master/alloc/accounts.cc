#include "c4p_master/alloc/accounts.h"

#include <algorithm>

namespace c4::c4p {
namespace {

template <typename Rows>
auto FindOwn(Rows& own, TenantId tenant) {
  return std::lower_bound(own.begin(), own.end(), tenant,
                          [](const auto& entry, TenantId wanted) { return entry.tenant < wanted; });
}

}  // namespace

Accounts::Row& Accounts::At(RowId row) {
  std::vector<Row>& rows = rows_[Index(row.tier)];
  if (row.number >= rows.size()) {
    rows.resize(network_->rows(row.tier));
    totals_[Index(row.tier)].resize(rows.size());
  }
  Row& found = rows[row.number];
  const size_t columns = network_->RowAt(row).kbps.size();
  if (found.kbps.size() < columns) found.kbps.resize(columns, 0);
  return found;
}

int64_t Accounts::Load(const Hop& hop) const {
  const std::vector<Row>& rows = rows_[Index(hop.row.tier)];
  if (hop.row.number >= rows.size() || hop.column >= rows[hop.row.number].kbps.size()) return 0;
  return rows[hop.row.number].kbps[hop.column];
}

const std::vector<int64_t>* Accounts::LoadsOf(TenantId tenant, RowId row) const {
  const std::vector<Row>& rows = rows_[Index(row.tier)];
  if (row.number >= rows.size()) return nullptr;
  const auto found = FindOwn(rows[row.number].own, tenant);
  return found != rows[row.number].own.end() && found->tenant == tenant ? &found->kbps : nullptr;
}

int64_t Accounts::PortLoad(NicId nic, PlaneId plane, Direction direction) const {
  if (plane >= ports_.size() || nic >= ports_[plane].size()) return 0;
  return ports_[plane][nic][static_cast<size_t>(direction)];
}

void Accounts::Add(TenantId tenant, const Hop& hop, int64_t kbps) {
  std::vector<Row>& rows = rows_[Index(hop.row.tier)];
  const bool fits = hop.row.number < rows.size() && hop.column < rows[hop.row.number].kbps.size();
  Row& row = fits ? rows[hop.row.number] : At(hop.row);
  row.kbps[hop.column] += kbps;
  totals_[Index(hop.row.tier)][hop.row.number] += kbps;
  auto own = FindOwn(row.own, tenant);
  if (own == row.own.end() || own->tenant != tenant) {
    own = row.own.insert(own, Own{tenant, 0, {}});
    ++tenant_rows_;
  }
  if (own->kbps.size() <= hop.column) own->kbps.resize(row.kbps.size(), 0);
  own->kbps[hop.column] += kbps;
  own->total += kbps;
  if (own->total != 0) return;
  // Nothing is negative, so that all of it is 0.
  row.own.erase(own);
  --tenant_rows_;
}

void Accounts::AddToPort(NicId nic, PlaneId plane, Direction direction, int64_t kbps) {
  if (plane >= ports_.size()) ports_.resize(plane + 1);
  if (nic >= ports_[plane].size()) ports_[plane].resize(network_->nics(plane));
  ports_[plane][nic][static_cast<size_t>(direction)] += kbps;
}

}  // namespace c4::c4p
