// The surroundings of the network plugin's tests: loopback is its device, whatever the host has.
#include <cstdlib>
#include <gtest/gtest.h>

int main(int argc, char** argv) {
  setenv("NCCL_SOCKET_IFNAME", "lo", 1);  // NOLINT(concurrency-mt-unsafe): no threads yet
  setenv("NCCL_NET", "C4", 1);            // NOLINT(concurrency-mt-unsafe)
  setenv("C4_CONTROL", "0", 0);           // NOLINT(concurrency-mt-unsafe)
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
