#include "library.h"

#include <cstdlib>
#include <dlfcn.h>
#include <mutex>
#include <stdexcept>

namespace c4_torch {
namespace {

Library* library = nullptr;
std::mutex mutex;

constexpr char kEngine[] = "C4_ENGINE";

// A copy of our own never serves GPUs: it shall not look for the vendor's library, which PyTorch has opened
// itself. The choice falls at the first call.
class HostEngineMeanwhile {
 public:
  explicit HostEngineMeanwhile(bool wanted) : set_(wanted && getenv(kEngine) == nullptr) {
    if (set_) setenv(kEngine, "host", 1);
  }
  ~HostEngineMeanwhile() {
    if (set_) unsetenv(kEngine);
  }
  HostEngineMeanwhile(const HostEngineMeanwhile&) = delete;
  HostEngineMeanwhile& operator=(const HostEngineMeanwhile&) = delete;

 private:
  const bool set_;
};

// What keeps the file from being used; empty: it is open, and in `*opened`.
std::string Open(const std::string& file, Library* opened) {
  void* handle = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
  const HostEngineMeanwhile host(handle == nullptr);
  if (handle == nullptr) {
    if (file.find('/') == std::string::npos) return file + " is not loaded";
    handle = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND);
  }
  if (handle == nullptr) return dlerror();
#define C4_TORCH_CALL(name)                                                      \
  opened->name = reinterpret_cast<decltype(opened->name)>(dlsym(handle, #name)); \
  if (opened->name == nullptr) {                                                 \
    dlclose(handle);                                                             \
    return file + " is not C4's, or too old: it has no " #name;                  \
  }
  C4_TORCH_CALLS(C4_TORCH_CALL)
#undef C4_TORCH_CALL
  int version = 0;
  opened->ncclGetVersion(&version);
  Dl_info info;
  const bool known = dladdr(reinterpret_cast<void*>(opened->c4HostUniqueId), &info) != 0;
  opened->path = known && info.dli_fname != nullptr ? info.dli_fname : file;
  return "";
}

}  // namespace

std::string Library::Sentence(ncclComm_t comm, ncclResult_t code) const {
  const char* const sentence = ncclGetLastError(comm);
  if (sentence != nullptr && sentence[0] != '\0') return sentence;
  return ncclGetErrorString(code);
}

const std::string& OpenLibrary(const std::vector<std::string>& candidates) {
  const std::lock_guard<std::mutex> lock(mutex);
  if (library != nullptr) return library->path;
  std::string reasons;
  for (const std::string& file : candidates) {
    auto* const opened = new Library();
    const std::string reason = Open(file, opened);
    if (reason.empty()) {
      library = opened;
      return library->path;
    }
    delete opened;
    reasons += "\n  " + reason;
  }
  throw std::runtime_error("c4_torch finds no library of C4's; name its libnccl.so.2 in C4_TORCH_LIBRARY:" +
                           reasons);
}

const Library& TheLibrary() {
  return *library;
}

}  // namespace c4_torch
