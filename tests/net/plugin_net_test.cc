// The network plugin where packets vanish: two processes in hosts of an emulated fabric exchange messages
// through its table while links are cut in silence and heal again. NCCL must see no error, and every byte.
// Needs root.
#include <algorithm>
#include <fstream>
#include <gtest/gtest.h>
#include <memory>
#include <thread>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "fabric/emulator/command.h"
#include "fabric/emulator/fabric.h"
#include "tests/net/traffic.h"
#include "tests/service/harness.h"

namespace c4::net_test {
namespace {

using service_test::Eventually;
using service_test::Process;
using service_test::ScratchDir;
using service_test::Seconds;

class PluginNet : public testing::Test {
 protected:
  void SetUp() override {
    if (const absl::Status rights = fabric::CheckRights(); !rights.ok()) GTEST_SKIP() << rights;
  }
  void TearDown() override {
    for (const auto& end : {&sender_, &receiver_}) {
      if (*end != nullptr) (*end)->Signal(SIGKILL);
    }
    sender_.reset();
    receiver_.reset();
    if (fabric_ != nullptr) {
      EXPECT_TRUE(fabric::Fabric::Down(spec_.name).ok());
    }
  }

  // Messages flow from now on, from the first host to the last.
  void Begin(fabric::Ports ports) {
    spec_ = {.name = absl::StrCat("xn", getpid() % 100000), .leaves = 4, .spines = 4};
    spec_.hosts_per_leaf = 1;
    spec_.rate_mbps = 200;
    spec_.ports = ports;
    absl::StatusOr<fabric::Fabric> up = fabric::Fabric::Up(spec_);
    ASSERT_TRUE(up.ok()) << up.status();
    fabric_ = std::make_unique<fabric::Fabric>(*std::move(up));
    receiver_ = Start("receive", fabric::HostCount(spec_) - 1);
    sender_ = Start("send", 0);
    ASSERT_TRUE(Eventually(Seconds(10), [this] { return Received() >= 20; })) << Errors();
  }
  std::unique_ptr<Process> Start(const std::string& role, int host) {
    const char* build = std::getenv("C4_BUILD_DIR");  // NOLINT(concurrency-mt-unsafe): nobody sets it
    const std::string program = absl::StrCat(build != nullptr ? build : "build", "/tests/plugin_end");
    const std::vector<std::string> environment = {
        "NCCL_NET=C4", absl::StrCat("NCCL_SOCKET_IFNAME=", fabric::DataInterfaces(spec_)), "C4_CONTROL=0",
        absl::StrCat("C4_RUN_DIR=", scratch_.path()), absl::StrCat("PATH=", getenv("PATH"))};
    return std::make_unique<Process>(
        std::vector<std::string>{
            "nsenter", absl::StrCat("--net=", fabric::kNamespaceDir, "/", fabric::HostNamespace(spec_, host)),
            program, role, scratch_.path()},
        environment, absl::StrCat(scratch_.path(), "/", role));
  }
  uint64_t Received() const {
    uint64_t count = 0;
    std::ifstream(scratch_.path() + "/received") >> count;
    return count;
  }
  bool MovesOn(double seconds) const {
    const uint64_t before = Received();
    return Eventually(Seconds(seconds), [&] { return Received() >= before + 20; });
  }
  std::string Errors() const {
    return absl::StrCat("sender: ", sender_->Errors(), "; receiver: ", receiver_->Errors(), "; received ",
                        Received());
  }
  void End() {
    std::ofstream(scratch_.path() + "/stop") << "now\n";
    EXPECT_TRUE(sender_->Wait(Seconds(20))) << Errors();
    EXPECT_TRUE(receiver_->Wait(Seconds(20))) << Errors();
    EXPECT_EQ(sender_->exit_code(), 0) << Errors();
    EXPECT_EQ(receiver_->exit_code(), 0) << Errors();
  }

  const ScratchDir scratch_;
  fabric::FabricSpec spec_;
  std::unique_ptr<fabric::Fabric> fabric_;
  std::unique_ptr<Process> receiver_;
  std::unique_ptr<Process> sender_;
};

TEST_F(PluginNet, CutLinksAreNoError) {
  ASSERT_NO_FATAL_FAILURE(Begin(fabric::Ports::kOne));
  for (const int spine : {0, 1, 2, 3}) {
    const std::string link = absl::StrCat("leaf", spine % 2 == 0 ? 0 : 3, "-spine", spine);
    SCOPED_TRACE(link);
    ASSERT_TRUE(fabric_->Cut(link).ok());
    EXPECT_TRUE(MovesOn(8)) << Errors();
    ASSERT_TRUE(fabric_->Heal(link).ok());
    EXPECT_TRUE(MovesOn(8)) << Errors();
  }
  // Nothing gets through at all for a while.
  ASSERT_TRUE(fabric_->Cut("host3").ok());
  std::this_thread::sleep_for(std::chrono::seconds(2));
  ASSERT_TRUE(fabric_->Heal("host3").ok());
  EXPECT_TRUE(MovesOn(10)) << Errors();
  End();
}

TEST_F(PluginNet, MergedDevicesCarryOnWhenOneIsLost) {
  ASSERT_NO_FATAL_FAILURE(Begin(fabric::Ports::kPlanes));
  const std::string sender = fabric::HostNamespace(spec_, 0);
  const auto before = SentBytes(sender);
  ASSERT_TRUE(MovesOn(8)) << Errors();
  const auto after = SentBytes(sender);
  for (const char* device : {"eth0", "eth1"}) {
    EXPECT_GT(after.at(device), before.at(device) + 1000000) << device;
  }
  for (const int leaf : {0, 1}) {
    const std::string link = absl::StrCat("host0-leaf", leaf);
    SCOPED_TRACE(link);
    ASSERT_TRUE(fabric_->Cut(link).ok());
    EXPECT_TRUE(MovesOn(8)) << Errors();
    ASSERT_TRUE(fabric_->Heal(link).ok());
    EXPECT_TRUE(MovesOn(8)) << Errors();
    ASSERT_TRUE(fabric_->Break(link).ok());
    EXPECT_TRUE(MovesOn(8)) << Errors();
    ASSERT_TRUE(fabric_->Heal(link).ok());
    EXPECT_TRUE(MovesOn(8)) << Errors();
  }
  End();
}

}  // namespace
}  // namespace c4::net_test
