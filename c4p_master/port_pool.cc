#include "c4p_master/port_pool.h"

namespace c4::c4p {

bool PortPool::IsFree(service::IpAddress source, uint32_t port) const {
  if (!range_.Holds(port)) return false;
  const auto found = sources_.find(source);
  return found == sources_.end() || found->second.users[port - range_.low] == 0;
}

void PortPool::Take(service::IpAddress source, uint32_t port) {
  if (!range_.Holds(port)) return;
  Source& at = sources_[source];
  if (at.users.empty()) at.users.resize(size_t{range_.high} - range_.low + 1);
  if (at.users[port - range_.low]++ == 0) ++at.used;
}

void PortPool::Release(service::IpAddress source, uint32_t port) {
  const auto found = sources_.find(source);
  if (!range_.Holds(port) || found == sources_.end() || found->second.users[port - range_.low] == 0) return;
  if (--found->second.users[port - range_.low] == 0) --found->second.used;
}

std::vector<uint16_t> PortPool::Candidates(service::IpAddress source, size_t count) {
  Source& at = sources_[source];
  if (at.users.empty()) at.users.resize(size_t{range_.high} - range_.low + 1);
  std::vector<uint16_t> result;
  for (size_t looked = 0; looked < at.users.size() && result.size() < count; ++looked) {
    const uint32_t index = at.next;
    at.next = (at.next + 1) % static_cast<uint32_t>(at.users.size());
    if (at.users[index] == 0) result.push_back(static_cast<uint16_t>(range_.low + index));
  }
  return result;
}

size_t PortPool::used(service::IpAddress source) const {
  const auto found = sources_.find(source);
  return found == sources_.end() ? 0 : found->second.used;
}

}  // namespace c4::c4p
