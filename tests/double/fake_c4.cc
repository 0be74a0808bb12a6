// A double of C4's library for tests of where it is put: it has our mark, and the version of the vendor's
// library beside it. FAKE_ALONE: one that does not work where it is put, as it looks for none.
#include <dlfcn.h>
#include <string>

#define FAKE_EXPORT extern "C" __attribute__((visibility("default")))

FAKE_EXPORT int c4StreamCreate(void**) {
  return 0;
}

FAKE_EXPORT int ncclGetVersion(int* version) {
#ifdef FAKE_ALONE
  *version = 22809;
  return 0;
#else
  Dl_info info;
  if (dladdr(reinterpret_cast<const void*>(&c4StreamCreate), &info) == 0) return 1;
  const std::string own = info.dli_fname;
  const std::string vendor = own.substr(0, own.rfind('/')) + "/libnccl-vendor.so.2";
  void* const handle = dlopen(vendor.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) return 2;
  return reinterpret_cast<int (*)(int*)>(dlsym(handle, "ncclGetVersion"))(version);
#endif
}
