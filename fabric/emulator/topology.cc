#include "fabric/emulator/topology.h"

#include <nlohmann/json.hpp>

namespace c4::fabric {
namespace {

using nlohmann::ordered_json;

ordered_json WithRate(ordered_json entry, const FabricSpec& spec) {
  if (spec.rate_mbps > 0) entry["rate_mbps"] = spec.rate_mbps;
  return entry;
}

}  // namespace

std::string TopologyFile(const FabricSpec& spec) {
  ordered_json leaves = ordered_json::array();
  ordered_json spines = ordered_json::array();
  ordered_json servers = ordered_json::array();
  ordered_json uplinks = ordered_json::array();
  for (int leaf = 0; leaf < spec.leaves; ++leaf) {
    leaves.push_back({{"name", "leaf" + std::to_string(leaf)}});
    for (int spine = 0; spine < spec.spines; ++spine) {
      uplinks.push_back(WithRate({{"leaf", "leaf" + std::to_string(leaf)},
                                  {"spine", "spine" + std::to_string(spine)},
                                  {"leaf_address", LeafUplinkAddress(spec, leaf, spine)},
                                  {"spine_address", SpineDownlinkAddress(spec, leaf, spine)}},
                                 spec));
    }
  }
  for (int spine = 0; spine < spec.spines; ++spine)
    spines.push_back({{"name", "spine" + std::to_string(spine)}});
  for (int host = 0; host < HostCount(spec); ++host) {
    const auto port_of = [&](int port) {
      return WithRate({{"leaf", "leaf" + std::to_string(LeafOfHost(spec, host, port))},
                       {"plane", port},
                       {"gateway", HostGateway(spec, host, port)}},
                      spec);
    };
    ordered_json nics = ordered_json::array();
    if (spec.ports == Ports::kBonded) {
      nics.push_back({{"name", "data0"},
                      {"address", HostAddresses(spec, host).front()},
                      {"ports", {port_of(0), port_of(1)}}});
    } else {
      for (int port = 0; port < PortsPerHost(spec); ++port) {
        nics.push_back({{"name", "eth" + std::to_string(port)},
                        {"address", HostPortAddress(spec, host, port)},
                        {"ports", {port_of(port)}}});
      }
    }
    servers.push_back({{"name", HostName(host)}, {"nics", std::move(nics)}});
  }
  return ordered_json({{"leaves", std::move(leaves)},
                       {"spines", std::move(spines)},
                       {"servers", std::move(servers)},
                       {"uplinks", std::move(uplinks)}})
             .dump(2) +
         "\n";
}

}  // namespace c4::fabric
