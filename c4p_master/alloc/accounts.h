// How much traffic was promised to each link: of all, and of each tenant alone.
//
// In whole kbit/s, so that what is taken back restores exactly what was there. A tenant's accounts exist only
// for the switches that it has traffic at, and go with it. Not thread-safe; no errors: rows and ports have to
// be the network's.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "c4p_master/alloc/network.h"

namespace c4::c4p {

using TenantId = uint32_t;

class Accounts {
 public:
  explicit Accounts(const Network* network) : network_(network) {}

  // As many columns as the network's row has. Valid until the network grows.
  const std::vector<int64_t>& Loads(RowId row) { return At(row).kbps; }
  int64_t Load(const Hop& hop) const;
  // Of the whole row.
  int64_t Total(RowId row) const {
    const std::vector<int64_t>& totals = totals_[Index(row.tier)];
    return row.number < totals.size() ? totals[row.number] : 0;
  }
  // Null: nothing; may be shorter than the row. Valid until the next Add.
  const std::vector<int64_t>* LoadsOf(TenantId tenant, RowId row) const;
  int64_t PortLoad(NicId nic, PlaneId plane, Direction direction) const;

  void Add(TenantId tenant, const Hop& hop, int64_t kbps);
  void AddToPort(NicId nic, PlaneId plane, Direction direction, int64_t kbps);

  // Rows of tenants that have traffic.
  size_t tenant_rows() const { return tenant_rows_; }

 private:
  struct Own {
    TenantId tenant = 0;
    int64_t total = 0;
    std::vector<int64_t> kbps;
  };
  struct Row {
    std::vector<int64_t> kbps;
    std::vector<Own> own;  // by tenant: those of one leaf are few
  };

  static size_t Index(Tier tier) { return tier == Tier::kSpine ? 1 : 0; }
  Row& At(RowId row);

  const Network* network_;
  std::array<std::vector<Row>, 2> rows_;
  std::array<std::vector<int64_t>, 2> totals_;
  std::vector<std::vector<std::array<int64_t, 2>>> ports_;  // by plane, NIC, direction
  size_t tenant_rows_ = 0;
};

}  // namespace c4::c4p
