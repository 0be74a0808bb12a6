#include "tests/double/fake_ptx.h"

#include <algorithm>
#include <cstdlib>
#include <regex>
#include <sstream>

namespace c4::fake_cuda {
namespace {

constexpr uint64_t kGlobals = 0x2000'0000'0000;  // where arrays are put, one after the other

std::string Without(const std::string& text, const char* what) {
  return std::regex_replace(text, std::regex(what), "");
}

bool Knows(const std::string& operation) {
  static const std::vector<std::string> known = {"mov.u64",
                                                 "ld.param.u64",
                                                 "shl.b64",
                                                 "add.u64",
                                                 "and.b64",
                                                 "atom.global.add.u64",
                                                 "st.volatile.global.u64",
                                                 "membar.sys",
                                                 "ret"};
  return std::find(known.begin(), known.end(), operation) != known.end();
}

bool Assembled(const std::string& body, Kernel* kernel) {
  std::istringstream lines(body);
  for (std::string line; std::getline(lines, line, ';');) {
    line = Without(line, "^\\s+|\\s+$");
    if (line.empty() || line.starts_with(".reg .b64 ")) continue;
    Instruction instruction;
    const size_t space = line.find(' ');
    instruction.operation = line.substr(0, space);
    if (!Knows(instruction.operation)) return false;
    std::istringstream operands(space == std::string::npos ? "" : line.substr(space));
    for (std::string operand; std::getline(operands, operand, ',');) {
      instruction.operands.push_back(Without(operand, "\\s+"));
    }
    kernel->code.push_back(instruction);
  }
  return !kernel->code.empty() && kernel->code.back().operation == "ret";
}

}  // namespace

Kernel* Machine::Assemble(const std::string& text) {
  std::smatch parts;
  static const std::regex form(
      "^\\.version [0-9]\\.[0-9]\\s+\\.target sm_[0-9]+\\s+\\.address_size 64\\s+"
      "\\.global \\.align 8 \\.u64 (\\w+)\\[([0-9]+)\\];\\s+"
      "\\.visible \\.entry (\\w+)\\(([^)]*)\\)\\s*\\{([^}]*)\\}\\s*$");
  if (!std::regex_match(text, parts, form)) return nullptr;
  auto* const kernel = new Kernel;
  kernel->name = parts[3];
  const std::string declared = parts[4];
  static const std::regex parameter("\\.param \\.u64 (\\w+)");
  for (std::sregex_iterator it(declared.begin(), declared.end(), parameter), end; it != end; ++it) {
    kernel->parameters.push_back((*it)[1]);
  }
  if (!Assembled(parts[5], kernel)) {
    delete kernel;
    return nullptr;
  }
  const uint64_t bytes = strtoull(parts[2].str().c_str(), nullptr, 10) * 8;
  static std::atomic<uint64_t> next{kGlobals};
  const uint64_t address = next.fetch_add(bytes + 4096);
  kernel->globals[parts[1]] = address;
  Map(address, calloc(1, bytes), bytes);
  return kernel;
}

void Machine::Map(uint64_t address, void* data, uint64_t bytes) {
  const std::lock_guard<std::mutex> lock(mutex_);
  memory_[address] = {bytes, static_cast<char*>(data)};
}

uint64_t* Machine::At(uint64_t address) {
  static uint64_t nowhere = 0;
  const std::lock_guard<std::mutex> lock(mutex_);
  auto after = memory_.upper_bound(address);
  if (after != memory_.begin()) {
    const auto& [begin, memory] = *--after;
    if (address % 8 == 0 && address - begin + 8 <= memory.bytes) {
      return reinterpret_cast<uint64_t*>(memory.data + (address - begin));
    }
  }
  ++faults_;
  return &nowhere;
}

void Machine::Run(const Kernel& kernel, const std::vector<uint64_t>& arguments, uint64_t (*timer)()) {
  std::map<std::string, uint64_t> registers;
  const auto value = [&](const std::string& operand) -> uint64_t {
    if (operand == "%globaltimer") return timer();
    if (operand[0] == '%') {
      const auto found = registers.find(operand);
      if (found == registers.end()) ++faults_;  // nothing was written there
      return found == registers.end() ? 0 : found->second;
    }
    const auto global = kernel.globals.find(operand);
    if (global != kernel.globals.end()) return global->second;
    char* end = nullptr;
    const uint64_t number = strtoull(operand.c_str(), &end, 10);
    if (*end != '\0' || operand.empty()) ++faults_;
    return number;
  };
  // [%rd1] or [%rd1+8]
  const auto address = [&](const std::string& operand) {
    const size_t plus = operand.find('+');
    const std::string base = operand.substr(1, (plus == std::string::npos ? operand.size() - 1 : plus) - 1);
    const uint64_t offset = plus == std::string::npos ? 0 : strtoull(operand.c_str() + plus + 1, nullptr, 10);
    return value(base) + offset;
  };
  for (const auto& [operation, at] : kernel.code) {
    if (operation == "mov.u64") {
      registers[at[0]] = value(at[1]);
    } else if (operation == "ld.param.u64") {
      const auto found =
          std::find(kernel.parameters.begin(), kernel.parameters.end(), at[1].substr(1, at[1].size() - 2));
      if (found == kernel.parameters.end())
        ++faults_;
      else
        registers[at[0]] = arguments[static_cast<size_t>(found - kernel.parameters.begin())];
    } else if (operation == "shl.b64") {
      registers[at[0]] = value(at[1]) << value(at[2]);
    } else if (operation == "add.u64") {
      registers[at[0]] = value(at[1]) + value(at[2]);
    } else if (operation == "and.b64") {
      registers[at[0]] = value(at[1]) & value(at[2]);
    } else if (operation == "atom.global.add.u64") {
      registers[at[0]] = __atomic_fetch_add(At(address(at[1])), value(at[2]), __ATOMIC_RELAXED);
    } else if (operation == "st.volatile.global.u64") {
      __atomic_store_n(At(address(at[0])), value(at[1]), __ATOMIC_RELAXED);
    } else if (operation == "membar.sys") {
      std::atomic_thread_fence(std::memory_order_seq_cst);
    }
  }
}

}  // namespace c4::fake_cuda
