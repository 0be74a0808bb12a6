// How the library's symbols are made. A function is defined once, as pncclX; ncclX is a weak symbol of the
// same address, which a profiler that is loaded before the library may replace and still call through to
// pncclX. Which names leave the library, ccl/api/exports.map says.
#pragma once

#define C4_WEAK_TWIN(name) \
  extern "C" __attribute__((weak, visibility("default"), alias("p" #name))) decltype(p##name) name

// Of a function that our nccl.h does not declare, being in later releases only.
#define C4_LATER extern "C" __attribute__((visibility("default")))
