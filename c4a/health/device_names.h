// Names devices of the PCI bus as people call them: "GPU 3" (as nvidia-smi numbers them, by address),
// "mlx5_0", "eth2". The names are found under the root, and read again at most once in a while, since
// devices come and go. One thread an object.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "c4a/health/root_files.h"

namespace c4::agent {

class DeviceNames {
 public:
  explicit DeviceNames(const RootFiles* files) : files_(files) {}

  // The address itself where it has no name.
  std::string NameOf(const std::string& pci_address, int64_t now_ns);

 private:
  void Learn();

  static constexpr int64_t kLearnAgainNs = 60'000'000'000;
  const RootFiles* const files_;
  std::map<std::string, std::string> names_;
  int64_t learnt_ns_ = 0;
};

}  // namespace c4::agent
