#include "ccl/tap/tap.h"

#include <cstring>
#include <dlfcn.h>
#include <mutex>
#include <vector>

#include "ccl/tap/import_slots.h"
#include "ccl/tap/verbs_calls.h"

namespace c4::tap {
namespace {

bool IsOfVerbs(const char* symbol) {
  return symbol != nullptr && strncmp(symbol, "ibv_", 4) == 0;
}

// What is none of ours goes on as a jump: RTLD_NEXT and the like mean the library that called.
void* LookUp(void* handle, const char* symbol) {
  if (!IsOfVerbs(symbol)) return dlsym(handle, symbol);
  return InPlaceOf(symbol, dlsym(handle, symbol));
}

void* LookUpVersion(void* handle, const char* symbol, const char* version) {
  if (!IsOfVerbs(symbol)) return dlvsym(handle, symbol, version);
  return InPlaceOf(symbol, dlvsym(handle, symbol, version));
}

struct Installed {
  std::mutex mutex;
  std::vector<ImportSlots> slots;
};
Installed& TheInstalled() {
  static auto* const installed = new Installed;
  return *installed;
}

}  // namespace

Result Install(void* handle) {
  ImportSlots slots;
  C4_RETURN_IF_ERROR(ImportSlots::Redirect(
      handle,
      {{"dlsym", reinterpret_cast<void*>(&LookUp)}, {"dlvsym", reinterpret_cast<void*>(&LookUpVersion)}},
      &slots));
  if (slots.count() == 0) {
    return Fail(ncclInvalidUsage,
                "it looks nothing up by dlsym or dlvsym: it is linked to verbs, or loads them another way");
  }
  Installed& installed = TheInstalled();
  const std::lock_guard<std::mutex> lock(installed.mutex);
  installed.slots.push_back(std::move(slots));
  return Ok();
}

Result Uninstall() {
  Installed& installed = TheInstalled();
  const std::lock_guard<std::mutex> lock(installed.mutex);
  Result first = Ok();
  for (ImportSlots& slots : installed.slots) {
    if (Result restored = slots.Restore(); !restored.ok() && first.ok()) first = std::move(restored);
  }
  installed.slots.clear();
  return first;
}

}  // namespace c4::tap
