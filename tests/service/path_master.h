// A path master as a process of its own, on ports that are free. For one thread.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tests/service/harness.h"

namespace c4::service_test {

// `run_dir`: its run directory; `directory`: where it publishes its address; `more`: settings besides.
inline std::unique_ptr<Process> StartPathMaster(const std::string& run_dir, const std::string& directory,
                                                const std::vector<std::string>& more) {
  std::vector<std::string> command = {Binary("c4p_master"), "--listen",    "127.0.0.1:0", "--http-address",
                                      "127.0.0.1:0",        "--directory", directory};
  command.insert(command.end(), more.begin(), more.end());
  return std::make_unique<Process>(command, std::vector<std::string>(), run_dir);
}

}  // namespace c4::service_test
