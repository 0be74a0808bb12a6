// Numbers of tenants by name, small ones, as the allocator's accounts want them. A tenant has its number
// while he has connections; then somebody else gets it. One thread; no errors.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "c4p_master/alloc/accounts.h"

namespace c4::c4p {

class TenantNumbers {
 public:
  // For one more connection of his.
  TenantId Take(const std::string& name) {
    Tenant& tenant = tenants_[name];
    if (tenant.connections++ > 0) return tenant.number;
    if (free_.empty()) {
      tenant.number = next_++;
    } else {
      tenant.number = free_.back();
      free_.pop_back();
    }
    return tenant.number;
  }
  // One connection less. REQUIRES: it was taken.
  void GiveBack(const std::string& name) {
    const auto found = tenants_.find(name);
    if (--found->second.connections > 0) return;
    free_.push_back(found->second.number);
    tenants_.erase(found);
  }
  size_t size() const { return tenants_.size(); }

 private:
  struct Tenant {
    TenantId number = 0;
    size_t connections = 0;
  };

  std::map<std::string, Tenant> tenants_;
  std::vector<TenantId> free_;
  TenantId next_ = 0;
};

}  // namespace c4::c4p
