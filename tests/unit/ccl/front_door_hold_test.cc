// Calls to the vendor's library that are held for a validation, by the built library in front of a double:
// what is held has not reached the vendor, groups are held as a whole, and a call whose communicator was
// aborted meanwhile never reaches it.
#include <atomic>
#include <functional>
#include <gtest/gtest.h>
#include <optional>
#include <thread>

#include "tests/unit/ccl/fake_agent.h"
#include "tests/unit/ccl/front_door.h"
#include "tests/unit/ccl/temp_dir.h"

namespace c4::front_door {
namespace {

constexpr const char* kVersion = "2.28.9";

// In the child: a communicator of one rank, and the agent that its process has connected to.
struct Scene {
  explicit Scene(const std::string& directory) : agent(directory) {
    ncclUniqueId id;
    if (DOOR(door, ncclGetUniqueId)(&id) != ncclSuccess) return;
    if (DOOR(door, ncclCommInitRank)(&comm, 1, id, 0) != ncclSuccess) comm = nullptr;
    agent.Accept();
    connected = !agent.Receive().empty();
  }
  wire::ControlHoldState Arm(uint64_t calls) {
    wire::ControlHoldArm order{};
    order.hold = 9;
    order.calls = calls;
    order.count = wire::kHoldCountCollectives;
    order.arrive_ms = order.hold_ms = 8000;
    for (const wire::CommunicatorSlot& slot : Door::Communicators()) {
      if (slot.phase == wire::kPhaseReady) order.communicator_id = slot.communicator_id;
    }
    agent.Send(wire::kControlHoldArm, order);
    return Next();
  }
  wire::ControlHoldState Next() { return agent.Receive<wire::ControlHoldState>(wire::kControlHoldState); }
  void End() { agent.Send(wire::kControlHoldEnd, wire::ControlHoldEnd{9}); }
  ncclResult_t Reduce() {
    return DOOR(door, ncclAllReduce)(&memory, &memory, 1, ncclInt8, ncclSum, comm, nullptr);
  }

  test::FakeAgent agent;
  Door door;
  ncclComm_t comm = nullptr;
  bool connected = false;
  char memory = 0;
};

void ExpectGood(const std::function<std::string(Scene&, Vendor&)>& body) {
  const test::TempDir directory;
  const std::string fault = InChild(
      {{"C4_VENDOR_LIBRARY", Double(kVersion)}, {"C4_RUN_DIR", directory.path()}, {"C4_CONTROL", "1"}}, [&] {
        Scene scene(directory.path());
        DOOR_CHECK(scene.comm != nullptr);
        DOOR_CHECK(scene.connected);
        Vendor vendor;
        return body(scene, vendor);
      });
  EXPECT_EQ(fault, "");
}

TEST(FrontDoorHold, ACallAfterTheCutWaitsInFrontOfTheVendor) {
  ExpectGood([](Scene& scene, Vendor& vendor) {
    DOOR_CHECK(scene.Reduce() == ncclSuccess);
    DOOR_CHECK(scene.Arm(3).counted == 1);
    std::thread program([&] {
      for (int i = 0; i < 4; ++i) scene.Reduce();
    });
    const wire::ControlHoldState held = scene.Next();
    const wire::ControlHoldState quiet = scene.Next();
    const uint64_t reached = vendor.Calls("ncclAllReduce");
    scene.End();
    program.join();
    DOOR_CHECK(held.phase == wire::kHoldHeld && held.counted == 3);
    DOOR_CHECK(quiet.phase == wire::kHoldQuiet);
    DOOR_CHECK(reached == 3);
    DOOR_CHECK(vendor.Calls("ncclAllReduce") == 5);
    DOOR_CHECK(scene.Next().reason == wire::kHoldToldTo);
    return std::string();
  });
}

TEST(FrontDoorHold, AGroupIsHeldBeforeItBeginsAndNeverInside) {
  ExpectGood([](Scene& scene, Vendor& vendor) {
    DOOR_CHECK(DOOR(scene.door, ncclGroupStart)() == ncclSuccess);
    DOOR_CHECK(scene.Arm(1).phase == wire::kHoldArmed);
    DOOR_CHECK(scene.Reduce() == ncclSuccess);
    DOOR_CHECK(scene.Reduce() == ncclSuccess);  // past the cut, in a group that is open
    DOOR_CHECK(DOOR(scene.door, ncclGroupEnd)() == ncclSuccess);
    std::thread program([&] {
      DOOR(scene.door, ncclGroupStart)();
      scene.Reduce();
      DOOR(scene.door, ncclGroupEnd)();
    });
    const wire::ControlHoldState held = scene.Next();
    const uint64_t groups = vendor.Calls("ncclGroupStart");
    scene.End();
    program.join();
    DOOR_CHECK(held.phase == wire::kHoldHeld && held.counted == 2);
    DOOR_CHECK(groups == 1);
    DOOR_CHECK(vendor.Calls("ncclGroupStart") == 2 && vendor.Calls("ncclAllReduce") == 3);
    return std::string();
  });
}

TEST(FrontDoorHold, AnAbortLetsItGoAndItDoesNotReachTheVendor) {
  ExpectGood([](Scene& scene, Vendor& vendor) {
    DOOR_CHECK(scene.Arm(0).phase == wire::kHoldArmed);
    std::optional<ncclResult_t> result;
    std::thread program([&] { result = scene.Reduce(); });
    DOOR_CHECK(scene.Next().phase == wire::kHoldHeld);
    DOOR_CHECK(DOOR(scene.door, ncclCommAbort)(scene.comm) == ncclSuccess);
    program.join();
    DOOR_CHECK(result == ncclInvalidUsage);
    DOOR_CHECK(vendor.Calls("ncclAllReduce") == 0);
    return std::string();
  });
}

}  // namespace
}  // namespace c4::front_door
