#include "ccl/engine/engine.h"

#include "ccl/base/knobs.h"
#include "ccl/base/log.h"
#include "ccl/bootstrap/protocol.h"
#include "ccl/engine/host/engine.h"
#include "ccl/engine/vendor/library.h"

namespace c4 {
namespace {

bool MadeByHostEngine(const ncclUniqueId& id) {
  uint64_t magic = 0;
  memcpy(&magic, &id, sizeof magic);
  return magic == bootstrap::kIdMagic;
}

}  // namespace

Result ChooseEngine(const ncclUniqueId* id, Engine** engine) {
  static auto* const host = new host::HostEngine();
  static const std::string* const wish = new std::string(KnobText(Knob::C4_ENGINE));
  // Where there is a vendor's library, only communicators of ids that say so come here.
  C4_RETURN_IF_ERROR(vendor::Refusal());
  if (id != nullptr && !MadeByHostEngine(*id)) {
    return Fail(
        ncclInvalidArgument,
        "the unique id was not made by C4's host engine, and this process has no NCCL of the vendor's: "
        "call ncclGetUniqueId of this library on one rank and send the id to the others, or set "
        "C4_VENDOR_LIBRARY");
  }
  static const bool said = [] {
    C4_INFO("C4 %d.%d.%d, engine host (C4_ENGINE=%s): collectives run on host memory", NCCL_MAJOR, NCCL_MINOR,
            NCCL_PATCH, wish->c_str());
    return true;
  }();
  (void)said;
  *engine = host;
  return Ok();
}

}  // namespace c4
