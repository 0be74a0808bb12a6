#include "c4a/health/device_names.h"

#include "c4a/health/kernel_log.h"
#include "service/text.h"

namespace c4::agent {

using service::Concat;

void DeviceNames::Learn() {
  names_.clear();
  // The driver's folders are named by address, and nvidia-smi counts in that order.
  int gpus = 0;
  for (const std::string& folder : files_->List("/proc/driver/nvidia/gpus")) {
    const std::string address = PciAddress(folder);
    if (!address.empty()) names_[address] = Concat("GPU ", gpus++);
  }
  for (const char* sort : {"/sys/class/infiniband/", "/sys/class/net/"}) {
    for (const std::string& name : files_->List(sort)) {
      const std::string address = PciAddress(files_->LinkName(Concat(sort, name, "/device")));
      if (!address.empty()) names_.try_emplace(address, service::ToUtf8(name));
    }
  }
}

std::string DeviceNames::NameOf(const std::string& pci_address, int64_t now_ns) {
  if (learnt_ns_ == 0 || now_ns - learnt_ns_ >= kLearnAgainNs) {
    learnt_ns_ = now_ns;
    Learn();
  }
  const auto found = names_.find(pci_address);
  return found == names_.end() ? Concat("PCI device ", pci_address) : found->second;
}

}  // namespace c4::agent
