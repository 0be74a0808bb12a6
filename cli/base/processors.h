// How busy this machine's processors were: a throughput that the processors limited says nothing of the
// network.
#pragma once

#include <algorithm>
#include <fstream>
#include <string>

namespace c4 {

class Processors {
 public:
  // Share of them that was busy since the last call.
  double Busy() {
    std::ifstream stat("/proc/stat");
    std::string word;
    stat >> word;
    double total = 0;
    double idle = 0;
    for (int i = 0; i < 8; ++i) {
      double ticks = 0;
      stat >> ticks;
      total += ticks;
      if (i == 3 || i == 4) idle += ticks;
    }
    const double busy = 1 - (idle - idle_) / std::max(total - total_, 1.0);
    total_ = total;
    idle_ = idle;
    return busy;
  }

 private:
  double total_ = 0;
  double idle_ = 0;
};

}  // namespace c4
