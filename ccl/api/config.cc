#include "ccl/api/config.h"

#include <algorithm>
#include <climits>
#include <cstddef>
#include <cstring>

namespace c4::api {
namespace {

constexpr unsigned int kConfigMagic = 0xcafebeef;
constexpr unsigned int kFirstVersion = NCCL_VERSION(2, 14, 0);  // the release that introduced the structure
constexpr size_t kFirstBytes = offsetof(ncclConfig_t, blocking) + sizeof(int);
constexpr size_t kMaxBytes = 4096;  // no release comes near; more is not a size but garbage

static_assert(sizeof(ncclConfig_t) == 80);

struct Member {
  const char* name;
  int ncclConfig_t::*value;
  unsigned int since;  // in an older program's structure these bytes are absent, or padding
  int low;
  int high;
};

constexpr Member kMembers[] = {
    {"blocking", &ncclConfig_t::blocking, NCCL_VERSION(2, 14, 0), 0, 1},
    {"cgaClusterSize", &ncclConfig_t::cgaClusterSize, NCCL_VERSION(2, 17, 0), 0, INT_MAX},
    {"minCTAs", &ncclConfig_t::minCTAs, NCCL_VERSION(2, 17, 0), 1, INT_MAX},
    {"maxCTAs", &ncclConfig_t::maxCTAs, NCCL_VERSION(2, 17, 0), 1, INT_MAX},
    {"splitShare", &ncclConfig_t::splitShare, NCCL_VERSION(2, 18, 0), 0, 1},
    {"trafficClass", &ncclConfig_t::trafficClass, NCCL_VERSION(2, 25, 0), INT_MIN, INT_MAX},
    {"collnetEnable", &ncclConfig_t::collnetEnable, NCCL_VERSION(2, 27, 0), 0, 1},
    {"CTAPolicy", &ncclConfig_t::CTAPolicy, NCCL_VERSION(2, 27, 0), 0, INT_MAX},
    {"shrinkShare", &ncclConfig_t::shrinkShare, NCCL_VERSION(2, 27, 0), 0, 1},
    {"nvlsCTAs", &ncclConfig_t::nvlsCTAs, NCCL_VERSION(2, 27, 0), 1, INT_MAX},
    {"nChannelsPerNetPeer", &ncclConfig_t::nChannelsPerNetPeer, NCCL_VERSION(2, 28, 0), 1, INT_MAX},
    {"nvlinkCentricSched", &ncclConfig_t::nvlinkCentricSched, NCCL_VERSION(2, 28, 0), 0, 1},
};
constexpr unsigned int kNameSince = NCCL_VERSION(2, 27, 0);

Result CheckHeader(const ncclConfig_t& config) {
  // The magic is looked at first: without it the size says nothing.
  if (config.magic != kConfigMagic) {
    return Fail(ncclInvalidArgument, "the config was not set to NCCL_CONFIG_INITIALIZER first (magic 0x%08x)",
                config.magic);
  }
  if (config.size < kFirstBytes || config.size > kMaxBytes) {
    return Fail(ncclInvalidArgument,
                "the config says that it is %zu bytes long: set it to NCCL_CONFIG_INITIALIZER", config.size);
  }
  if (config.version < kFirstVersion) {
    return Fail(ncclInvalidArgument,
                "the config says version %u, before there was one: set it to "
                "NCCL_CONFIG_INITIALIZER",
                config.version);
  }
  if (config.version <= NCCL_VERSION_CODE && config.size > sizeof(ncclConfig_t)) {
    return Fail(ncclInvalidArgument, "the config of version %u says %zu bytes, more than that version has",
                config.version, config.size);
  }
  return Ok();
}

// Members which the program's header did not have become "not set".
ncclConfig_t Widen(const void* config, size_t bytes, unsigned int version) {
  ncclConfig_t whole = NCCL_CONFIG_INITIALIZER;
  memcpy(&whole, config, std::min(bytes, sizeof whole));
  for (const Member& member : kMembers) {
    if (version < member.since) whole.*member.value = NCCL_CONFIG_UNDEF_INT;
  }
  if (version < kNameSince) whole.commName = nullptr;
  return whole;
}

Result CheckMembers(const ncclConfig_t& config) {
  for (const Member& member : kMembers) {
    const int value = config.*member.value;
    if (value == NCCL_CONFIG_UNDEF_INT || (value >= member.low && value <= member.high)) continue;
    return Fail(ncclInvalidArgument, "config.%s = %d is out of range", member.name, value);
  }
  if (config.minCTAs != NCCL_CONFIG_UNDEF_INT && config.maxCTAs != NCCL_CONFIG_UNDEF_INT &&
      config.minCTAs > config.maxCTAs) {
    return Fail(ncclInvalidArgument, "config.minCTAs = %d is more than config.maxCTAs = %d", config.minCTAs,
                config.maxCTAs);
  }
  return Ok();
}

}  // namespace

Result ReadConfig(const ncclConfig_t* config, CommunicatorSettings* settings) {
  *settings = {};
  if (config == nullptr) return Ok();
  // Size, magic and version are there in every release; nothing past the size is touched.
  ncclConfig_t head = NCCL_CONFIG_INITIALIZER;
  memcpy(&head, config, offsetof(ncclConfig_t, blocking));
  C4_RETURN_IF_ERROR(CheckHeader(head));
  const ncclConfig_t whole = Widen(config, head.size, head.version);
  C4_RETURN_IF_ERROR(CheckMembers(whole));
  if (whole.blocking != NCCL_CONFIG_UNDEF_INT) settings->blocking = whole.blocking != 0;
  if (whole.commName != nullptr) settings->name = whole.commName;
  return Ok();
}

}  // namespace c4::api
