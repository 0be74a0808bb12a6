// Reads an ncclConfig_t as the program's header laid it out: older and newer releases have shorter and
// longer ones, and what once was padding is a member now. Pure; any thread.
#pragma once

#include <optional>
#include <string>

#include "ccl/base/result.h"

namespace c4::api {

// The settings that bear on this library. The others steer GPU kernels: they are checked and not used.
struct CommunicatorSettings {
  std::string name;              // empty when none was given
  std::optional<bool> blocking;  // nothing when it was not set
};

// `config` may be NULL: nothing is set then.
Result ReadConfig(const ncclConfig_t* config, CommunicatorSettings* settings);

}  // namespace c4::api
