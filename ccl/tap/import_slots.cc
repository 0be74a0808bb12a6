#include "ccl/tap/import_slots.h"

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <memory>
#include <sys/mman.h>
#include <unistd.h>

namespace c4::tap {
namespace {

#if defined(__x86_64__)
constexpr uint32_t kJumpSlot = R_X86_64_JUMP_SLOT;
constexpr uint32_t kGlobal = R_X86_64_GLOB_DAT;
#elif defined(__aarch64__)
constexpr uint32_t kJumpSlot = R_AARCH64_JUMP_SLOT;
constexpr uint32_t kGlobal = R_AARCH64_GLOB_DAT;
#endif

// What of a library's dynamic section names its imports.
struct Dynamic {
  const ElfW(Sym) * symbols = nullptr;
  const char* names = nullptr;
  size_t names_bytes = 0;
  const ElfW(Rela) * jumps = nullptr;
  size_t jump_count = 0;
  const ElfW(Rela) * others = nullptr;
  size_t other_count = 0;
  bool with_addends = true;
};

// glibc has added the base to addresses in its own copy of the section, musl and the kernel's vdso have not.
template <typename T>
const T* At(ElfW(Addr) base, ElfW(Addr) address) {
  return reinterpret_cast<const T*>(address < base ? base + address : address);
}

Dynamic Read(const link_map& library) {
  Dynamic found;
  const ElfW(Addr) base = library.l_addr;
  for (const ElfW(Dyn)* entry = library.l_ld; entry != nullptr && entry->d_tag != DT_NULL; ++entry) {
    switch (entry->d_tag) {
      case DT_SYMTAB:
        found.symbols = At<ElfW(Sym)>(base, entry->d_un.d_ptr);
        break;
      case DT_STRTAB:
        found.names = At<char>(base, entry->d_un.d_ptr);
        break;
      case DT_STRSZ:
        found.names_bytes = entry->d_un.d_val;
        break;
      case DT_JMPREL:
        found.jumps = At<ElfW(Rela)>(base, entry->d_un.d_ptr);
        break;
      case DT_PLTRELSZ:
        found.jump_count = entry->d_un.d_val / sizeof(ElfW(Rela));
        break;
      case DT_PLTREL:
        found.with_addends = entry->d_un.d_val == DT_RELA;
        break;
      case DT_RELA:
        found.others = At<ElfW(Rela)>(base, entry->d_un.d_ptr);
        break;
      case DT_RELASZ:
        found.other_count = entry->d_un.d_val / sizeof(ElfW(Rela));
        break;
      default:
        break;
    }
  }
  if (found.jumps == nullptr) found.jump_count = 0;
  if (found.others == nullptr) found.other_count = 0;
  return found;
}

// The rights of the mapping that holds `address`, as mprotect takes them; -1: there is none.
int RightsAt(uintptr_t address) {
  const std::unique_ptr<FILE, int (*)(FILE*)> maps(fopen("/proc/self/maps", "re"), &fclose);
  if (maps == nullptr) return -1;
  char line[512];
  while (fgets(line, sizeof line, maps.get()) != nullptr) {
    uint64_t from = 0;
    uint64_t to = 0;
    char rights[5] = {};
    // NOLINTNEXTLINE(cert-err34-c): the kernel's own text
    if (sscanf(line, "%lx-%lx %4s", &from, &to, rights) != 3) continue;
    if (address < from || address >= to) continue;
    return (rights[0] == 'r' ? PROT_READ : 0) | (rights[1] == 'w' ? PROT_WRITE : 0) |
           (rights[2] == 'x' ? PROT_EXEC : 0);
  }
  return -1;
}

Result Write(void** place, void* value) {
  const auto page_bytes = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto address = reinterpret_cast<uintptr_t>(place);
  void* const page = reinterpret_cast<void*>(address & ~(page_bytes - 1));
  const int rights = RightsAt(address);
  if (rights < 0)
    return Fail(ncclSystemError, "the import slot at %p is in no mapping", static_cast<void*>(place));
  const bool locked = (rights & PROT_WRITE) == 0;
  if (locked && mprotect(page, page_bytes, rights | PROT_WRITE) != 0) {
    return Fail(ncclSystemError, "an import slot cannot be made writable: %s", ErrnoText(errno).c_str());
  }
  std::atomic_ref<void*>(*place).store(value, std::memory_order_release);
  // Left writable it would work as well: no reason to fail.
  if (locked) (void)mprotect(page, page_bytes, rights);
  return Ok();
}

}  // namespace

Result ImportSlots::Redirect(void* handle, const std::vector<Import>& imports, ImportSlots* redirected) {
  link_map* library = nullptr;
  if (handle == nullptr || dlinfo(handle, RTLD_DI_LINKMAP, &library) != 0 || library == nullptr) {
    return Fail(ncclInvalidUsage, "no loaded library has this handle");
  }
  const Dynamic dynamic = Read(*library);
  if (dynamic.symbols == nullptr || dynamic.names == nullptr || !dynamic.with_addends) {
    return Fail(ncclInvalidUsage, "%s has no import slots of the usual kind", library->l_name);
  }
  std::vector<Slot> found;
  std::vector<void*> replacements;
  const auto look = [&](const ElfW(Rela) * relocations, size_t count, uint32_t kind) {
    for (size_t i = 0; i < count; ++i) {
      if (ELF64_R_TYPE(relocations[i].r_info) != kind) continue;
      const ElfW(Sym)& symbol = dynamic.symbols[ELF64_R_SYM(relocations[i].r_info)];
      if (symbol.st_name >= dynamic.names_bytes) continue;
      for (const Import& import : imports) {
        if (strcmp(dynamic.names + symbol.st_name, import.symbol) != 0) continue;
        auto** const place = reinterpret_cast<void**>(library->l_addr + relocations[i].r_offset);
        found.push_back({import.symbol, place, nullptr});
        replacements.push_back(import.replacement);
      }
    }
  };
  look(dynamic.jumps, dynamic.jump_count, kJumpSlot);
  look(dynamic.others, dynamic.other_count, kGlobal);
  ImportSlots made;
  for (size_t i = 0; i < found.size(); ++i) {
    found[i].before = std::atomic_ref<void*>(*found[i].place).load(std::memory_order_acquire);
    if (Result written = Write(found[i].place, replacements[i]); !written.ok()) {
      (void)made.Restore();
      return written;
    }
    made.slots_.push_back(found[i]);
  }
  *redirected = std::move(made);
  return Ok();
}

Result ImportSlots::Restore() {
  Result first = Ok();
  for (const Slot& slot : slots_) {
    if (Result written = Write(slot.place, slot.before); !written.ok() && first.ok())
      first = std::move(written);
  }
  slots_.clear();
  return first;
}

bool ImportSlots::Has(const char* symbol) const {
  for (const Slot& slot : slots_) {
    if (slot.symbol == symbol) return true;
  }
  return false;
}

}  // namespace c4::tap
