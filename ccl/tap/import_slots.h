// The places through which a loaded library calls functions of others (its import slots), found from outside
// by its dynamic section and pointed elsewhere. So the vendor's NCCL finds our verbs functions when it looks
// them up, and nobody else in the process does.
//
// Slots in pages that the loader has made read-only are written through a moment of being writable. Any
// thread may call; the library must stay loaded meanwhile. What another thread calls at the same moment goes
// one way or the other, never astray: a slot is one aligned word.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "ccl/base/result.h"

namespace c4::tap {

// `handle`: as dlopen gives it. One function of that name becomes `replacement`.
struct Import {
  const char* symbol;
  void* replacement;
};

class ImportSlots {
 public:
  ImportSlots() = default;
  ImportSlots(const ImportSlots&) = delete;
  ImportSlots& operator=(const ImportSlots&) = delete;
  ImportSlots(ImportSlots&&) = default;
  ImportSlots& operator=(ImportSlots&&) = default;

  // All slots of these names, in the library of `handle` alone. Imports that it has no slot for are passed
  // over; *this then has fewer. Not Ok: nothing was changed, and why.
  static Result Redirect(void* handle, const std::vector<Import>& imports, ImportSlots* redirected);
  // Each slot as it was before. The library must still be loaded.
  Result Restore();

  size_t count() const { return slots_.size(); }
  bool Has(const char* symbol) const;

 private:
  struct Slot {
    std::string symbol;
    void** place;
    void* before;
  };
  std::vector<Slot> slots_;
};

}  // namespace c4::tap
