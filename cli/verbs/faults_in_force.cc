#include "cli/verbs/faults_in_force.h"

#include <algorithm>

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "cli/base/process.h"
#include "fabric/emulator/fabric.h"

namespace c4::cli {

absl::StatusOr<std::vector<FaultInForce>> FaultsInForce(const fabric::JobView& job) {
  std::vector<FaultInForce> faults;
  if (!job.fabric.empty()) {
    const absl::StatusOr<fabric::FabricState> state = fabric::LoadState(job.fabric);
    if (!state.ok()) return state.status();
    for (const fabric::LinkFault& fault : state->faults) {
      faults.push_back({fabric::FaultName(fault.kind), fabric::LinkName(fault.link)});
    }
    for (const auto& [host, percent] : state->quotas) faults.push_back({"quota", fabric::HostName(host)});
    for (const int host : state->isolated) faults.push_back({"isolated", fabric::HostName(host)});
  }
  for (const fabric::JobView::Rank& rank : job.ranks) {
    if (std::ranges::any_of(fabric::ProcessesOfRank(rank), IsStopped)) {
      faults.push_back({"stopped", absl::StrCat("rank", rank.rank)});
    }
  }
  for (size_t host = 0; host < job.agents.size(); ++host) {
    if (job.agents[host] != 0 && IsStopped(job.agents[host])) {
      faults.push_back({"stopped", absl::StrCat("the agent of host", host)});
    }
  }
  return faults;
}

std::string HealedAllText(const std::vector<FaultInForce>& healed, double unix_s) {
  const std::string time = absl::StrFormat("%.3f", unix_s);
  if (healed.empty()) return time + " heal: nothing was in force";
  return absl::StrCat(time,
                      " heal: ", absl::StrJoin(healed, ", ", [](std::string* out, const FaultInForce& fault) {
                        absl::StrAppend(out, fault.target, " (", fault.kind, ")");
                      }));
}

std::string HealedAllJson(const std::vector<FaultInForce>& healed, double unix_s) {
  nlohmann::json json = {{"event", "heal"}, {"id", 0}, {"unix_s", unix_s}};
  json["healed"] = nlohmann::json::array();
  for (const FaultInForce& fault : healed) {
    json["healed"].push_back({{"kind", fault.kind}, {"target", fault.target}});
  }
  return json.dump();
}

}  // namespace c4::cli
