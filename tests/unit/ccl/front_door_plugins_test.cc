// Our plugins as the built library shows them to the vendor's.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include "ccl/plugins/profiler/abi.h"
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

// NCCL takes one profiler plugin: ours, which loads the user's.
TEST(FrontDoorPlugins, AProfilerOfTheUsersHearsWhatOursHears) {
  const std::string users = BuildFolder() + "/tests/profilers/libnccl-profiler-fake5.so";
  ExpectGood({{"C4_VENDOR_LIBRARY", Double(kVersion)}, {"NCCL_PROFILER_PLUGIN", users}}, [&] {
    Door door;
    DOOR_CHECK(Variable("C4_USER_PROFILER") == users);
    DOOR_CHECK(Variable("NCCL_PROFILER_PLUGIN") != users);
    int version = 0;
    DOOR_CHECK(DOOR(door, ncclGetVersion)(&version) == ncclSuccess);
    const auto* const table = static_cast<const nccl_profiler::TableV6*>(door.Symbol("ncclProfiler_v6"));
    DOOR_CHECK(table != nullptr);
    void* context = nullptr;
    int mask = 0;
    DOOR_CHECK(table->init(&context, 77, &mask, "name", 1, 4, 0, nullptr) == 0);
    DOOR_CHECK(context != nullptr && (mask & nccl_profiler::kKernelCh) != 0);
    void* const plugin = dlopen(users.c_str(), RTLD_NOW | RTLD_NOLOAD);
    DOOR_CHECK(plugin != nullptr);
    const auto said = reinterpret_cast<const char* (*)()>(dlsym(plugin, "FakeProfilerSaid"));
    DOOR_CHECK(std::string(said()) == "init name 4d 0/4\n");
    DOOR_CHECK(table->finalize(context) == 0);
    DOOR_CHECK(std::string(said()) == "finalize 1\n");
    return std::string();
  });
  // Releases whose profiler we do not serve get the user's own.
  ExpectGood({{"C4_VENDOR_LIBRARY", Double("2.24.0")}, {"NCCL_PROFILER_PLUGIN", users}}, [&] {
    Door door;
    int version = 0;
    DOOR_CHECK(DOOR(door, ncclGetVersion)(&version) == ncclSuccess);
    DOOR_CHECK(Variable("NCCL_PROFILER_PLUGIN") == users);
    return std::string();
  });
}

// NCCL looks for one in the network plugin that it was told of, which is ours.
TEST(FrontDoorPlugins, ATunerInTheUsersNetworkPluginIsNamed) {
  const std::string net = BuildFolder() + "/tests/net_v12/libnccl-net.so";
  ExpectGood({{"C4_VENDOR_LIBRARY", Double(kVersion)}, {"FAKE_NET_VERSION", "12"}}, [&] {
    DOOR_CHECK(dlopen(net.c_str(), RTLD_NOW) != nullptr);
    Door door;
    int version = 0;
    DOOR_CHECK(DOOR(door, ncclGetVersion)(&version) == ncclSuccess);
    DOOR_CHECK(Variable("NCCL_TUNER_PLUGIN") == "libnccl-net.so");
    return std::string();
  });
  ExpectGood({{"C4_VENDOR_LIBRARY", Double(kVersion)}, {"NCCL_TUNER_PLUGIN", "mine"}}, [&] {
    DOOR_CHECK(dlopen(net.c_str(), RTLD_NOW) != nullptr);
    Door door;
    int version = 0;
    DOOR_CHECK(DOOR(door, ncclGetVersion)(&version) == ncclSuccess);
    DOOR_CHECK(Variable("NCCL_TUNER_PLUGIN") == "mine");
    return std::string();
  });
}

}  // namespace
}  // namespace c4::front_door
