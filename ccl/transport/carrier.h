// Hears when a network device of this host loses its carrier (rtnetlink), so that what goes over it need not
// be found out by waiting. A host that does not tell is one where stalls tell. One thread; nothing blocks.
#pragma once

#include <vector>

#include "ccl/base/socket.h"

namespace c4 {

class Carrier {
 public:
  // Listens from now on; quietly does nothing where that is not allowed.
  void Open();
  int fd() const { return fd_.get(); }  // readable when there is news; -1: never
  // Addresses of the devices that have lost their carrier since the last call.
  std::vector<SocketAddress> TakeLost();

 private:
  Fd fd_;
};

}  // namespace c4
