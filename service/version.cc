#include "service/version.h"

namespace c4::service {

std::string_view Version() {
  return C4_VERSION;
}

uint32_t VersionNumber() {
  return C4_VERSION_MAJOR << 16 | C4_VERSION_MINOR << 8 | C4_VERSION_PATCH;
}

}  // namespace c4::service
