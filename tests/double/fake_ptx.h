// Runs kernels of one thread that are written in as much of NVIDIA's assembly language as our stamp uses:
// 64-bit registers, parameters, one kind of global array, no branches. Everything else does not assemble.
// Every address is checked against what was mapped. Thread-safe.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <vector>

namespace c4::fake_cuda {

struct Instruction {
  std::string operation;
  std::vector<std::string> operands;
};

struct Kernel {
  std::string name;
  std::vector<std::string> parameters;      // 64 bits each
  std::map<std::string, uint64_t> globals;  // their addresses
  std::vector<Instruction> code;
};

class Machine {
 public:
  // nullptr: it is not in the language. Its global memory is zero.
  Kernel* Assemble(const std::string& text);
  // [address, address + bytes) of the device is `data`.
  void Map(uint64_t address, void* data, uint64_t bytes);
  void Run(const Kernel& kernel, const std::vector<uint64_t>& arguments, uint64_t (*timer)());
  uint64_t faults() const { return faults_.load(); }

 private:
  struct Memory {
    uint64_t bytes;
    char* data;
  };
  uint64_t* At(uint64_t address);

  std::mutex mutex_;
  std::map<uint64_t, Memory> memory_;
  std::atomic<uint64_t> faults_{0};
};

}  // namespace c4::fake_cuda
