// Files of a node's kernel, below a directory of the test's own.
#pragma once

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <sys/stat.h>

#include "tests/unit/service/temporary_directory.h"

namespace c4::agent {

class FakeRoot {
 public:
  std::string path() const { return directory_.path(); }

  void Write(const std::string& file, const std::string& content) const {
    const std::filesystem::path full = directory_.path() + file;
    std::filesystem::create_directories(full.parent_path());
    std::ofstream(full, std::ios::binary | std::ios::trunc) << content;
  }
  void Append(const std::string& file, const std::string& content) const {
    std::ofstream(directory_.path() + file, std::ios::binary | std::ios::app) << content;
  }
  void Link(const std::string& file, const std::string& target) const {
    const std::filesystem::path full = directory_.path() + file;
    std::filesystem::create_directories(full.parent_path());
    std::filesystem::create_symlink(target, full);
  }
  void Remove(const std::string& file) const { std::filesystem::remove_all(directory_.path() + file); }
  // What nobody writes to: to open it for reading blocks.
  void Fifo(const std::string& file) const {
    const std::filesystem::path full = directory_.path() + file;
    std::filesystem::create_directories(full.parent_path());
    std::filesystem::remove(full);
    ASSERT_EQ(mkfifo(full.c_str(), 0600), 0);
  }

  // A port of an InfiniBand device, and what it counts.
  void Port(const std::string& device, const std::string& port, const std::string& state = "4: ACTIVE\n",
            const std::string& rate = "400 Gb/sec (4X NDR)\n") const {
    const std::string folder = "/sys/class/infiniband/" + device + "/ports/" + port + "/";
    Write(folder + "state", state);
    Write(folder + "phys_state", "5: LinkUp\n");
    Write(folder + "rate", rate);
    Write(folder + "counters/symbol_error", "0\n");
    Write(folder + "counters/link_downed", "0\n");
    Write(folder + "hw_counters/local_ack_timeout_err", "0\n");
  }

 private:
  test::TemporaryDirectory directory_;
};

}  // namespace c4::agent
