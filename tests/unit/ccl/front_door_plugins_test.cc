// Our plugins as the built library shows them to the vendor's.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include "tests/unit/ccl/front_door.h"

namespace c4::front_door {
namespace {

constexpr const char* kVersion = "2.28.9";

void ExpectGood(const std::map<std::string, std::string>& environment,
                const std::function<std::string()>& body) {
  EXPECT_EQ(InChild(environment, body), "");
}

bool MakesCommunicators(Door& door) {
  ncclUniqueId id;
  ncclComm_t comm = nullptr;
  return DOOR(door, ncclGetUniqueId)(&id) == ncclSuccess &&
         DOOR(door, ncclCommInitRank)(&comm, 2, id, 0) == ncclSuccess;
}

// NCCL compares the name in the table with NCCL_NET before it calls the plugin.
TEST(FrontDoorPlugins, APluginOfTheUsersNamesTheTablesFromTheFirstCommunicatorOn) {
  ExpectGood({{"C4_VENDOR_LIBRARY", Double(kVersion)}, {"FAKE_NET_VERSION", "12"}}, [] {
    // By its default name, which the loader finds among what is loaded.
    DOOR_CHECK(dlopen((BuildFolder() + "/tests/net_v12/libnccl-net.so").c_str(), RTLD_NOW) != nullptr);
    Door door;
    const auto* const table = static_cast<const char* const*>(door.Symbol("ncclNetPlugin_v12"));
    DOOR_CHECK(table != nullptr && std::string(*table) == "C4");
    int version = 0;
    DOOR_CHECK(DOOR(door, ncclGetVersion)(&version) == ncclSuccess);
    DOOR_CHECK(std::string(*table) == "C4");
    DOOR_CHECK(MakesCommunicators(door));
    DOOR_CHECK(std::string(*table) == "Fake");
    return std::string();
  });
  ExpectGood({{"C4_VENDOR_LIBRARY", Double(kVersion)}, {"NCCL_NET_PLUGIN", "none"}}, [] {
    DOOR_CHECK(dlopen((BuildFolder() + "/tests/net_v12/libnccl-net.so").c_str(), RTLD_NOW) != nullptr);
    Door door;
    DOOR_CHECK(MakesCommunicators(door));
    const auto* const table = static_cast<const char* const*>(door.Symbol("ncclNetPlugin_v12"));
    DOOR_CHECK(std::string(*table) == "C4");
    return std::string();
  });
}

}  // namespace
}  // namespace c4::front_door
