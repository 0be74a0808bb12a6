// What `c4 fabric status` prints. Pure; any thread.
#pragma once

#include <string>

#include "fabric/emulator/fabric.h"

namespace c4::cli {

std::string FabricText(const fabric::FabricStatus& status);
// One document (docs/fabric.md).
std::string FabricJson(const fabric::FabricStatus& status);

std::string DownText(const std::string& name, const fabric::DownReport& report);
std::string DownJson(const std::string& name, const fabric::DownReport& report);

}  // namespace c4::cli
