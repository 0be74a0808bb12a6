// The vendor's NCCL: where it is looked for, what is refused, and how it is opened. It is opened once, at the
// first call that needs to know, and never closed. Any thread.
//
// Opened so that its own calls stay inside it (RTLD_DEEPBIND: 19 of its functions call others through symbols
// that have our names) and that nothing else finds its names (RTLD_LOCAL).
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "ccl/base/result.h"
#include "ccl/engine/vendor/api.h"
#include "ccl/include/c4/installed.h"

namespace c4::vendor {

struct Library {
  void* handle = nullptr;
  std::string path;
  std::string why;  // this one: "C4_VENDOR_LIBRARY", "beside us", …
  int version = 0;  // as NCCL counts: 22809
  Api api;

  void* Symbol(const char* name) const;  // nullptr: it has none
};

struct Candidate {
  std::string path;
  const char* why = "";
};

struct FileId {
  uint64_t device = 0;
  uint64_t inode = 0;  // 0: unknown

  bool operator==(const FileId&) const = default;
};

// What the search depends on, so that it can be tested.
struct Places {
  std::string own_path;  // of this library, resolved
  FileId own_file;       // as it was loaded; unknown: what own_path is now
  std::string wanted;    // C4_VENDOR_LIBRARY; nothing else counts where it is set
  std::function<const char*(const char*)> environment;
  std::vector<std::string> loaded;  // paths of the libraries of this process
  std::string root;                 // in front of the system's own folders; empty but in tests
};
Places ProcessPlaces();

// In the order in which they are tried; only files that are there, each once, and never ourselves (but what
// has been put in our place since we were loaded, as undoing an installation does). A wanted one is given
// whether it is there or not.
std::vector<Candidate> Candidates(const Places& places);

// Opens and checks one. The sentence of a failure names the file and what to do.
Result Open(const Candidate& candidate, const Places& places, Library* library);

// What this process uses: decided at the first call, by C4_ENGINE and what is found. nullptr: no vendor's
// library, the host engine serves; `refusal` then says why that is a failure, if it is one: C4_ENGINE=vendor
// or C4_VENDOR_LIBRARY ask for what cannot be had.
const Library* Get();
Result Refusal();

namespace internal {
extern std::atomic<const Api*> api;
}

// Whether `comm` is the vendor's: handles of the host engine are odd. Without a lock, and without looking for
// the library.
inline const Api* ApiOf(ncclComm_t comm) {
  const Api* const api = internal::api.load(std::memory_order_acquire);
  if (api == nullptr || (reinterpret_cast<uintptr_t>(comm) & 1) != 0) return nullptr;
  return api;
}

// For calls that name no communicator: looks for the library first.
inline const Api* ApiOfProcess() {
  const Library* const library = Get();
  return library == nullptr ? nullptr : &library->api;
}

// Of ourselves, resolved; empty where it cannot be told.
std::string OwnPath();

}  // namespace c4::vendor
