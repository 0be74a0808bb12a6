// Which devices the network plugin offers, from a made-up /sys: where cards stand, how fast they are, and
// when it stands back.
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <set>

#include "ccl/plugins/net/devices.h"
#include "tests/unit/ccl/temp_dir.h"

namespace c4::net::test {
namespace {

namespace fs = std::filesystem;

// The interfaces are this machine's; what /sys says of them is made up.
class NetDevices : public testing::Test {
 protected:
  NetDevices() : root_(fs::canonical(directory_.path())) { fs::create_directories(root_ / "class/net"); }

  void Write(const fs::path& path, const std::string& text) {
    fs::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text << "\n";
  }
  // A PCI function, and the interface as its device or that of a virtio device below it.
  void Card(const std::string& interface, const std::string& function, bool virtio = false) {
    const fs::path card = root_ / "devices/pci0000:00" / function;
    fs::create_directories(card);
    fs::create_directories(root_ / "bus/pci");
    fs::create_directory_symlink(root_ / "bus/pci", card / "subsystem");
    const fs::path device = virtio ? card / "virtio3" : card;
    fs::create_directories(device);
    fs::create_directories(root_ / "class/net" / interface);
    fs::create_directory_symlink(device, root_ / "class/net" / interface / "device");
  }
  DeviceProperties Look(const std::string& wanted = "") {
    const DeviceList list({root_.string(), "lo", wanted});
    DeviceProperties properties;
    EXPECT_EQ(list.count(), 1);
    EXPECT_TRUE(list.Properties(0, &properties));
    pci_path_ = properties.pci_path == nullptr ? "" : properties.pci_path;
    return properties;
  }

  const c4::test::TempDir directory_;
  const fs::path root_;
  std::string pci_path_;
};

TEST_F(NetDevices, AnInterfaceWithoutACardHasAUsualSpeed) {
  const DeviceProperties properties = Look();
  EXPECT_EQ(pci_path_, "");
  EXPECT_EQ(properties.speed_mbps, 10000);
  EXPECT_NE(properties.guid, 0u);
}

TEST_F(NetDevices, ACardSaysWhereItStandsAndHowFastItIs) {
  Card("lo", "0000:3b:00.1");
  Write("class/net/lo/speed", "200000");
  Write("class/net/lo/dev_port", "1");
  Write("class/net/lo/address", "02:00:00:00:00:07");
  const DeviceProperties properties = Look();
  EXPECT_EQ(pci_path_, (root_ / "devices/pci0000:00/0000:3b:00.1").string());
  EXPECT_EQ(properties.speed_mbps, 200000);
  EXPECT_EQ(properties.port, 1);
  const uint64_t guid = properties.guid;
  Write("class/net/lo/address", "02:00:00:00:00:08");
  EXPECT_NE(Look().guid, guid);
  Write("class/net/lo/phys_switch_id", "b8ce");
  const uint64_t chip = Look().guid;
  Write("class/net/lo/address", "02:00:00:00:00:09");
  EXPECT_EQ(Look().guid, chip) << "two ports of one card";
}

TEST_F(NetDevices, AVirtioDeviceStandsBelowItsFunction) {
  Card("lo", "0000:00:03.0", true);
  Write("class/net/lo/speed", "-1");
  EXPECT_EQ(Look().speed_mbps, 10000);
  EXPECT_EQ(pci_path_, (root_ / "devices/pci0000:00/0000:00:03.0").string());
}

TEST_F(NetDevices, ABondStandsWhereItsFirstCardDoes) {
  Card("eth7", "0000:5e:00.0");
  fs::create_directories(root_ / "class/net/lo");
  fs::create_directory_symlink(root_ / "class/net/eth7", root_ / "class/net/lo/lower_eth7");
  (void)Look();
  EXPECT_EQ(pci_path_, (root_ / "devices/pci0000:00/0000:5e:00.0").string());
}

// A loop of interfaces below each other is followed a few steps and no further.
TEST_F(NetDevices, InterfacesBelowEachOtherEndSomewhere) {
  fs::create_directories(root_ / "class/net/lo");
  fs::create_directory_symlink(root_ / "class/net/lo", root_ / "class/net/lo/lower_lo");
  (void)Look();
  EXPECT_EQ(pci_path_, "");
}

TEST_F(NetDevices, RdmaDevicesAreNcclsOwnUnlessWeAreAskedFor) {
  fs::create_directories(root_ / "class/infiniband");
  EXPECT_EQ(DeviceList({root_.string(), "lo", ""}).count(), 1) << "the driver is loaded, no device is there";
  fs::create_directories(root_ / "class/infiniband/mlx5_0");
  EXPECT_EQ(DeviceList({root_.string(), "lo", ""}).count(), 0);
  EXPECT_EQ(DeviceList({root_.string(), "lo", "IB"}).count(), 0);
  EXPECT_EQ(DeviceList({root_.string(), "lo", "c4"}).count(), 1);
}

TEST_F(NetDevices, NoInterfaceIsNoDeviceAndNoError) {
  const DeviceList list({root_.string(), "=nosuchinterface", ""});
  EXPECT_EQ(list.count(), 0);
  DeviceProperties properties;
  EXPECT_FALSE(list.Properties(0, &properties));
  EXPECT_TRUE(list.Addresses(0).empty());
}

TEST_F(NetDevices, AMergedDeviceHasTheSpeedOfAll) {
  DeviceList list({root_.string(), "lo", ""});
  int merged = -1;
  ASSERT_TRUE(list.Merge({1, {0}}, &merged).ok());
  DeviceProperties properties;
  ASSERT_TRUE(list.Properties(merged, &properties));
  EXPECT_STREQ(properties.name, "lo");
  EXPECT_EQ(properties.speed_mbps, 10000);
  EXPECT_EQ(list.Addresses(merged).size(), 1u);
  EXPECT_FALSE(list.Merge({9, {}}, &merged).ok());
  EXPECT_FALSE(list.Merge({-1, {}}, &merged).ok());
  EXPECT_FALSE(list.Merge({1, {-1}}, &merged).ok());
}

}  // namespace
}  // namespace c4::net::test
