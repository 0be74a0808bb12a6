// The built library in a process of its own, in front of a double of the vendor's: what the tests of the
// front door share. What a library decides it decides once a process, so each test forks; what it found goes
// back as text, and empty text is success.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "ccl/include/nccl.h"
#include "tests/double/fake_vendor.h"
#include "wire/segment.h"

namespace c4::front_door {

std::string Variable(const char* name);  // of the environment; empty where it is not set
std::string BuildFolder();
std::string OurLibrary();                        // libnccl.so.2: C4_LIBRARY, else the build's own
std::string Double(const std::string& version);  // "2.28.9"

// In the child: the built library, and what is in its segment.
class Door {
 public:
  explicit Door(const std::string& path = OurLibrary());

  template <typename Function>
  Function Call(const char* name) {
    return reinterpret_cast<Function>(Symbol(name));
  }
  void* Symbol(const char* name);
  void* handle() const { return handle_; }
  std::string error() const { return error_; }

  // Slots of this process's segment that were ever used, as they are now.
  static std::vector<wire::CommunicatorSlot> Communicators();

 private:
  void* handle_ = nullptr;
  std::string error_;
};

// The double, as it is loaded already.
class Vendor {
 public:
  explicit Vendor(const std::string& version = "2.28.9");
  fake_vendor::LastCall Last();
  uint64_t Calls(const char* name);
  void Answer(const char* name, ncclResult_t result);

 private:
  void* handle_;
};

// Forks, sets the environment (C4_ENGINE is unset unless it is given), runs `body`, and gives back its text;
// or how the child died.
std::string InChild(const std::map<std::string, std::string>& environment,
                    const std::function<std::string()>& body);

}  // namespace c4::front_door

// Typed, by name: DOOR(door, ncclAllReduce)(...).
#define DOOR(door, name) (door).Call<decltype(&(name))>(#name)

// In a body: gives the text back where a condition does not hold.
#define DOOR_CHECK(condition)                                                                \
  do {                                                                                       \
    if (!(condition)) return std::string(#condition) + ", line " + std::to_string(__LINE__); \
  } while (0)
