// A library that looks functions up at run time, as NVIDIA's NCCL does verbs.
#include <dlfcn.h>

extern "C" {
void* looker_dlsym(void* handle, const char* symbol) {
  return dlsym(handle, symbol);
}
void* looker_dlvsym(void* handle, const char* symbol, const char* version) {
  return dlvsym(handle, symbol, version);
}
}
