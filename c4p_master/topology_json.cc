// Topology as JSON, for people, `c4 topology --json` and the file's reader.
#include <nlohmann/json.hpp>

#include "c4p_master/topology.h"

namespace c4::c4p {
namespace {

using Json = nlohmann::ordered_json;
using service::IpAddress;

void SetAddress(Json* json, const char* key, IpAddress address) {
  if (address.known()) (*json)[key] = IpText(address);
}

void SetText(Json* json, const char* key, const std::string& text) {
  if (!text.empty()) (*json)[key] = text;
}

template <typename Cable>
void SetState(Json* json, const Cable& cable) {
  if (cable.rate_mbps > 0) (*json)["rate_mbps"] = cable.rate_mbps;
  if (cable.faulty) (*json)["faulty"] = true;
  SetText(json, "why", cable.why);
}

Json SwitchesJson(const std::vector<Switch>& switches) {
  Json list = Json::array();
  for (const Switch& one : switches) {
    Json entry = {{"name", one.name}};
    for (const IpAddress address : one.addresses) entry["addresses"].push_back(IpText(address));
    list.push_back(std::move(entry));
  }
  return list;
}

Json PortJson(const Topology& topology, const Port& port) {
  Json json = {{"leaf", topology.leaves()[static_cast<size_t>(port.leaf)].name}, {"plane", port.plane}};
  SetAddress(&json, "gateway", port.gateway);
  SetText(&json, "leaf_port", port.leaf_port);
  SetState(&json, port);
  return json;
}

Json ServerJson(const Topology& topology, const Server& server) {
  Json json = {{"name", server.name}, {"nics", Json::array()}};
  for (const int number : server.nics) {
    const Nic& nic = topology.nics()[static_cast<size_t>(number)];
    Json ports = Json::array();
    for (const int port : nic.ports) {
      ports.push_back(PortJson(topology, topology.ports()[static_cast<size_t>(port)]));
    }
    json["nics"].push_back(
        {{"name", nic.name}, {"address", IpText(nic.address)}, {"ports", std::move(ports)}});
  }
  return json;
}

}  // namespace

std::string TopologyJson(const Topology& topology, const std::vector<std::string>& contradictions) {
  Json json;
  json["leaves"] = SwitchesJson(topology.leaves());
  json["spines"] = SwitchesJson(topology.spines());
  json["servers"] = Json::array();
  for (const Server& server : topology.servers()) json["servers"].push_back(ServerJson(topology, server));
  json["uplinks"] = Json::array();
  for (const Uplink& uplink : topology.uplinks()) {
    Json entry = {{"leaf", topology.leaves()[static_cast<size_t>(uplink.leaf)].name},
                  {"spine", topology.spines()[static_cast<size_t>(uplink.spine)].name}};
    SetAddress(&entry, "leaf_address", uplink.leaf_address);
    SetAddress(&entry, "spine_address", uplink.spine_address);
    SetText(&entry, "leaf_port", uplink.leaf_port);
    SetText(&entry, "spine_port", uplink.spine_port);
    SetState(&entry, uplink);
    json["uplinks"].push_back(std::move(entry));
  }
  if (!contradictions.empty()) json["contradictions"] = contradictions;
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace c4::c4p
