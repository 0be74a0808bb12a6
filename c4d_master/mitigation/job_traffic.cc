#include "c4d_master/mitigation/job_traffic.h"

#include <algorithm>
#include <array>

namespace c4::c4d {

JobTraffic TrafficOf(const std::map<std::string, Host>& hosts) {
  JobTraffic traffic;
  std::map<std::pair<uint64_t, uint32_t>, HostPid> members;  // by communicator and rank in it
  for (const auto& [name, host] : hosts) {
    for (const Process& process : host.processes) {
      if (process.ended || CannotRun(process.health.state)) continue;
      const HostPid id = {name, process.key.pid};
      traffic.ranks[id] = process.rank;
      for (const Membership& membership : process.communicators) {
        members[{membership.communicator_id, membership.rank}] = id;
      }
    }
  }
  constexpr size_t kCarriers = 3;
  BytesByPair<std::array<uint64_t, kCarriers>> by_carrier;
  for (const auto& [name, host] : hosts) {
    for (const Process& process : host.processes) {
      const HostPid from = {name, process.key.pid};
      if (!traffic.ranks.contains(from)) continue;
      for (const Membership& membership : process.communicators) {
        for (const QueuePair& pair : membership.queue_pairs) {
          const auto to = members.find({membership.communicator_id, pair.peer});
          if (!pair.sends || to == members.end()) continue;
          by_carrier[{from, to->second}][static_cast<size_t>(pair.carrier)] += pair.completed_bytes;
        }
      }
    }
  }
  for (const auto& [ends, bytes] : by_carrier) {
    traffic.completed_bytes[ends] = *std::max_element(bytes.begin(), bytes.end());
  }
  return traffic;
}

BytesByPair<double> BytesPerStep(const JobTraffic& before, const JobTraffic& after, uint64_t steps) {
  BytesByPair<double> per_step;
  if (steps == 0) return per_step;
  for (const auto& [ends, bytes] : after.completed_bytes) {
    const auto at = before.completed_bytes.find(ends);
    const uint64_t then = at == before.completed_bytes.end() ? 0 : at->second;
    if (bytes < then) return {};
    if (bytes > then) per_step[ends] = static_cast<double>(bytes - then) / static_cast<double>(steps);
  }
  return per_step;
}

}  // namespace c4::c4d
