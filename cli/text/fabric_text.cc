#include "cli/text/fabric_text.h"

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

namespace c4::cli {
namespace {

using Json = nlohmann::json;

Json AddressesJson(const fabric::FabricState& state, int host) {
  return {{"name", fabric::HostName(host)},
          {"namespace", fabric::HostNamespace(state.spec, host)},
          {"addresses", fabric::HostAddresses(state.spec, host)},
          {"management_address", fabric::ManagementAddress(state.block, host)},
          {"leaf", fabric::LeafOfHost(state.spec, host, 0)}};
}

}  // namespace

std::string FabricText(const fabric::FabricStatus& status) {
  const fabric::FabricSpec& spec = status.state.spec;
  std::string rate = spec.rate_mbps > 0 ? absl::StrCat(spec.rate_mbps, " Mbit/s a link") : "not shaped";
  std::string quota =
      spec.quota_percent > 0 ? absl::StrCat(", ", spec.quota_percent, " % of a core a host") : "";
  std::string text = absl::StrCat(
      "fabric ", spec.name, ": ", spec.leaves, " leaves, ", spec.spines, " spines, ", fabric::HostCount(spec),
      " hosts (ports: ", fabric::PortsName(spec.ports), spec.ipv6 ? ", IPv6" : "", "), ", rate, quota, ", ",
      spec.convergence == fabric::Convergence::kBird ? "routed by BIRD"
                                                     : absl::StrCat("converges in ", spec.converge_ms, " ms"),
      "; ", status.processes, " processes\n");
  if (!status.missing.empty()) {
    absl::StrAppend(&text, "missing: ", absl::StrJoin(status.missing, ", "), "; take it down and up again\n");
  }
  for (int host = 0; host < fabric::HostCount(spec); ++host) {
    absl::StrAppendFormat(&text, "  %-8s leaf%-3d %-24s management %s\n", fabric::HostName(host),
                          fabric::LeafOfHost(spec, host, 0),
                          absl::StrJoin(fabric::HostAddresses(spec, host), ", "),
                          fabric::ManagementAddress(status.state.block, host));
  }
  int healthy = 0;
  for (const fabric::LinkStatus& link : status.links) {
    if (link.carrier && link.faults.empty()) {
      ++healthy;
      continue;
    }
    std::string faults = absl::StrJoin(link.faults, ", ", [](std::string* out, fabric::FaultKind kind) {
      absl::StrAppend(out, fabric::FaultName(kind));
    });
    absl::StrAppend(&text, "  ", fabric::LinkName(link.link), ": ", link.carrier ? "carrier" : "no carrier",
                    faults.empty() ? "" : ", " + faults,
                    link.rate_mbps > 0 ? absl::StrCat(", ", link.rate_mbps, " Mbit/s") : "", "\n");
  }
  absl::StrAppend(&text, "  ", healthy, " of ", status.links.size(), " links are healthy\n");
  for (const auto& [host, percent] : status.state.quotas) {
    absl::StrAppend(&text, "  ", fabric::HostName(host), ": CPU quota ", percent, " % of a core\n");
  }
  return text;
}

std::string FabricJson(const fabric::FabricStatus& status) {
  Json json = Json::parse(fabric::StateText(status.state));
  json["processes"] = status.processes;
  json["missing_namespaces"] = status.missing;
  json["hosts"] = Json::array();
  for (int host = 0; host < fabric::HostCount(status.state.spec); ++host) {
    json["hosts"].push_back(AddressesJson(status.state, host));
  }
  json["links"] = Json::array();
  for (const fabric::LinkStatus& link : status.links) {
    Json faults = Json::array();
    for (const fabric::FaultKind kind : link.faults) faults.push_back(fabric::FaultName(kind));
    json["links"].push_back({{"name", fabric::LinkName(link.link)},
                             {"carrier", link.carrier},
                             {"rate_mbps", link.rate_mbps},
                             {"faults", faults}});
  }
  return json.dump(2) + "\n";
}

std::string DownText(const std::string& name, const fabric::DownReport& report) {
  return absl::StrFormat("fabric %s is down: %d namespaces removed, %d processes ended\n", name,
                         report.namespaces, report.processes);
}

std::string DownJson(const std::string& name, const fabric::DownReport& report) {
  const Json json = {{"fabric", name}, {"namespaces", report.namespaces}, {"processes", report.processes}};
  return json.dump(2) + "\n";
}

}  // namespace c4::cli
