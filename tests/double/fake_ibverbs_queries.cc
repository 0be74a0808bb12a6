// The double of libibverbs: what it says of its device.
#include <cstring>

#include "ccl/transport/verbs/abi.h"

using namespace c4::verbs::abi;

extern "C" {

int ibv_query_device(Context* /*context*/, DeviceAttributes* attributes) {
  *attributes = {};
  attributes->port_count = 1;
  return 0;
}

int ibv_query_port(Context* /*context*/, uint8_t /*port*/, PortAttributes* attributes) {
  *attributes = {};
  attributes->state = kPortActive;
  attributes->link_layer = kLinkEthernet;
  attributes->active_mtu = 3;
  attributes->gid_table_length = 1;
  return 0;
}

int ibv_query_gid(Context* /*context*/, uint8_t /*port*/, int index, Gid* gid) {
  if (index != 0) return -1;
  constexpr uint8_t kLoopback[16] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 127, 0, 0, 1};
  memcpy(gid->raw, kLoopback, sizeof kLoopback);
  return 0;
}

int _ibv_query_gid_ex(Context* context, uint32_t port, uint32_t index, GidEntry* entry, uint32_t /*flags*/,
                      size_t /*entry_bytes*/) {
  *entry = {};
  entry->gid_index = index;
  entry->port_number = port;
  entry->gid_type = kGidRoceV2;
  return ibv_query_gid(context, static_cast<uint8_t>(port), static_cast<int>(index), &entry->gid);
}

int ibv_fork_init() {
  return 0;
}
}
