// The tables that NCCL looks for in a plugin, by name, from the newest version down: each turns its calls
// into those of net_plugin.h. Exported; C names. Written only by PrepareTables.
#pragma once

#include "ccl/plugins/net/abi.h"

#define C4_PLUGIN_TABLE extern "C" __attribute__((visibility("default")))

C4_PLUGIN_TABLE c4::net::abi::Net8 ncclNetPlugin_v8;
C4_PLUGIN_TABLE c4::net::abi::Net9 ncclNetPlugin_v9;
C4_PLUGIN_TABLE c4::net::abi::Net10 ncclNetPlugin_v10;
C4_PLUGIN_TABLE c4::net::abi::Net11 ncclNetPlugin_v11;
C4_PLUGIN_TABLE c4::net::abi::Net12 ncclNetPlugin_v12;
